"""From an evaluation's settings to prompts in tokens: made or read, kept, cut, and counted.

Made-up questions are kept in the cache under a hash of all that decides them (task, version, tokenizer, text,
length, depths, samples, seed), with a hash of what is in the file; a damaged file is made again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lengthwise.cache import cache_dir
from lengthwise.errors import LengthwiseError, UsageError
from lengthwise.evaluation.babilong import babilong
from lengthwise.evaluation.job import SAMPLES, EvalJob
from lengthwise.evaluation.longbench_e import DATA_SETS, longbench_e, read_rows
from lengthwise.evaluation.longbench_templates import templates
from lengthwise.evaluation.needle import needle_multi_key, needle_multi_value, needle_single
from lengthwise.evaluation.prompts import OverLimit, Prompt, answer_tokens, fit, refuse_over_limit, takes_chat
from lengthwise.evaluation.questions import Question
from lengthwise.evaluation.tasks import TASKS, Task, resolve_tasks
from lengthwise.files import atomic_write_bytes
from lengthwise.text import load_corpus, tokenizer_fingerprint

if TYPE_CHECKING:
    from lengthwise.text import Corpus

logger = logging.getLogger(__name__)

_NEEDLES = {
    "needle_single": needle_single,
    "needle_multi_key": needle_multi_key,
    "needle_multi_value": needle_multi_value,
}


@dataclass(frozen=True)
class Asked:
    """A question as the model gets it."""

    task: Task
    question: Question
    prompt: Prompt
    answers: tuple[tuple[int, ...], ...] = ()
    """Tokens of the candidates, in the mode that ranks them."""

    @property
    def crc(self) -> int:
        """Tells whether a logged sample is of this prompt."""
        plain = json.dumps([self.prompt.ids, self.answers, self.question.golds])
        return zlib.crc32(plain.encode())


@dataclass(frozen=True)
class Prepared:
    """All questions of an evaluation."""

    asked: list[Asked]
    hashes: dict[str, str]
    """Of the questions of each task."""
    template_source: str | None = None
    chat: bool = False
    """Whether any prompt is wrapped in the chat template."""

    def of(self, task: Task) -> list[Asked]:
        """Those of one task."""
        return [one for one in self.asked if one.task is task]

    @property
    def tasks(self) -> list[Task]:
        """The tasks, in the table's order."""
        return list(dict.fromkeys(one.task for one in self.asked))

    def describe(self) -> dict[str, Any]:
        """What a result records about its tasks; JSON values only."""
        return {
            task.name: {
                "version": task.version,
                "metric": task.metric,
                "questions": len(self.of(task)),
                "questions_sha256": self.hashes[task.name],
                **(
                    {"templates": self.template_source, "chat": self.chat}
                    if task.kind == "longbench_e"
                    else {}
                ),
            }
            for task in self.tasks
        }


def prepare(job: EvalJob, tokenizer: Any, corpus: Corpus | None) -> Prepared:
    """Questions and prompts of all tasks of `job`; `corpus` is the background of those that are made up.

    Raises:
        UsageError, MissingError: the data, or prompts over the limit without a truncation.
    """
    tasks = [TASKS[name] for name in resolve_tasks(job.tasks)]
    sets = tuple(task.part for task in tasks if task.kind == "longbench_e")
    prompts, source = templates(job.templates, sets) if sets else ({}, None)
    asked: list[Asked] = []
    hashes: dict[str, str] = {}
    wrapped = False
    for task in tasks:
        chat = False
        if task.kind == "longbench_e":
            questions = longbench_e(
                task.part,
                rows=read_rows(task.part, job.data),
                template=prompts[task.part],
                samples=job.samples,
            )
            chat = job.chat == "auto" and DATA_SETS[task.part].chat and takes_chat(tokenizer)
            wrapped = wrapped or chat
        else:
            assert corpus is not None
            questions = [
                question
                for length in sorted(job.lengths)
                for question in _made(job, task, tokenizer, corpus, length)
            ]
        hashes[task.name] = _sha256(questions)
        asked += _fitted(job, task, tokenizer, questions, chat=chat)
    return Prepared(asked, hashes, source, wrapped)


def _fitted(
    job: EvalJob, task: Task, tokenizer: Any, questions: Sequence[Question], *, chat: bool
) -> list[Asked]:
    # Made-up prompts have their length by construction.
    limit = job.max_length if task.kind == "longbench_e" else None
    found: list[Asked] = []
    over: list[int] = []
    for question in questions:
        try:
            prompt = fit(tokenizer, question.prompt, limit, job.truncation, chat=chat)
        except OverLimit as error:
            over.append(error.tokens)
            continue
        answers = ()
        if job.mode == "likelihood":
            answers = tuple(
                answer_tokens(tokenizer, question.prompt, f" {candidate}")
                for candidate in question.candidates
            )
        found.append(Asked(task, question, prompt, answers))
    if over:
        assert limit is not None
        raise refuse_over_limit(task.name, over, len(questions), limit)
    return found


def _made(job: EvalJob, task: Task, tokenizer: Any, corpus: Corpus, length: int) -> list[Question]:
    """The questions of a made-up task at one length, from the cache if it has them."""
    common: dict[str, Any] = {
        "length": length,
        "depths": sorted(job.depths) if task.by_depth else [],
        "samples": job.samples or SAMPLES,
        "seed": job.seed,
    }
    identity = common | {
        "task": task.name,
        "version": task.version,
        "tokenizer": tokenizer_fingerprint(tokenizer),
        "text": corpus.fingerprint,
        "stories": job.stories if task.kind == "babilong" else None,
    }

    def make() -> list[Question]:
        if task.kind == "needle":
            return _NEEDLES[task.name](tokenizer, corpus, **common)
        return babilong(int(task.part), tokenizer, corpus, stories=job.stories, **common)

    # The user's own files can change under their name.
    return make() if identity["stories"] is not None else _cached(identity, make)


def _cached(identity: dict[str, Any], make: Callable[[], list[Question]]) -> list[Question]:
    key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:32]
    path = cache_dir() / "questions" / f"{key}.jsonl"
    if path.exists():
        try:
            header, *lines = path.read_text(encoding="utf-8").split("\n")
            questions = [Question(**json.loads(line)) for line in lines if line]
            if json.loads(header)["sha256"] == _sha256(questions):
                return questions
        except (ValueError, TypeError, KeyError):
            pass
        logger.warning("the kept questions in %s are damaged; they are made again", path)
    questions = make()
    header = json.dumps({**identity, "sha256": _sha256(questions)})
    body = "".join(json.dumps(question.to_dict()) + "\n" for question in questions)
    try:
        atomic_write_bytes(path, f"{header}\n{body}".encode())
    except LengthwiseError as error:
        logger.warning("the questions are not kept: %s", error.problem)
    return questions


def _sha256(questions: Sequence[Question]) -> str:
    digest = hashlib.sha256()
    for question in questions:
        digest.update(json.dumps(question.to_dict(), sort_keys=True).encode() + b"\n")
    return digest.hexdigest()


def check_logged(record: dict[str, Any], asked: Asked) -> None:
    """Raise UsageError unless the logged sample is of this prompt."""
    if record.get("crc") != asked.crc:
        raise UsageError(
            f"the sample log holds {asked.question.key} of another prompt (text, data or tokenizer have changed)",
            fix="continue with what it was begun with, or --overwrite to start again",
        )


def corpus_of(job: EvalJob) -> Corpus | None:
    """The background, if a task needs one."""
    made = any(TASKS[name].kind != "longbench_e" for name in resolve_tasks(job.tasks))
    return load_corpus(job.text, split=job.split) if made else None
