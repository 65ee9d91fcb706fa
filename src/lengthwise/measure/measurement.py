"""What a measurement is: its settings, what it reads, how that is scored, and which numbers follow.

    class Perplexity(WindowMeasurement):
        lengths: tuple[int, ...] = (256, 512, 1024)
        def items(self, model, text, other): ...        # what to read
        def score(self, model, items, other): ...       # the only part that runs a model
        def statistics(self, records): ...              # sums and counts by document

`lengthwise.measure.runner` owns what all measurements share: loading, batches, the log, resuming, writing.
"""

from __future__ import annotations

import abc
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice, pairwise
from typing import Any, ClassVar, Literal, Self, TypeVar

from lengthwise.errors import UsageError
from lengthwise.measure.statistics import Estimator, Statistic, estimate, ratio
from lengthwise.results import Results, Row
from lengthwise.settings import Count, Seed, Settings
from lengthwise.subjects.reading import Predictor, Read, Reader, Reading
from lengthwise.text.tokens import other_beginning, resolve_bos
from lengthwise.text.windows import Window, sample_windows

T = TypeVar("T")
Record = dict[str, Any]
"""What scoring an item gave: plain values, one line of the log."""


FEW = "The text holds"
"""How a note begins that says that a text has fewer stretches than wanted."""
LENGTHS = (256, 512, 1024)
"""Context lengths where the user names none."""
Reads = Literal["tokens", "characters", "either", "questions"]
"""What `items` takes: tokens; for characters the corpus and its tokens; either of both; for questions a corpus."""


@dataclass(frozen=True, kw_only=True)
class About:
    """What a measurement is called, how its rows are shown, and what the runner has to know of it."""

    kind: str = ""
    """The verb, and the measurement's name in the table."""
    task: str = ""
    """The task of its rows, where it has one."""
    title: str = ""
    """The heading of its rows."""
    metrics: Mapping[str, str] = field(default_factory=dict)
    """The metrics in the order to show them, each with what it is."""
    levels: tuple[str, ...] = ()
    """Metrics that are set, or that another number is made of: they have no paired difference."""
    fail_above: str | None = None
    """The metric that --fail-above checks."""
    examples: tuple[str, ...] = ()
    """Command lines for the end of the help."""
    reads: Reads = "tokens"
    units: str = "documents"
    """What the bootstrap resamples."""
    second: str | None = None
    """The field that says what the second model is: its name (None is the measured model), or a whole side."""
    folders: tuple[str, ...] = ()
    """Folders that it writes in its run folder: --overwrite replaces them too."""
    no_facts: tuple[str, ...] = ()
    """Fields that do not decide the numbers, besides `batch_size`; or only through the BOS id."""

    one_by_one: bool = False
    """Whether items are read one by one; `batch_size` then counts the short contexts within."""
    caches: int = 0
    """How often the keys and values of an input are in memory; a copy continues it."""


@dataclass(frozen=True, kw_only=True)
class Item:
    """One thing to read and score."""

    key: str
    """Unique in its run: the name of its record in the log."""
    facts: Mapping[str, Any]
    """Which text it is (`document`, `start`, `crc`) and its place in the tables; part of its record."""
    content: Any
    """What `score` reads, mostly a `Window`."""
    tokens: int
    """Tokens that the models read for it."""
    longest: int
    """Tokens in its longest input. Neighbouring items of equal `longest` are read in one batch."""
    stretch: int
    """Tokens of text that it is made from: shorter documents are left out."""
    words: str = ""
    """What it is, for errors about what the model makes of it. Default: its key."""


