"""What a measurement is: its settings, what it reads, how that is scored, and which numbers follow.

    class Perplexity(Measurement):
        \"\"\"How well are the same tokens predicted at each length?\"\"\"
        lengths: tuple[int, ...] = (256, 512, 1024)
        def items(self, model, text, other): ...        # what to read
        def score(self, model, items, other): ...       # the only part that runs a model
        def statistics(self, records): ...              # sums and counts by document

`lengthwise.measure.runner` owns what all measurements share: loading, batches, the log, resuming, writing.
"""

from __future__ import annotations

import abc
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self, TypeVar

from lengthwise.errors import UsageError
from lengthwise.measure.display import Display
from lengthwise.measure.statistics import Statistic, estimate
from lengthwise.results import Results, Row
from lengthwise.settings import Count, Seed, Settings, Subject
from lengthwise.text.windows import Window, resolve_bos

if TYPE_CHECKING:
    from lengthwise.models import Predictor

T = TypeVar("T")
Record = dict[str, Any]
"""What scoring an item gave: plain values, one line of the log."""


class Reader(Protocol):
    """What deciding on items needs of a model; a dry run knows it without the weights."""

    name: str
    tokenizer: Any

    @property
    def trained_length(self) -> int | None:
        """Context in tokens that the model was trained for; None if not known."""
        ...

    @property
    def max_positions(self) -> int | None:
        """Tokens of the longest view; None without a limit."""
        ...


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
    """How these are shown."""
    examples: ClassVar[tuple[str, ...]] = ()
    """Command lines for the end of the help."""
    fail_above: ClassVar[str | None] = None
    """The metric that --fail-above looks at."""
    reads: ClassVar[Literal["tokens", "characters", "questions"]] = "tokens"
    """What `items` takes: the text in the model's tokens, or a Corpus; "questions" may need no text."""
    other_is: ClassVar[str] = "second model"
    """What the second model is, for errors."""
    units: ClassVar[str] = "documents"
    """What the bootstrap resamples."""
    beside_the_numbers: ClassVar[tuple[str, ...]] = ("batch_size",)
    """Fields that do not decide the numbers, or only through the BOS id."""
    levels: ClassVar[tuple[str, ...]] = ()
    """Metrics that are set, or that another number is made of: two models have no difference in them."""
    not_of_the_run: ClassVar[tuple[str, ...]] = ()
    """Settings of the subject that the measurement cannot use, so that its verb has no option for them."""

    seed: Seed = 0
    """Seed of the choice of windows."""
    batch_size: Count = 1
    """Windows at a time. More needs more memory; the numbers stay the same."""

    @property
    def at_once(self) -> int:
        """Items in a batch."""
        return self.batch_size

    @property
    def needs_text(self) -> bool:
        """Whether it reads a text at all."""
        return True

    def config(self, run: Subject) -> dict[str, Any]:
        """The config of a run folder: running it again repeats the run."""
        return run.settings() | self.settings()

    def identity(self) -> dict[str, Any]:
        """What decides the numbers besides model, text and BOS id, plain."""
        return {name: value for name, value in self if name not in self.beside_the_numbers}

    def resolved(self, model: Reader, other: Reader) -> Self:
        """The settings with what they take from the models filled in.

        Raises:
            UsageError: the models cannot be measured so.
        """
        return self

    @property
    def second(self) -> str | None:
        """The name of a second model that the settings give: an evaluator, a selector."""
        return None

    def check_subject(self, run: Subject) -> Subject:
        """The settings that the measured model is loaded with.

        Raises:
            UsageError: the measurement cannot be made of this subject.
        """
        return run

    def open_other(self, model: Predictor, run: Subject | None) -> Predictor:
        """The second model, loaded as the first one is (`run`); the first where the settings name none."""
        from lengthwise.models import open_model

        if self.second is None or (run is not None and self.second == run.model and run.adapter is None):
            return model
        if run is None:
            return open_model(Subject(model=self.second))
        return open_model(run.of(run, model=self.second, adapter=None))

    def facts(self, model: Reader, other: Reader) -> dict[str, Any]:
        """What the models decide of the numbers, besides their weights."""
        return {}

    def check_models(self, model: Predictor, other: Predictor, items: Sequence[Item]) -> None:
        """Refuse models that cannot be measured so, once they are loaded."""

    def batches(self, items: Sequence[Item]) -> list[list[Item]]:
        """The items that are read together: neighbours of equal `longest`, up to `at_once`."""
        return [
            batch
            for _, some in groupby(items, key=lambda item: item.longest)
            for batch in in_groups(some, self.at_once)
        ]

    def finish(
        self, model: Predictor, items: Sequence[Item], records: Mapping[str, Record]
    ) -> dict[str, Record]:
        """Further records, by key, that are made from those of all items."""
        return {}

    def describe(self, items: Sequence[Item], records: Mapping[str, Record]) -> dict[str, Any]:
        """What the provenance records besides model, text and settings."""
        return {}

    @abc.abstractmethod
    def plan(self, items: Sequence[Item]) -> dict[str, Any]:
        """What a dry run shows of the items; `tokens_to_run` among it."""

    def check(self, results: Results) -> None:
        """Refuse finished results that say nothing."""

    @abc.abstractmethod
    def items(self, model: Reader, text: Any, other: Reader) -> list[Item]:
        """What is to be read, in order.

        Args:
            model: the measured model, or what is known of it before it is loaded.
            text: TokenDocuments, or a Corpus if the measurement `reads_characters`.
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

    beside_the_numbers = ("bos", "batch_size")

    sample: ClassVar[str] = "windows"
    """What a stretch of text is called."""
    wanted: ClassVar[str] = "windows"
    """The field that says how many are wanted."""

    bos: Literal["auto", "always", "never"] = "auto"
    """Begin each view with BOS; auto does as the tokenizer does."""

    def bos_id(self, model: Reader) -> int | None:
        """The id that replaces the first token of each view; None without BOS."""
        return resolve_bos(model.tokenizer, self.bos)

    def facts(self, model: Reader, other: Reader) -> dict[str, Any]:
        """The BOS id."""
        return {"bos_id": self.bos_id(model)}

    def label(self, item: Item) -> str:
        """What the item's stretch of text is called, and where it belongs if there are several kinds."""
        return self.sample

    def plan(self, items: Sequence[Item]) -> dict[str, Any]:
        """How many stretches of each kind the text holds, and the tokens to read."""
        wanted = getattr(self, self.wanted)
        samples = {
            label: f"{available} of {wanted}, {tokens} tokens of text each"
            for label, tokens, available in self._stretches(items)
        }
        return {"samples": samples, "tokens_to_run": sum(item.tokens for item in items)}

    def few_samples_notes(self, items: Sequence[Item]) -> list[str]:
        """What to say where the text has fewer stretches than wanted."""
        wanted, notes = getattr(self, self.wanted), []
        for label, tokens, available in self._stretches(items):
            what, _, place = label.partition(", ")
            if available < wanted:
                notes.append(
                    f"{place}{': ' if place else ''}the text holds {available} {what} of {tokens} tokens without "
                    f"overlap, fewer than the {wanted} wanted."
                )
        return notes

    def _stretches(self, items: Sequence[Item]) -> list[tuple[str, int, int]]:
        """(label, tokens of text, how many) of each kind of stretch."""
        places: dict[tuple[str, int], set[tuple[str, int]]] = {}
        for item in items:
            place = item.facts["document"], item.facts["start"]
            places.setdefault((self.label(item), item.stretch), set()).add(place)
        return [(label, tokens, len(found)) for (label, tokens), found in places.items()]


