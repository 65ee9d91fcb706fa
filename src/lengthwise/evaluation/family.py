"""What a family of tasks answers: its questions, how a reply is scored, where it ends, how scores are averaged.

A new family is its own file, which defines a `Family`, and one entry in `lengthwise.evaluation.tasks`.
Nothing here imports torch.
"""

from __future__ import annotations

import abc
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from lengthwise.evaluation.averages import mean_over
from lengthwise.evaluation.settings import EvaluationSettings
from lengthwise.measure.measurement import Record
from lengthwise.measure.statistics import Statistic

if TYPE_CHECKING:
    from lengthwise.text import Corpus

ANY_TASK = frozenset({"mode", "samples", "max_length"})
"""Settings that each of our own tasks takes."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """One prompt, its right answers, and its place in a table. JSON values only."""

    key: str
    """Unique in its run."""
    unit: str
    """What is independent of other units. The bootstrap resamples whole units."""
    context: str
    """Questions of equal `context` have prompts with a common beginning. They are read together."""
    prompt: str
    golds: list[str]
    candidates: list[str] = field(default_factory=list)
    """Answers to rank, the right one among them. Empty if there are none."""
    classes: list[str] = field(default_factory=list)
    """Names of all classes, for scorers that need them."""
    about: str = ""
    """The question itself, for scorers that look at it."""
    new_tokens: int = 32
    length: int | None = None
    """Tokens that the prompt was made for."""
    depth: float | None = None
    """Wanted position of the answer, in per cent of the context."""
    bucket: str | None = None
    reached: float | None = None
    """Position that the answer got, as a share of the context. Sentences are not split."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values; `Question(**plain)` is equal."""
        return asdict(self)


def questions_sha256(questions: Sequence[Question]) -> str:
    """Equal for equal questions in the same order."""
    digest = hashlib.sha256()
    for question in questions:
        digest.update(json.dumps(question.to_dict(), sort_keys=True).encode() + b"\n")
    return digest.hexdigest()


@dataclass(frozen=True)
class QuestionSet:
    """The questions of one task in one run."""

    questions: list[Question]
    chat: bool = False
    """Whether the prompts are wrapped in the tokenizer's chat template."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What the provenance records of them. JSON values only."""


@dataclass(frozen=True, kw_only=True)
class Task(abc.ABC):
    """One task. Its version goes up when the same settings would give other prompts or other scores."""

    name: str
    what: str
    """One line for `lengthwise ls tasks`."""
    version: int
    metric: str
    """Name of the score of its greedy replies."""
    takes: frozenset[str]
    """Fields of `EvaluationSettings` that change its questions or scores."""
    ranks: bool = False
    """Whether its questions have answers to rank by likelihood."""
    cut_to_limit: bool = False
    """Whether prompts over `max_length` are cut or refused. Made-up prompts have their length by construction."""
    is_over: Callable[[str], bool] | None = None
    """Whether the rest of a reply with this text can no longer change its score."""
    stop_text: str = ""
    """A reply also ends at the last token of this text, and has at least one token."""

    def check(self, spec: EvaluationSettings) -> None:  # noqa: B027
        """Raise UsageError if the task cannot run with `spec`."""

    @abc.abstractmethod
    def question_set(self, spec: EvaluationSettings, tokenizer: Any, corpus: Corpus | None) -> QuestionSet:
        """Make or read its questions. `corpus` is there if the task takes `text`.

        Raises:
            UsageError, MissingError: the data, or a length that does not hold the prompt.
        """

    @abc.abstractmethod
    def score(self, question: Question, reply: str) -> float:
        """The score of a greedy reply, in 0 .. 1."""


class Family:
    """Tasks that are one group in `lengthwise ls tasks`, and the averages over them."""

    name: str
    tasks: tuple[Task, ...]
    mean: str | None = None
    """Metric of the plain mean over the tasks, which `lengthwise compare` pairs; None if there is no such mean."""

    def statistics(self, tasks: Sequence[Task], records: Sequence[Record]) -> list[Statistic]:
        """Averages over `tasks`, which are those of the run. Here: the plain mean by length and by depth."""
        if self.mean is None or len(tasks) < 2:
            return []
        cells = {task.name: index for index, task in enumerate(tasks)}
        tree = [[index] for index in cells.values()]
        found: list[Statistic] = []
        for length in sorted({record["length"] or 0 for record in records}):
            at = [record for record in records if record["length"] == length]
            for depth in (None, *sorted({record["depth"] or 0 for record in at})):
                placed = [
                    (cells[record["task"]], record) for record in at if depth in (None, record["depth"])
                ]
                where = {"length": length, "depth": depth, "version": tasks[0].version}
                found.append(mean_over(self.name, self.mean, placed, tree, **where))
        return found

    def notes(self, tasks: Sequence[Task]) -> list[str]:
        """What a reader of the averages must know."""
        return []
