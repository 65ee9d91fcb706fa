"""Our own tasks as a backend of `lengthwise eval`: prompts in tokens, asked and scored.

Every finished question is in the log, with its reply or its likelihoods.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lengthwise.errors import Interrupted, UsageError
from lengthwise.evaluation.evaluate import EvalPlan, Evaluated, load_model
from lengthwise.evaluation.family import Question, QuestionSet, Scored, Task, questions_sha256
from lengthwise.evaluation.prompts import OverLimit, Prompt, answer_tokens, fit, refuse_over_limit
from lengthwise.evaluation.score_rows import summarise
from lengthwise.evaluation.tasks import resolve_tasks
from lengthwise.text import as_corpus, load_corpus

if TYPE_CHECKING:
    from lengthwise.evaluation.evaluate import EvalSpec
    from lengthwise.measure.measurement import Measurement
    from lengthwise.models import ModelLike
    from lengthwise.runs import RunFolder
    from lengthwise.samples import SampleLog
    from lengthwise.spec import RunSpec
    from lengthwise.text import Corpus, TextLike


@dataclass(frozen=True)
class Asked:
    """A question as the model reads it."""

    task: Task
    question: Question
    prompt: Prompt
    answers: tuple[tuple[int, ...], ...] = ()
    """Tokens of the candidates, if they are ranked."""

    @property
    def crc(self) -> int:
        """Tells whether a logged sample is of this prompt."""
        plain = json.dumps([self.prompt.ids, self.answers, self.question.golds])
        return zlib.crc32(plain.encode())

    @property
    def logged(self) -> dict[str, Any]:
        """What the log keeps of it besides the answer."""
        return {
            "document": self.question.unit,
            "task": self.task.name,
            "crc": self.crc,
            "tokens": len(self.prompt.ids),
            "cut": self.prompt.cut,
        }

    def check_logged(self, record: Mapping[str, Any]) -> None:
        """Raise UsageError unless the logged sample is of this prompt."""
        if record.get("crc") != self.crc:
            raise UsageError(
                f"the sample log holds {self.question.key} of another prompt (text, data or tokenizer have changed)",
                fix="use the original text, data and tokenizer, or --overwrite to start again",
            )


@dataclass(frozen=True)
class Prepared:
    """All questions of a run."""

    asked: list[Asked]
    facts: dict[str, dict[str, Any]]
    """What a result records of each task; JSON values only."""

    def of(self, task: Task) -> list[Asked]:
        """The questions of one task."""
        return [one for one in self.asked if one.task is task]

    @property
    def tasks(self) -> list[Task]:
        """The tasks, in the table's order."""
        return list(dict.fromkeys(one.task for one in self.asked))


def prepare(spec: EvalSpec, tokenizer: Any, corpus: Corpus | None) -> Prepared:
    """Questions and prompts of all tasks; `corpus` is the background of those that are made up.

    Raises:
        UsageError, MissingError: the data, or prompts over the limit without a truncation.
    """
    _check_text_holds(spec, corpus)
    asked: list[Asked] = []
    facts: dict[str, dict[str, Any]] = {}
    for task in resolve_tasks(spec.tasks):
        found = task.question_set(spec, tokenizer, corpus)
        facts[task.name] = {
            "version": task.version,
            "metric": task.metric,
            "questions": len(found.questions),
            "questions_sha256": questions_sha256(found.questions),
            **found.facts,
        }
        asked += _fitted(spec, task, tokenizer, found)
    return Prepared(asked, facts)


def _check_text_holds(spec: EvalSpec, corpus: Corpus | None) -> None:
    """Raise UsageError if prompts need more tokens than the text has characters: making them may never end."""
    characters = 0 if corpus is None else sum(len(document.text) for document in corpus.documents)
    if corpus is not None and spec.longest_made > characters:
        raise UsageError(
            f"--length is {spec.longest_made} tokens, and the text {corpus.name} has {characters} characters",
            expected=f"at most {characters}",
            fix="use a shorter length, or more text",
        )


def _fitted(spec: EvalSpec, task: Task, tokenizer: Any, wanted: QuestionSet) -> list[Asked]:
    limit = spec.max_length if task.cut_to_limit else None
    found: list[Asked] = []
    over: list[int] = []
    for question in wanted.questions:
        try:
            prompt = fit(tokenizer, question.prompt, limit, spec.truncation, chat=wanted.chat)
        except OverLimit as error:
            over.append(error.tokens)
            continue
        answers = ()
        if spec.mode == "likelihood":
            answers = tuple(
                answer_tokens(tokenizer, question.prompt, f" {candidate}")
                for candidate in question.candidates
            )
        found.append(Asked(task, question, prompt, answers))
    if over:
        assert limit is not None
        raise refuse_over_limit(task.name, over, len(wanted.questions), limit)
    return found


