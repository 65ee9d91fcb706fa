"""Tasks: questions with right answers, how a reply is scored, and how scores are averaged.

A new family is its own file, which defines a `Family`, and one entry in `lengthwise.evaluation.tasks`. The
`settings` here are the run's `Evaluation`. Nothing here imports torch.

Scores become numbers from the log's records alone. A record has the question's `document` (the unit of the
bootstrap), `task`, `version`, `length`, `depth`, `bucket`, `cut` (tokens) and `score`; with likelihoods also
`probability`, `gold_loss` and `chance`.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from typing import Any, SupportsFloat

from lengthwise.errors import UsageError, require, require_integer, shown
from lengthwise.evaluation.effective_length import effective_length
from lengthwise.evaluation.prompts import answer_tokens, fit
from lengthwise.measure.measurement import Item, Record, grouped
from lengthwise.measure.statistics import Statistic, estimate, mean_of_ratios
from lengthwise.results import Row
from lengthwise.text.corpus import Corpus
from lengthwise.text.tokens import known_ids


class DoesNotFit(UsageError):
    """Prompts that a limit does not hold: the tokens of the longest, by task; `fix` has a place for the most."""

    def __init__(self, limit: int, tokens: Mapping[str, int], fix: str) -> None:
        self.limit, self.tokens, self.how = limit, tokens, fix
        longest = ", ".join(f"{most} in {task}" for task, most in tokens.items())
        super().__init__(
            f"{limit} tokens do not hold the longest prompts ({longest})",
            fix=fix.format(max(tokens.values())),
        )


ANY_TASK = frozenset({"mode", "samples", "max_length"})
"""Settings that each of our own tasks takes."""

_RANKED = {"accuracy": "score", "gold_probability": "probability", "gold_loss": "gold_loss"}
"""The metrics of ranked answers, each with its field in a record."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """One prompt, its right answers, and its place in the tables."""

    prompt: str
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
    """Tokens of the prompt as the model reads it; `Task.items` fills them in."""
    answers: tuple[tuple[int, ...], ...] = ()
    """Tokens of the candidates, if they are ranked."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """One task. Its version goes up when the same settings would give other prompts or other scores."""

    name: str
    what: str
    """One line for `lengthwise ls tasks`."""
    version: int
    metric: str
    """Name of the score of its greedy replies."""
    questions: Callable[[Any, Any, Any], list[Question]]
    """Makes or reads the questions: (settings, tokenizer, corpus), the corpus if the task takes `text`.

    Raises UsageError or MissingError: the data, or a length that does not hold the prompt.
    """
    score: Callable[[Question, str], float]
    """The score of a greedy reply, in 0 .. 1."""
    takes: frozenset[str]
    """Settings that change its questions or scores."""
    most_depths: int = 100
    ranks: bool = False
    """Whether its questions have answers to rank by likelihood."""
    chat: bool = False
    """Whether its prompts are wrapped in the tokenizer's chat template."""
    is_over: Callable[[str], bool] | None = None
    """Whether the rest of a reply with this text can no longer change its score."""
    stop_text: str = ""
    """A reply also ends at the last token of this text, and has at least one token."""

    def items(self, settings: Any, tokenizer: Any, corpus: Corpus | None) -> list[Item]:
        """The questions with the tokens of their prompts, cut as the settings say.

        DoesNotFit for prompts over the limit that the settings do not cut.
        """
        limit = settings.max_length if "truncation" in self.takes else None
        chat = self.chat and settings.chat == "auto" and bool(getattr(tokenizer, "chat_template", None))
        found: list[Item] = []
        contexts = set[str]()
        for question in self.questions(settings, tokenizer, corpus):
            ids, cut = fit(tokenizer, question.prompt, limit, settings.truncation, chat=chat)
            ranked = question.candidates if settings.mode == "likelihood" else []
            answers = tuple(answer_tokens(tokenizer, question.prompt, f" {answer}") for answer in ranked)
            known_ids(tokenizer, [*ids, *chain.from_iterable(answers)])
            if settings.mode == "likelihood":
                right = {*question.golds[:1]} & {*question.candidates}
                require(
                    bool(right), f"the answers of {question.key} lack the right one", "candidates with it"
                )
            require_integer(f"new_tokens of {question.key}", question.new_tokens, low=1)
            if () in answers or len(set(answers)) < len(answers):
                raise UsageError(
                    f"the tokenizer makes no tokens, or the same ones, of some of the answers {', '.join(ranked)}",
                    expected="answers that the model can tell apart",
                    fix="--mode greedy, or the tokenizer of the model",
                )
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
            fix = "--truncation middle as LongBench does, or --max-length {}"
            raise DoesNotFit(settings.max_length, {self.name: max(over)}, fix)
        return found

    def scored(self, question: Question, reply: str) -> float:
        """The score of a reply as a float; UsageError for one that is no share."""
        score: Any = self.score(question, reply)
        share = isinstance(score, SupportsFloat) and 0 <= float(score) <= 1
        require(
            share, f"{self.name} scores a reply to {question.key} with {shown(score)}", "a share from 0 to 1"
        )
        return float(score)

    def statistics(self, records: Sequence[Record]) -> list[Statistic]:
        """The scores by length, then by depth and by bucket; the effective length."""
        metrics = _RANKED if records and "probability" in records[0] else {self.metric: "score"}
        found: list[Statistic] = []
        for metric, name in metrics.items():
            for length, at in grouped(records, "length"):
                where: dict[str, Any] = {"length": length, "version": self.version}
                found.append(mean(self.name, metric, at, field=name, **where))
                if metric == "accuracy" and "chance" in at[0]:
                    found.append(mean(self.name, "chance", at, field="chance", **where))
                for part in ("depth", "bucket"):
                    found += [
                        mean(self.name, metric, some, field=name, **where, **{part: place})
                        for place, some in grouped(at, part)
                        if place is not None
                    ]
        records = [record for record in records if record["length"] is not None]
        lengths = sorted({record["length"] for record in records})
        if len(lengths) > 1:
            row = Row(model="", task=self.name, metric="effective_length", value=None, version=self.version)
            found.append(effective_length(row, records, lengths))
        return found