def window_facts(window: Window) -> dict[str, Any]:
    """What the log keeps of a window, so that another run can tell whether it is the same one."""
    return {"document": window.document_id, "start": window.start, "crc": zlib.crc32(window.ids.tobytes())}


def by_size(
    windows: Sequence[Window], sizes: Sequence[int], *, at_once: int
) -> Iterator[tuple[int, int, Window]]:
    """(size, index, window): each group of `at_once` windows at all sizes before the next group."""
    for group in in_groups(enumerate(windows), at_once):
        for size in sizes:
            for index, window in group:
                yield size, index, window


def in_groups(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Consecutive groups of at most `size` items."""
    iterator = iter(items)
    while group := list(islice(iterator, size)):
        yield group


def window_words(window: Window) -> str:
    """The window in words, for errors."""
    return f"tokens {window.start} to {window.start + len(window.ids) - 1} of {window.document_id!r}"


def bos_note(bos_id: int | None) -> str:
    """How views begin, in words."""
    if bos_id is None:
        return "No BOS: every view begins with a token of the text."
    return f"BOS: the first token of every view is replaced by token {bos_id}."


def check_passage(*, passage: int, scored: int) -> None:
    """Raise UsageError if the scored end of a repeated passage leaves no cue for the copy."""
    if scored >= passage:
        raise UsageError(
            f"scored is {scored} of a passage of {passage} tokens",
            expected=f"at most {passage - 1}: the tokens before are the cue for the copy",
        )
