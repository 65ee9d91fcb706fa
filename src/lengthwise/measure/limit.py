"""The effective context length of a model on a text, without labels: where it stops being sound, and used.

Each window of text is read once from its beginning, up to `length` tokens, and compared with the same model
that reads only the last R/2 + 1 .. R tokens before each target, R = `reference`, a length it was trained for:

    excess(n) = loss(token | all n tokens before it) - loss(the same token | the last R/2 + 1 .. R of them)

On the way, after d tokens and for d on a grid, the window's first passage is repeated; and the same after a window
that differs in its first passage alone (`measure_recall`, with the filler's beginning):

    benefit(d) = loss(passage | a different passage d tokens back) - loss(passage | the same one)

docs/explanation/evaluation.md defines the two limits that follow from these, with what they assume and cannot see.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Self

from annotated_types import Ge
from pydantic import AfterValidator, model_validator

from lengthwise.errors import UsageError
from lengthwise.measure.display import Display
from lengthwise.measure.limit_curves import (
    BINS_PER_REFERENCE,
    LimitGrid,
    limit_notes,
    limit_statistics,
    on_the_grid,
)
from lengthwise.measure.measurement import (
    Item,
    Reader,
    Record,
    WindowMeasurement,
    bos_note,
    check_passage,
    window_facts,
    window_words,
)
from lengthwise.measure.statistics import Statistic
from lengthwise.results import Results, Row
from lengthwise.settings import NO_OPTION, Count, Option, Positive, Share, Whole
from lengthwise.text import sample_windows

if TYPE_CHECKING:
    from lengthwise.models import Predictor

LONGEST = 16384
"""The default longest context, in tokens, or this many times the trained length if that is less:"""
TIMES_TRAINED = 8
MOST_REFERENCE = 1024


def _in_bins(reference: int) -> int:
    if reference % BINS_PER_REFERENCE:
        raise ValueError(f"a multiple of {BINS_PER_REFERENCE}")
    return reference


Reference = Annotated[Whole, Ge(2 * BINS_PER_REFERENCE), AfterValidator(_in_bins)]


class Limit(WindowMeasurement):
    """Where does the useful context end, on this text?

    Two numbers without labels: up to which length all context predicts no worse than its most recent tokens alone
    (sound), and up to which distance a repeated passage is still recognised (used).
    """

    kind = "limit"
    task = "limit"
    display = Display(
        title="Effective context length",
        metrics={
            "sound_up_to": "longest context whose loss is within the tolerance of the loss with recent tokens only",
            "used_up_to": "longest distance at which a repeated passage still helps",
            "excess": "loss with all context - loss of the same tokens with the most recent context only",
            "jeffreys": "how much the predictions with all context and with recent context disagree",
            "loss": "cross entropy of the next token with all context",
            "tolerance": "the excess up to which predictions count as sound",
            "used_level": "the benefit from which context counts as used",
            "benefit": "what a repeated passage is worth; 0 if the model does not use it",
        },
        better={"loss": "lower", "jeffreys": "lower", "benefit": "higher"},
    )
    levels = ("tolerance", "used_level")
    examples = (
        "lengthwise limit smollm2-135m --out runs/limit",
        "lengthwise limit ./my-model --text notes/ --split all --max-length 32768",
        "lengthwise limit smollm2-135m --dry-run",
    )

    length: Annotated[Count | None, Option("--max-length", metavar="TOKENS")] = None
    """The longest context measured. Default: 16384, or eight times the trained length if that is less."""
    reference: Annotated[Reference | None, Option(metavar="TOKENS")] = None
    """A length that the model was trained for, to compare with. Default: a quarter of the trained length, at most
    1024."""
    windows: Annotated[Count, Option("--limit")] = 8
    """Windows of text, from as many documents."""
    tolerance: Positive = 0.1
    """The model counts as sound up to the longest context whose mean loss is at most this many nats per token worse
    than with only the most recent tokens."""
    share: Share = 0.1
    """The model counts as using context up to the distance where the benefit of a repeated passage falls below this
    share of the benefit nearby."""
    passage: Annotated[Whole, Ge(2), NO_OPTION] = 64
    """Tokens in the repeated passage."""
    scored: Annotated[Count, NO_OPTION] = 48
    """Tokens at its end whose loss counts."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_passage(passage=self.passage, scored=self.scored)
        return self

    @property
    def at_once(self) -> int:
        """Windows are read one by one; `batch_size` counts the short contexts within."""
        return 1

    @property
    def stretch(self) -> int:
        """Tokens of a window of text: the longest context, its targets, and another first passage."""
        assert self.length is not None
        return self.length + 1 + 2 * self.passage

    def resolved(self, model: Reader, other: Reader) -> Self:
        """With `reference`, and `length` in whole blocks of R/2 as far as a table of positions allows.

        Raises:
            UsageError: no reference in the model's configuration, or too short a longest context.
        """
        reference = _reference(model) if self.reference is None else self.reference
        return self.of(
            self, reference=reference, length=_longest(model, self.length, reference, self.passage)
        )

    def grid(self, table: int | None) -> LimitGrid:
        """Where the curves are measured, of resolved settings."""
        assert self.length is not None
        assert self.reference is not None
        return LimitGrid(
            length=self.length,
            reference=self.reference,
            passage=self.passage,
            scored=self.scored,
            table=table,
        )

    def items(self, model: Reader, text: Any, other: Reader) -> list[Item]:
        """Every window twice: after another first passage, and as it is."""
        assert self.length is not None
        assert self.reference is not None
        windows = sample_windows(text, self.stretch, count=self.windows, seed=self.seed, allow_fewer=True)
        # All context once; the second time also short contexts that overlap by half. The repeated passages are few.
        tokens = {"different": self.length, "same": self.length + 2 * (self.length - self.reference)}
        return [
            Item(
                key=f"limit/L{self.length}/R{self.reference}/P{self.passage}/w{index:04d}/{first}",
                facts={**window_facts(window), "first": first, "table": model.max_positions},
                content=window,
                tokens=tokens[first],
                longest=self.length,
                stretch=self.stretch,
            )
            for index, window in enumerate(windows)
            for first in ("different", "same")
        ]

    def score(self, model: Predictor, items: Sequence[Item], other: Predictor) -> Iterator[Record]:
        """The passage's summed losses by distance, and the sums by bin."""
        from lengthwise.measure.limit_reading import reading_of
        from lengthwise.models import naming_bad_logits

        bos_id, grid = self.bos_id(model), self.grid(model.max_positions)
        read = reading_of(model, grid, bos_id=bos_id, batch_size=self.batch_size)
        for item in items:
            with naming_bad_logits(model, window_words(item.content)):
                record = (read.same if item.facts["first"] == "same" else read.different)(item.content.ids)
            yield record

    def statistics(self, records: Sequence[Record]) -> list[Statistic]:
        """The two limits and their curves, from the windows that were read both times.

        Rows of task "limit": `sound_up_to` and `used_up_to` (tokens; `at_least` where no end was found up to
        the longest measured); by position `excess`, `jeffreys` (of the same two predictions) and `loss` (with
        all context), nats; by distance `benefit`; `tolerance` and `used_level`, the two levels (nats).
        """
        whole = _joined(records)
        if not whole:
            return []
        grid = self.grid(whole[0]["table"])
        return limit_statistics(whole, grid, tolerance=self.tolerance, share=self.share)

    def rows(self, statistics: Sequence[Statistic], records: Sequence[Record]) -> list[Row]:
        """The numbers, with intervals as wide as the grid makes them."""
        return on_the_grid(super().rows(statistics, records), self.grid(_table(records)))

    def notes(self, model: Reader, other: Reader, items: Sequence[Item], results: Results) -> list[str]:
        """What the two numbers mean, the BOS, and missing windows."""
        return [
            *limit_notes(
                results.rows, self.grid(model.max_positions), tolerance=self.tolerance, share=self.share
            ),
            *self.few_samples_notes(items),
            bos_note(self.bos_id(model)),
        ]