class Measurement(Settings):
    """Settings of one measurement, and the four methods that make it. The docstring is the help of its verb."""

    about: ClassVar[About]

    batch_size: Count = 1
    """Windows at a time. More needs more memory; the numbers stay the same."""

    @property
    def reads(self) -> Reads | None:
        """What `items` takes; None if no text at all."""
        return self.about.reads

    @property
    def writes(self) -> bool:
        """Whether the model writes replies, whose tokens are decoded from a cache."""
        return False

    def resolved(self, model: Reader, other: Reader) -> Self:
        """The settings, with defaults that depend on the models filled in; UsageError if none fit."""
        return self

    def facts(self, model: Reader, other: Reader) -> dict[str, Any]:
        """What decides the numbers besides weights and text: settings, and what the models say."""
        return {
            name: value for name, value in self if name not in ("batch_size", "bos", *self.about.no_facts)
        }

    def check_models(self, model: Predictor, other: Predictor, items: Sequence[Item]) -> None:
        """Raise UsageError for models that cannot be measured; in a dry run they have no weights."""

    @abc.abstractmethod
    def batches(self, items: Sequence[Item]) -> list[list[Item]]:
        """The items that are read together, in order."""

    def describe(self, items: Sequence[Item], records: Mapping[str, Record]) -> dict[str, Any]:
        """What the provenance records besides model, text and settings; UsageError for records without a number."""
        return {}

    @abc.abstractmethod
    def plan(self, items: Sequence[Item]) -> dict[str, Any]:
        """What a dry run shows of the items; `tokens_to_run` among it."""

    @abc.abstractmethod
    def items(self, model: Reader, text: Any, other: Reader) -> list[Item]:
        """What is to be read, in order.

        Args:
            model: the measured model, or what is known of it before it is loaded.
            text: TokenDocuments, (Corpus, TokenDocuments), or a Corpus or None (see `Reads`).
            other: the second model of a measurement that has one; else `model`.
        """

    @abc.abstractmethod
    def score(self, model: Predictor, items: Sequence[Item], other: Predictor) -> Iterable[Record]:
        """The record of each item of a batch, in order, without its facts."""

    @abc.abstractmethod
    def statistics(self, records: Sequence[Record]) -> list[Statistic]:
        """Every number, as totals by document, from the records (facts included) alone."""

    def rows(self, statistics: Sequence[Statistic], records: Sequence[Record]) -> list[Row]:
        """The numbers with their intervals."""
        return [estimate(statistic) for statistic in statistics]

    def notes(self, model: Reader, other: Reader, items: Sequence[Item], results: Results) -> list[str]:
        """What a reader of the numbers must know. `results` has everything but notes."""
        return []


