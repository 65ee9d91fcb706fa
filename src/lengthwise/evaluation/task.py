"""Tasks: questions with right answers, how a reply is scored, and how scores are averaged.

A new family is its own file, which defines a `Family`, and one entry in `lengthwise.evaluation.tasks`. The
`settings` here are the run's `Evaluation`. Nothing here imports torch.
"""

from __future__ import annotations

import abc
import json
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from lengthwise.errors import UsageError
from lengthwise.evaluation.haystack import build_haystack
from lengthwise.evaluation.prompts import answer_tokens, fit, refuse_over_limit
from lengthwise.evaluation.scores import RANKED, mean
from lengthwise.evaluation.scoring import babilong_match
from lengthwise.measure.measurement import Item, Record
from lengthwise.measure.statistics import Statistic

if TYPE_CHECKING:
    from lengthwise.text import Corpus

ANY_TASK = frozenset({"mode", "samples", "max_length"})
"""Settings that each of our own tasks takes."""
MADE_UP = ANY_TASK | {"lengths", "text", "split", "seed"}
"""Settings that each made-up task takes."""
SAMPLES = 10
"""Samples at each length and depth of a made-up task by default."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """One prompt, its right answers, and its place in the tables."""

    prompt: str
    """In a `Haystack` only its end, which follows the context."""
    golds: list[str]
    candidates: list[str] = field(default_factory=list)
    """Answers to rank, or the names of all classes for a scorer that needs them."""
    about: str = ""
    """The question itself, for scorers that look at it."""
    new_tokens: int = 32
    key: str = ""
    """Unique in its run."""
    unit: str = ""
    """What is independent of other units; the bootstrap resamples whole units. Default: the question itself."""
    context: str = ""
    """Questions of equal `context` have prompts with a common beginning. They are read together."""
    length: int | None = None
    """Tokens that the prompt was made for."""
    depth: float | None = None
    """Wanted position of the answer, in per cent of the context."""
    bucket: str | None = None
    fact: int | None = None
    """Index of the haystack's fact with the answer."""
    reached: float | None = None
    """Position that this fact got, as a share of the context. Sentences are not split."""
    ids: tuple[int, ...] = ()
    """Tokens of the prompt as the model reads it; `Evaluation` fills them in."""
    answers: tuple[tuple[int, ...], ...] = ()
    """Tokens of the candidates, if they are ranked."""


def only_label(question: Question, reply: str) -> float:
    """1 if the gold answer is the only one of the candidates in the reply, else 0, as BABILong scores."""
    return float(babilong_match(reply, question.golds[0], question.about, question.candidates))


@dataclass(frozen=True)
class Haystack:
    """One context of made-up questions: facts among sentences of a text."""

    head: str
    """The prompt up to the context."""
    background: Sequence[str]
    """Sentences, of which as many are used as fit."""
    facts: Sequence[tuple[str, float]]
    """Sentences with their depths in 0 .. 1, in ascending order."""
    questions: Sequence[Question]


@dataclass(frozen=True, kw_only=True)
class Task(abc.ABC):
    """One task. Its version goes up when the same settings would give other prompts or other scores."""

    name: str
    what: str
    """One line for `lengthwise ls tasks`."""
    version: int
    metric: str
    """Name of the score of its greedy replies."""
    score: Callable[[Question, str], float]
    """The score of a greedy reply, in 0 .. 1."""
    takes: frozenset[str]
    """Settings that change its questions or scores."""
    ranks: bool = False
    """Whether its questions have answers to rank by likelihood."""
    chat: bool = False
    """Whether its prompts are wrapped in the tokenizer's chat template."""
    is_over: Callable[[str], bool] | None = None
    """Whether the rest of a reply with this text can no longer change its score."""
    stop_text: str = ""
    """A reply also ends at the last token of this text, and has at least one token."""

    @abc.abstractmethod
    def check(self, settings: Any) -> None:
        """Raise UsageError if the task cannot run with these settings."""

    @abc.abstractmethod
    def questions(self, settings: Any, tokenizer: Any, corpus: Corpus | None) -> list[Question]:
        """Make or read the questions. `corpus` is there if the task takes `text`.

        Raises:
            UsageError, MissingError: the data, or a length that does not hold the prompt.
        """

    def items(self, settings: Any, tokenizer: Any, corpus: Corpus | None) -> list[Item]:
        """The questions with the tokens of their prompts, cut as the settings say.

        Raises:
            UsageError, MissingError: as `questions`; prompts over the limit without a truncation.
        """
        limit = settings.max_length if "truncation" in self.takes else None
        chat = self.chat and settings.chat == "auto" and bool(getattr(tokenizer, "chat_template", None))
        found: list[Item] = []
        contexts = set[str]()
        for question in self.questions(settings, tokenizer, corpus):
            ids, cut = fit(tokenizer, question.prompt, limit, settings.truncation, chat=chat)
            ranked = question.candidates if settings.mode == "likelihood" else []
            answers = tuple(answer_tokens(tokenizer, question.prompt, f" {answer}") for answer in ranked)
            facts = {
                "document": question.unit or question.key,
                "task": self.name,
                "version": self.version,
                **{name: getattr(question, name) for name in ("length", "depth", "bucket", "reached")},
                "question": _crc(asdict(question)),
                "prompt": _crc([ids, answers, question.golds]),
                "tokens": len(ids),
                "cut": cut,
                "chat": chat,
            }
            sizes = list(map(len, answers)) or [question.new_tokens]
            found.append(
                Item(
                    key=question.key,
                    facts=facts,
                    content=replace(question, ids=ids, answers=answers),
                    # A shared context is read once.
                    tokens=sum(sizes) + (0 if question.context in contexts else len(ids)),
                    longest=len(ids) + max(sizes) - 1,
                    stretch=0,
                )
            )
            contexts |= {question.context} - {""}
        over = [settings.max_length + item.facts["cut"] for item in found if item.facts["cut"]]
        if over and settings.truncation is None:
            raise refuse_over_limit(self.name, over, len(found), settings.max_length)
        return found

    def statistics(self, records: Sequence[Record]) -> list[Statistic]:
        """The scores by length, then by depth and by bucket."""
        metrics = RANKED if records and "probability" in records[0] else {self.metric: "score"}
        found: list[Statistic] = []
        for metric, name in metrics.items():
            for length in sorted({record["length"] for record in records}, key=lambda length: length or 0):
                at = [record for record in records if record["length"] == length]
                where: dict[str, Any] = {"length": length, "version": self.version}
                found.append(mean(self.name, metric, at, field=name, **where))
                if metric == "accuracy" and "chance" in at[0]:
                    found.append(mean(self.name, "chance", at, field="chance", **where))
                for part in ("depth", "bucket"):
                    for place in sorted({record[part] for record in at} - {None}):
                        some = [record for record in at if record[part] == place]
                        found.append(mean(self.name, metric, some, field=name, **where, **{part: place}))
        return found