def default_length(trained: int | None) -> int:
    """The default longest context."""
    return LONGEST if trained is None else min(LONGEST, TIMES_TRAINED * trained)


def _joined(records: Sequence[Record]) -> list[Record]:
    """One record a window that was read both times."""
    found: dict[tuple[str, int], Record] = {}
    for record in records:
        place = record["document"], record["start"]
        found[place] = {**found.get(place, {}), **record}
    return [record for record in found.values() if "same" in record and "different" in record]


def _table(records: Sequence[Record]) -> int | None:
    return records[0]["table"] if records else None


def _reference(model: Reader) -> int:
    trained = model.trained_length
    if trained is None:
        raise UsageError(
            f"{model.name} does not say how long a context it was trained for",
            expected="a length within it to compare with",
            fix="--reference 1024",
        )
    reference = 1 << (max(1, min(MOST_REFERENCE, trained // 4)).bit_length() - 1)
    if reference < 2 * BINS_PER_REFERENCE:
        raise UsageError(
            f"{model.name} was trained for {trained} tokens, too few to find a reference within",
            fix=f"--reference {2 * BINS_PER_REFERENCE}",
        )
    return reference


def _longest(model: Reader, length: int | None, reference: int, passage: int) -> int:
    """The length of the spec or what a table allows, in whole blocks of R/2."""
    least = max(2 * reference, 4 * passage)
    if length is None:
        length = max(least, default_length(model.trained_length))
    block = reference // 2
    allowed = min(length, model.max_positions or length)
    longest = allowed // block * block
    if longest < least:
        raise UsageError(
            f"a longest context of {allowed} tokens is too short to look for a limit",
            expected=f"at least {least}: twice the reference, and four passages",
            fix="give a greater --max-length or a smaller --reference",
        )
    return longest