class WindowMeasurement(Measurement):
    """A measurement that reads views of windows of a text."""

    windows: Count = 32
    """Windows of text."""
    seed: Seed = 0
    """Seed of the choice of windows."""
    bos: Literal["auto", "always", "never"] = "auto"
    """Begin each view with BOS; auto does as the tokenizer does."""

    @property
    def at_once(self) -> int:
        """Items in a batch."""
        return 1 if self.about.one_by_one else self.batch_size

    def batches(self, items: Sequence[Item]) -> list[list[Item]]:
        """Neighbours of equal `longest`, up to `at_once`."""
        groups = groupby(items, key=lambda item: item.longest)
        return [batch for _, some in groups for batch in in_groups(some, self.at_once)]

    def bos_id(self, model: Reader) -> int | None:
        """The id that replaces the first token of each view; None without BOS."""
        return resolve_bos(model.tokenizer, self.bos)

    def facts(self, model: Reader, other: Reader) -> dict[str, Any]:
        """The settings and the BOS id."""
        return super().facts(model, other) | {"bos_id": self.bos_id(model)}

    def sampled(self, text: Any, tokens: int) -> list[Window]:
        """As many windows of `tokens` tokens as are wanted, or as the text holds."""
        return sample_windows(text, tokens, count=self.windows, seed=self.seed, allow_fewer=True)

    def by_size(self, windows: Sequence[Window], sizes: Iterable[int]) -> Iterator[tuple[int, int, Window]]:
        """(size, index, window): each batch of windows at all sizes, ascending, before the next batch."""
        for group in in_groups(enumerate(windows), self.at_once):
            for size in sorted(set(sizes)):
                yield from ((size, index, window) for index, window in group)

    def item(
        self, key: str, window: Window, longest: int, *, tokens: int, content: Any = None, **facts: Any
    ) -> Item:
        """The item of a window; see `Item`. `facts` are those besides the window's place."""
        crc = zlib.crc32(window.ids.tobytes())
        return Item(
            key=f"{self.about.task}/{key}",
            facts={"document": window.document_id, "start": window.start, "crc": crc} | facts,
            content=window if content is None else content,
            tokens=tokens,
            longest=longest,
            stretch=len(window.ids),
            words=f"tokens {window.start} to {window.start + len(window.ids) - 1} of {window.document_id!r}",
        )

    def read(self, model: Predictor, items: Sequence[Item], readings: Sequence[Reading]) -> list[Read]:
        """`model.read` of readings of the items, equally many of each."""
        from lengthwise.subjects import naming_bad_logits

        each = len(readings) // len(items)
        with naming_bad_logits(model, lambda index: items[index // each].words):
            return model.read(readings)

    def statistic(
        self,
        records: Iterable[Record],
        totals: Callable[[Record], Sequence[float]],
        estimator: Estimator = ratio,
        **row: Any,
    ) -> Statistic:
        """One number of `statistics`: `totals` of each record, added up by document. `row`: fields of its `Row`."""
        sums = [(record["document"], totals(record)) for record in records]
        return Statistic.of(Row(model="", task=self.about.task, value=None, **row), sums, estimator=estimator)

    def curve(
        self, records: Sequence[Record], name: str, edges: Sequence[int], **row: Any
    ) -> list[Statistic]:
        """A number by position: `record[name]` has the sum of each bin between two of the edges."""
        found = []
        for index, (begin, end) in enumerate(pairwise(edges)):
            totals = [{"document": r["document"], "sums": [r[name][index], end - begin]} for r in records]
            where = {"position": begin, "position_end": end, "n": len(records) * (end - begin)}
            found.append(self.statistic(totals, lambda each: each["sums"], **where, **row))
        return found

    def plan(self, items: Sequence[Item]) -> dict[str, Any]:
        """How many stretches of each size the text holds, and the tokens to read."""
        samples = {
            f"windows of {tokens} tokens": f"{available} of {self.windows}"
            for tokens, available in self._available(items)
        }
        return {"samples": samples, "tokens_to_run": sum(item.tokens for item in items)}

    def notes(self, model: Reader, other: Reader, items: Sequence[Item], results: Results) -> list[str]:
        """How views begin, and whether the text has fewer stretches than wanted."""
        few = FEW + " {} windows of {} tokens without overlap, fewer than the {} wanted."
        return [
            self.bos_note(model),
            *(
                few.format(available, tokens, self.windows)
                for tokens, available in self._available(items)
                if available < self.windows
            ),
        ]

    def bos_note(self, model: Reader) -> str:
        """How views begin."""
        if (bos_id := self.bos_id(model)) is None:
            other = other_beginning(model.tokenizer)
            return f"No BOS: every view begins with a token of the text{f'; {other}' if other else ''}."
        return f"BOS: the first token of every view is replaced by token {bos_id}."

    def _available(self, items: Sequence[Item]) -> list[tuple[int, int]]:
        """(tokens of a stretch of text, how many of these), ascending."""
        places = {(item.stretch, item.facts["document"], item.facts["start"]) for item in items}
        return sorted(Counter(tokens for tokens, *_ in places).items())


def remarks_of(model: Mapping[str, Any]) -> list[str]:
    """What must be said of a model, from what `describe` says of it."""
    return [f"{model['name']}: {each}" for each in model.get("remarks", ())]


def grouped(records: Sequence[Record], fact: str) -> list[tuple[Any, list[Record]]]:
    """(value, its records) of each value of a fact, ascending; None comes first."""
    values = sorted({record[fact] for record in records}, key=lambda value: (value is not None, value))
    return [(value, [record for record in records if record[fact] == value]) for value in values]


def check_passage(*, passage: int, scored: int) -> None:
    """Raise UsageError if the scored end of a repeated passage leaves no cue for the copy."""
    if scored >= passage:
        raise UsageError(
            f"scored is {scored} of a passage of {passage} tokens",
            expected=f"at most {passage - 1}: the tokens before are the cue for the copy",
        )


def in_groups(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Consecutive groups of at most `size` items."""
    iterator = iter(items)
    while group := list(islice(iterator, size)):
        yield group
