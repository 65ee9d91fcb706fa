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
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar

from lengthwise.errors import UsageError
from lengthwise.measure.statistics import Estimator, Statistic, estimate, ratio
from lengthwise.results import Results, Row
from lengthwise.settings import Count, Seed, Settings, Subject
from lengthwise.text.tokens import Window, resolve_bos, sample_windows

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from lengthwise.subjects import Predictor, Reader

T = TypeVar("T")
Record = dict[str, Any]
"""What scoring an item gave: plain values, one line of the log."""


FEW = "The text holds"
"""How a note begins that says that a text has fewer stretches than wanted."""


@dataclass(frozen=True, kw_only=True)
class Display:
    """How tables and pages present the rows of one task."""

    title: str
    metrics: Mapping[str, str] = field(default_factory=dict)
    """The metrics in the order to show them, each with what it is."""


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


class Measurement(Settings):
    """Settings of one measurement, and the four methods that make it. The docstring is the help of its verb."""

    kind: ClassVar[str]
    """The verb, and the measurement's name in the table."""
    task: ClassVar[str] = ""
    """The task of its rows, where it has one."""
    display: ClassVar[Display]
    """How its rows are shown."""
    examples: ClassVar[tuple[str, ...]] = ()
    """Command lines for the end of the help."""
    fail_above: ClassVar[str | None] = None
    """The metric that --fail-above checks."""
    reads: ClassVar[Literal["tokens", "characters", "questions"]] = "tokens"
    """What `items` takes: tokens; for characters the corpus and its tokens; for questions a corpus, or None."""
    takes_tokens: ClassVar[bool] = False
    """Whether tokens alone are enough where it reads characters: it then does not look at the raw text."""
    other: ClassVar[str | None] = None
    """The field that names a second model: an evaluator, a selector. None in it is the measured model."""
    one_by_one: ClassVar[bool] = False
    """Whether items are read one by one; `batch_size` then counts the short contexts within."""
    units: ClassVar[str] = "documents"
    """What the bootstrap resamples."""
    beside_the_numbers: ClassVar[tuple[str, ...]] = ("batch_size",)
    """Fields that do not decide the numbers, or only through the BOS id."""
    levels: ClassVar[tuple[str, ...]] = ()
    """Metrics that are set, or that another number is made of: they have no paired difference."""
    caches: ClassVar[int] = 0
    """How often the keys and values of an input are in memory; a copy continues it."""
    along_paths: ClassVar[bool] = False
    """Whether it reads along the path of the subject: `read`, `kv_cache`, `cache`, `attn`."""

    seed: Seed = 0
    """Seed of the choice of windows."""
    batch_size: Count = 1
    """Windows at a time. More needs more memory; the numbers stay the same."""

    @property
    def at_once(self) -> int:
        """Items in a batch."""
        return 1 if self.one_by_one else self.batch_size

    @property
    def needs_text(self) -> bool:
        """Whether it reads a text at all."""
        return True

    def resolved(self, model: Reader, other: Reader) -> Self:
        """The settings, with defaults that depend on the models filled in; UsageError if none fit."""
        return self

    @property
    def second(self) -> str | None:
        """The name of a second model, if the settings give one."""
        return None if self.other is None else getattr(self, self.other)

    def check_subject(self, run: Subject) -> Subject:
        """The settings that the measured model is loaded with; UsageError if it cannot be measured."""
        return run

    def second_subject(self, run: Subject) -> Subject | None:
        """How the second model is loaded, beside the first as `run` says; None where the settings name no other."""
        if self.second is None or (self.second == run.model and run.adapter is None):
            return None
        return run.beside(self.second)

    def open_other(self, model: Predictor, run: Subject | None) -> Predictor:
        """The second model, loaded as the first one is (`run`); the first where the settings name none."""
        from lengthwise.subjects import open_model

        if run is None:
            return model if self.second is None else open_model(Subject(model=self.second))
        subject = self.second_subject(run)
        return model if subject is None else open_model(subject)

    def name_of(self, run: Subject) -> str:
        """What results call the measured model."""
        return run.model

    def facts(self, model: Reader, other: Reader) -> dict[str, Any]:
        """What decides the numbers besides weights and text: settings, and what the models say."""
        return {name: value for name, value in self if name not in self.beside_the_numbers}

    def check_models(self, model: Predictor, other: Predictor, items: Sequence[Item]) -> None:
        """Raise UsageError for loaded models that cannot be measured."""

    def batches(self, items: Sequence[Item]) -> list[list[Item]]:
        """The items that are read together: neighbours of equal `longest`, up to `at_once`."""
        return [
            batch
            for _, some in groupby(items, key=lambda item: item.longest)
            for batch in in_groups(some, self.at_once)
        ]

    def words(self, item: Item) -> str:
        """The item in words, for errors about what the model makes of it."""
        return item.key

    def finish(
        self, model: Predictor, items: Sequence[Item], records: Mapping[str, Record]
    ) -> dict[str, Record]:
        """Further records, by key, that are made from those of all items; UsageError if these give no numbers."""
        return {}

    def describe(self, items: Sequence[Item], records: Mapping[str, Record]) -> dict[str, Any]:
        """What the provenance records besides model, text and settings."""
        return {}

    @abc.abstractmethod
    def plan(self, items: Sequence[Item]) -> dict[str, Any]:
        """What a dry run shows of the items; `tokens_to_run` among it."""

    @abc.abstractmethod
    def items(self, model: Reader, text: Any, other: Reader) -> list[Item]:
        """What is to be read, in order.

        Args:
            model: the measured model, or what is known of it before it is loaded.
            text: TokenDocuments, (Corpus, TokenDocuments), or a Corpus or None (see `reads`).
            other: the second model of a measurement that has one; else `model`.
        """

    @abc.abstractmethod
    def score(self, model: Predictor, items: Sequence[Item], other: Predictor) -> Iterable[Record]:
        """The record of each item of a batch, in order, without its facts."""

    @abc.abstractmethod
    def statistics(self, records: Sequence[Record]) -> list[Statistic]:
        """Every number, as totals by document, from the records (facts included) alone."""

    def statistic(
        self,
        records: Iterable[Record],
        totals: Callable[[Record], Sequence[float]],
        estimator: Estimator = ratio,
        **row: Any,
    ) -> Statistic:
        """One number of `statistics`: `totals` of each record, added up by document. `row`: fields of its `Row`."""
        sums = [(record["document"], totals(record)) for record in records]
        return Statistic.of(Row(model="", task=self.task, value=None, **row), sums, estimator=estimator)

    def rows(self, statistics: Sequence[Statistic], records: Sequence[Record]) -> list[Row]:
        """The numbers with their intervals."""
        return [estimate(statistic) for statistic in statistics]

    def notes(self, model: Reader, other: Reader, items: Sequence[Item], results: Results) -> list[str]:
        """What a reader of the numbers must know. `results` has everything but notes."""
        return []