@dataclass(frozen=True)
class Family:
    """Tasks that are one group in `lengthwise ls tasks`, and the averages over them."""

    name: str
    tasks: tuple[Task, ...]
    mean: str | None = None
    """Metric of the plain mean over the tasks; None if there is no such mean."""
    note: str = ""
    """What a reader of the averages must know."""

    def statistics(self, records: Mapping[str, Sequence[Record]]) -> list[Statistic]:
        """Averages over the run's tasks, by name with their records: the plain mean by length and by depth."""
        if self.mean is None or len(records) < 2:
            return []
        found: list[Statistic] = []
        for length, at in grouped([*chain(*records.values())], "length"):
            depths = (each for each in grouped(at, "depth") if each[0] is not None)
            for depth, some in ((None, at), *depths):
                branches = [[record for record in some if record["task"] == name] for name in records]
                where = {"length": length, "depth": depth, "version": some[0]["version"]}
                found.append(mean(self.name, self.mean, branches, **where))
        return found


def mean(task: str, metric: str, branches: Sequence[Any], *, field: str = "score", **where: Any) -> Statistic:
    """The mean of one field of records; of lists of records, at any depth, the mean of their means.

    A list without records is left out. `where`: other fields of the row.
    """
    leaves: list[Sequence[Record]] = []

    def cells(branch: Sequence[Any]) -> list[Any]:
        """The branch with the number of its cell for each list of records."""
        if branch and not isinstance(branch[0], dict):
            return [cells(part) for part in branch]
        leaves.append(branch)
        return [len(leaves) - 1]

    tree = cells(branches)
    totals = []
    for cell, records in enumerate(leaves):
        for record in records:
            sums = [0.0] * (2 * len(leaves))
            sums[2 * cell : 2 * cell + 2] = record[field], 1.0
            totals.append((record["document"], sums))
    row = Row(
        model="",
        task=task,
        metric=metric,
        value=None,
        unit="nats" if metric == "gold_loss" else "share",
        n=len(totals),
        truncated=sum(record["cut"] > 0 for records in leaves for record in records),
        **where,
    )
    return Statistic.of(row, totals, estimator=mean_of_ratios(tree))


def estimated(statistic: Statistic) -> Row:
    """The row with its interval; if all units score 0, or all 1, with the exact one of a binomial share.

    The bootstrap would give an interval of no width there, as if no other score were possible. If all units
    agree on a score between 0 and 1, or on one that is no share, there is no spread to estimate an interval from,
    and none is given. Chance is known and has none.
    """
    if not statistic.documents:
        return statistic.row
    row = estimate(statistic)
    if row.metric == "chance":
        return replace(row, documents=None, stderr=None, ci_low=None, ci_high=None, truncated=0)
    if row.documents is None or row.stderr != 0:
        return row
    if row.unit != "share" or row.value not in (0.0, 1.0):
        return replace(row, ci_low=None, ci_high=None, stderr=None)
    far = 0.025 ** (1 / row.documents)
    return replace(row, ci_low=far) if row.value else replace(row, ci_high=1 - far)


def _crc(value: Any) -> int:
    return zlib.crc32(json.dumps(value, sort_keys=True).encode())