@dataclass(frozen=True, kw_only=True)
class MadeUpTask(Task):
    """A task whose prompts are made for a wanted length, from any text."""

    haystacks: Callable[[Any, Corpus, int, int], Iterable[Haystack]]
    """The contexts of one sample: (settings, corpus, length in tokens, number of the sample)."""
    takes: frozenset[str] = MADE_UP | {"depths"}
    most_depths: int = 100

    def check(self, settings: Any) -> None:
        """Refuse lengths over `max_length`, and more depths than a context has facts for."""
        if settings.max_length is not None and max(settings.lengths) > settings.max_length:
            raise UsageError(
                f"{self.name} is made for {max(settings.lengths)} tokens, and max_length is {settings.max_length}",
                fix="shorter lengths; or data sets, which max_length is for, in a run of their own",
            )
        if len(settings.depths) > self.most_depths:
            raise UsageError(
                f"{self.name} with {len(settings.depths)} depths", expected=f"at most {self.most_depths}"
            )

    def questions(self, settings: Any, tokenizer: Any, corpus: Corpus | None) -> list[Question]:
        """The questions at all lengths, on `samples` samples."""
        assert corpus is not None
        characters = sum(len(document.text) for document in corpus.documents)
        if max(settings.lengths) > characters:
            raise UsageError(
                f"--length is {max(settings.lengths)} tokens, and the text {corpus.name} has {characters} characters",
                expected=f"at most {characters}",
                fix="use a shorter length, or more text",
            )
        return [
            question
            for length in sorted(settings.lengths)
            for sample in range(settings.samples or SAMPLES)
            for haystack in self.haystacks(settings, corpus, length, sample)
            for question in self._on(haystack, tokenizer, length, f"s{sample:03d}")
        ]

    def _on(self, haystack: Haystack, tokenizer: Any, length: int, unit: str) -> Iterable[Question]:
        """The haystack's questions with their prompts and places."""
        prompts, reached = build_haystack(
            tokenizer,
            head=haystack.head,
            tails=[question.prompt for question in haystack.questions],
            background=haystack.background,
            facts=haystack.facts,
            length=length,
        )
        context = ""
        for question, prompt in zip(haystack.questions, prompts, strict=True):
            depth = "" if question.depth is None else f"/d{question.depth:g}"
            key = f"{self.name}/L{length}{depth}/{unit}"
            context = context or key
            place = None if question.fact is None else reached[question.fact]
            yield replace(
                question, key=key, unit=unit, context=context, prompt=prompt, length=length, reached=place
            )


@dataclass(frozen=True)
class Family:
    """Tasks that are one group in `lengthwise ls tasks`, and the averages over them."""

    name: str
    tasks: tuple[Task, ...]
    mean: str | None = None
    """Metric of the plain mean over the tasks; None if there is no such mean."""

    def statistics(self, tasks: Sequence[Task], records: Sequence[Record]) -> list[Statistic]:
        """Averages over `tasks`, which are those of the run. Here: the plain mean by length and by depth."""
        if self.mean is None or len(tasks) < 2:
            return []
        cells = {task.name: index for index, task in enumerate(tasks)}
        tree = [[cell] for cell in cells.values()]
        found: list[Statistic] = []
        for length in sorted({record["length"] for record in records}):
            at = [record for record in records if record["length"] == length]
            for depth in (None, *sorted({record["depth"] for record in at})):
                some = [record for record in at if depth in (None, record["depth"])]
                placed = [cells[record["task"]] for record in some]
                where = {"length": length, "depth": depth, "version": tasks[0].version}
                found.append(mean(self.name, self.mean, some, cells=placed, tree=tree, **where))
        return found

    def notes(self, tasks: Sequence[Task]) -> list[str]:
        """What a reader of the averages must know."""
        return []


def _crc(value: Any) -> int:
    return zlib.crc32(json.dumps(value, sort_keys=True).encode())