class WindowMeasurement(Measurement):
    """A measurement that reads views of windows of a text."""

    beside_the_numbers = ("bos", "batch_size")

    wanted: ClassVar[str] = "windows"
    """The field that says how many stretches of text are wanted, and what they are called."""

    bos: Literal["auto", "always", "never"] = "auto"
    """Begin each view with BOS; auto does as the tokenizer does."""

    def bos_id(self, model: Reader) -> int | None:
        """The id that replaces the first token of each view; None without BOS."""
        return resolve_bos(model.tokenizer, self.bos)

    def facts(self, model: Reader, other: Reader) -> dict[str, Any]:
        """The settings and the BOS id."""
        return super().facts(model, other) | {"bos_id": self.bos_id(model)}

    def sampled(self, text: Any, tokens: int) -> list[Window]:
        """As many windows of `tokens` tokens as are wanted, or as the text holds."""
        wanted = getattr(self, self.wanted)
        return sample_windows(text, tokens, count=wanted, seed=self.seed, allow_fewer=True)

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
            key=f"{self.task}/{key}",
            facts={"document": window.document_id, "start": window.start, "crc": crc} | facts,
            content=window if content is None else content,
            tokens=tokens,
            longest=longest,
            stretch=len(window.ids),
        )

    def words(self, item: Item) -> str:
        """The stretch of text."""
        start = item.facts["start"]
        end = item.facts.get("end", start + item.stretch)
        return f"{self.reads} {start} to {end - 1} of {item.facts['document']!r}"

    def losses(
        self,
        model: Predictor,
        items: Sequence[Item],
        views: Sequence[NDArray[Any]],
        labels: Sequence[NDArray[Any]],
    ) -> list[Tensor]:
        """`model.token_losses` of views of the items, equally many of each."""
        from lengthwise.subjects import naming_bad_logits

        each = len(views) // len(items)
        with naming_bad_logits(model, lambda view: self.words(items[view // each])):
            return model.token_losses(views, labels)

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
            f"{self.wanted} of {tokens} tokens": f"{available} of {getattr(self, self.wanted)}"
            for tokens, available in self._available(items)
        }
        return {"samples": samples, "tokens_to_run": sum(item.tokens for item in items)}

    def notes(self, model: Reader, other: Reader, items: Sequence[Item], results: Results) -> list[str]:
        """How views begin, and whether the text has fewer stretches than wanted."""
        wanted = getattr(self, self.wanted)
        few = FEW + " {} {} of {} tokens without overlap, fewer than the {} wanted."
        return [
            self.bos_note(model),
            *(
                few.format(available, self.wanted, tokens, wanted)
                for tokens, available in self._available(items)
                if available < wanted
            ),
        ]

    def bos_note(self, model: Reader) -> str:
        """How views begin."""
        if (bos_id := self.bos_id(model)) is None:
            return "No BOS: every view begins with a token of the text."
        return f"BOS: the first token of every view is replaced by token {bos_id}."

    def _available(self, items: Sequence[Item]) -> list[tuple[int, int]]:
        """(tokens of a stretch of text, how many of these), ascending."""
        places = {(item.stretch, item.facts["document"], item.facts["start"]) for item in items}
        return sorted(Counter(tokens for tokens, *_ in places).items())


def grouped(records: Sequence[Record], fact: str) -> list[tuple[Any, list[Record]]]:
    """(value, its records) of each value of a fact, ascending."""
    values = sorted({record[fact] for record in records})
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