def background(run: RunSpec, spec: EvalSpec) -> Corpus | None:
    """The text of made-up prompts, if a task needs one."""
    needed = any("text" in task.takes for task in resolve_tasks(spec.tasks))
    return load_corpus(run.text, split=run.split) if needed else None


def plan(plan: EvalPlan, run: RunSpec, spec: EvalSpec, tokenizer: Any) -> EvalPlan:
    """The plan with questions and cuts by task, the longest prompt, and the tokens to read.

    Raises:
        UsageError, MissingError: as `prepare`.
    """
    prepared = prepare(spec, tokenizer, background(run, spec))
    return replace(
        plan,
        questions={task.name: len(prepared.of(task)) for task in prepared.tasks},
        cut={task.name: sum(one.prompt.cut > 0 for one in prepared.of(task)) for task in prepared.tasks},
        longest_prompt=max(len(one.prompt.ids) for one in prepared.asked),
        tokens_to_run=_tokens(prepared.asked),
    )


def evaluate(run: RunSpec, spec: EvalSpec, log: SampleLog, folder: RunFolder | None) -> Evaluated:
    """Ask the questions that `log` lacks.

    Raises:
        UsageError, MissingError: as `prepare`; a log of other questions.
        Interrupted: Ctrl-C; `partial` is what was `Evaluated` of the finished questions.
    """
    from lengthwise.evaluation.asking import ask

    corpus = background(run, spec)
    model = load_model(run, folder)
    model.check_ready(spec.longest_made)
    prepared = prepare(spec, model.tokenizer, corpus)

    def evaluated(log: SampleLog) -> Evaluated:
        scored = [
            Scored(one.task, one.question, log[one.question.key])
            for one in prepared.asked
            if one.question.key in log
        ]
        summary = summarise(
            spec, prepared.tasks, scored, model=run.model, partial=len(scored) < len(prepared.asked)
        )
        text = None if corpus is None else _described(corpus, run)
        return Evaluated(model, summary, {"tasks": prepared.facts, "text": text})

    try:
        ask(model, prepared.asked, log, likelihood=spec.mode == "likelihood", batch_size=spec.batch_size)
    except KeyboardInterrupt as error:
        raise Interrupted("the evaluation was interrupted", partial=log.summarised(evaluated)) from error
    return log.summarised(evaluated)


def measure_tasks(
    model: ModelLike, text: TextLike, spec: EvalSpec, *, log: SampleLog | None = None
) -> Measurement:
    """The scores of our own tasks as a measurement: by task and length, and by depth.

    Args:
        model: loaded and in eval mode, a name, or a pair of model and tokenizer.
        text: the background of made-up prompts: a corpus, a name, or a list of strings.
        spec: the settings, with `backend` "native".
        log: finished questions, read and appended to. None keeps them in memory.

    Raises:
        UsageError, MissingError: as `prepare`; a log of other questions.
        KeyboardInterrupt: Ctrl-C; the log keeps the finished questions.
    """
    from lengthwise.evaluation.asking import ask
    from lengthwise.evaluation.compared_scores import evaluation_of
    from lengthwise.models import as_model
    from lengthwise.results import Results
    from lengthwise.samples import SampleLog

    loaded, log = as_model(model), SampleLog() if log is None else log
    loaded.check_ready(spec.longest_made)
    prepared = prepare(spec, loaded.tokenizer, as_corpus(text))
    ask(loaded, prepared.asked, log, likelihood=spec.mode == "likelihood", batch_size=spec.batch_size)
    results = Results(
        kind=spec.kind,
        model_name=loaded.name,
        config=spec.settings(),
        rows=[],
        provenance={"tasks": prepared.facts},
    )
    return evaluation_of(results, log, by_depth=True)


def _tokens(asked: Sequence[Asked]) -> int:
    """Tokens that the model reads at most: each context once, and what is written or ranked after it."""
    contexts: dict[str, int] = {}
    after = 0
    for one in asked:
        contexts[one.question.context] = max(contexts.get(one.question.context, 0), len(one.prompt.ids))
        after += sum(map(len, one.answers)) if one.answers else one.question.new_tokens
    return sum(contexts.values()) + after


def _described(corpus: Corpus, run: RunSpec) -> dict[str, Any]:
    return {
        "corpus": corpus.name,
        "split": run.split,
        "split_rule": corpus.split_rule,
        "corpus_fingerprint": corpus.fingerprint,
        "documents": len(corpus.documents),
        "left_out": dict(corpus.left_out),
    }
