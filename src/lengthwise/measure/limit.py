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
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np
from annotated_types import Ge
from cyclopts import Parameter
from pydantic import AfterValidator, model_validator

from lengthwise.errors import UsageError
from lengthwise.measure.limit_curves import BINS_PER_REFERENCE, LimitGrid, sound_up_to, used_level, used_up_to
from lengthwise.measure.measurement import Display, Item, Record, WindowMeasurement, check_passage
from lengthwise.measure.statistics import Statistic, equal_bins
from lengthwise.results import Results, Row
from lengthwise.settings import PYTHON_ONLY, Count, Positive, Share, Whole

if TYPE_CHECKING:
    from lengthwise.models import Predictor, Reader

_SHOWN_BINS = 32
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
    one_by_one = True
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

    length: Annotated[Count | None, Parameter("--max-length", metavar="TOKENS")] = None
    """The longest context measured. Default: 16384, or eight times the trained length if that is less."""
    reference: Annotated[Reference | None, Parameter(metavar="TOKENS")] = None
    """A length that the model was trained for, to compare with. Default: a quarter of the trained length, at most
    1024."""
    windows: Annotated[Count, Parameter("--limit")] = 8
    """Windows of text, from as many documents."""
    tolerance: Positive = 0.1
    """The model counts as sound up to the longest context whose mean loss is at most this many nats per token worse
    than with only the most recent tokens."""
    share: Share = 0.1
    """The model counts as using context up to the distance where the benefit of a repeated passage falls below this
    share of the benefit nearby."""
    passage: Annotated[Whole, Ge(2), PYTHON_ONLY] = 64
    """Tokens in the repeated passage."""
    scored: Annotated[Count, PYTHON_ONLY] = 48
    """Tokens at its end whose loss counts."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_passage(passage=self.passage, scored=self.scored)
        return self

    def resolved(self, model: Reader, other: Reader) -> Self:
        """With `reference`, and `length` in whole blocks of R/2 as far as a table of positions allows."""
        reference = _reference(model) if self.reference is None else self.reference
        length = _longest(model, self.length, reference, self.passage)
        return self.model_copy(update={"reference": reference, "length": length})

    def grid(self, table: int | None) -> LimitGrid:
        """Where the curves are measured, of resolved settings."""
        assert self.length is not None
        assert self.reference is not None
        return LimitGrid(self.length, self.reference, self.passage, self.scored, table)

    def items(self, model: Reader, text: Any, other: Reader) -> list[Item]:
        """Every window twice: after another first passage, and as it is."""
        grid = self.grid(model.max_positions)
        # All context once; the second time also short contexts that overlap by half. The repeated passages are few.
        tokens = {"different": grid.length, "same": grid.length + 2 * (grid.length - grid.reference)}
        # The longest context, its targets, and another first passage.
        windows = self.sampled(text, grid.length + 1 + 2 * self.passage)
        return [
            self.item(
                f"L{grid.length}/R{grid.reference}/P{self.passage}/w{index:04d}/{first}",
                window,
                grid.length,
                tokens=read,
                first=first,
                table=grid.table,
            )
            for index, window in enumerate(windows)
            for first, read in tokens.items()
        ]

    def score(self, model: Predictor, items: Sequence[Item], other: Predictor) -> Iterator[Record]:
        """The passage's summed losses by distance, and the sums by bin."""
        from lengthwise.measure.limit_reading import read_window

        grid, bos_id = self.grid(model.max_positions), self.bos_id(model)
        for item in items:
            yield read_window(model, item.content.ids, item.facts["first"], grid, bos_id, self.batch_size)

    def statistics(self, records: Sequence[Record]) -> list[Statistic]:
        """The two limits, their levels and their curves, from the windows that were read both times."""
        whole: dict[tuple[str, int], Record] = {}
        for record in records:
            place = record["document"], record["start"]
            whole[place] = {**whole.get(place, {}), **record}
        some = [record for record in whole.values() if "same" in record and "different" in record]
        if not some:
            return []
        grid = self.grid(some[0]["table"])
        compared, targets, windows = grid.length - grid.reference, self.scored, len(some)
        sound = partial(sound_up_to, start=grid.reference, width=grid.bin, tolerance=self.tolerance)
        used = partial(used_up_to, distances=grid.distances, near=grid.near, share=self.share)
        level = partial(used_level, near=grid.near, share=self.share)

        def number(metric: str, totals: Any, n: int | None, **row: Any) -> Statistic:
            return self.statistic(some, totals, metric=metric, length=grid.length, n=n, **row)

        def by_bin(record: Record) -> list[float]:
            return [*record["excess"], 1]

        def by_distance(record: Record) -> list[float]:
            return [*record["same"], *record["different"], targets]

        repeated = windows * targets * len(grid.distances)
        near = windows * targets * grid.near
        found = [
            number("sound_up_to", by_bin, windows * compared, unit="tokens", estimator=sound),
            number("used_up_to", by_distance, repeated, unit="tokens", estimator=used),
            number("tolerance", lambda _: [self.tolerance, 1], None),
            number("used_level", by_distance, near, estimator=level),
        ]
        edges = equal_bins(0, compared // grid.bin, _SHOWN_BINS)
        positions = [grid.reference + grid.bin * edge for edge in edges]
        for metric in (name for name in ("excess", "jeffreys", "loss") if name in some[0]):
            shown = [{**record, metric: np.add.reduceat(record[metric], edges[:-1])} for record in some]
            found += self.curve(shown, metric, positions, metric=metric, length=grid.length)
        for index, distance in enumerate(grid.distances):
            sums = lambda r, i=index: [r["different"][i] - r["same"][i], targets]  # noqa: E731
            found.append(number("benefit", sums, windows * targets, distance=distance))
        return found

    def rows(self, statistics: Sequence[Statistic], records: Sequence[Record]) -> list[Row]:
        """The numbers, with intervals as wide as the grid makes them, and `at_least` where measuring ended.

        `used_up_to` has no value where the benefit nearby is not clearly above 0.
        """
        found = super().rows(statistics, records)
        if not found:
            return []
        grid = self.grid(records[0]["table"])
        [level] = [row for row in found if row.metric == "used_level"]
        unclear = level.ci_low is not None and level.ci_low <= 0
        return [_on_the_grid(row, grid, unclear=unclear) for row in found]

    def notes(self, model: Reader, other: Reader, items: Sequence[Item], results: Results) -> list[str]:
        """What the two numbers mean, where they are open or undefined, and what every measurement says."""
        notes = super().notes(model, other, items, results)
        by_metric = {row.metric: row for row in results.rows if row.position is None and row.distance is None}
        if not by_metric:
            return notes
        grid = self.grid(model.max_positions)
        sound, used = by_metric["sound_up_to"], by_metric["used_up_to"]
        found = [
            f"Sound: up to there the loss with all context is at most {self.tolerance:g} nats above the loss with "
            f"the last {grid.reference // 2 + 1} to {grid.reference} tokens of it.",
            f"Used: up to there the benefit of a repeated passage is at least {self.share:.0%} of that at "
            f"distances up to {max(grid.reference, grid.distances[0])} tokens.",
        ]
        if sound.value == grid.reference:
            found.append(
                f"Not sound beyond the reference of {grid.reference} tokens: the limit may lie below it; "
                "measure again with a smaller --reference."
            )
        if grid.ends_with_table and sound.value is not None and sound.value >= grid.length:
            found.append(
                f"Sound to the end: the model's table of {grid.table} positions, beyond which it cannot read."
            )
        for row, end in ((sound, grid.length), (used, grid.distances[-1])):
            if row.at_least:
                found.append(
                    f"{row.metric}: no end was found up to {end} tokens; the number is a lower bound."
                )
            elif row.ci_high is not None and row.ci_high >= end and not grid.ends_with_table:
                found.append(
                    f"{row.metric}: the upper end of the interval is {end}, where measuring ended; it is open."
                )
        if used.value is None:
            found.append(
                "used_up_to is not defined: even nearby the benefit of a repeated passage is not clearly above 0."
            )
        return found + notes


def _on_the_grid(row: Row, grid: LimitGrid, *, unclear: bool) -> Row:
    no_interval: dict[str, Any] = {"stderr": None, "ci_low": None, "ci_high": None}
    if row.metric == "tolerance":
        return replace(row, **no_interval)
    if row.metric == "used_up_to" and unclear:
        return replace(row, value=None, **no_interval)
    if row.metric not in ("sound_up_to", "used_up_to") or row.value is None:
        return row
    low, high = row.ci_low, row.ci_high
    if row.metric == "sound_up_to":
        # Between two bins the true place lies within one bin of the edge.
        low = None if low is None else max(low - grid.bin, grid.reference)
        high = None if high is None else min(high + grid.bin, grid.length)
        is_open = row.value >= grid.length and not grid.ends_with_table
    else:
        places = (0, *grid.distances)
        low = None if low is None else max(place for place in places if place <= low)
        high = None if high is None else min(place for place in places if place >= high)
        is_open = row.value >= places[-1]
    return replace(row, ci_low=low, ci_high=high, at_least=is_open or None)


def _reference(model: Reader) -> int:
    """A quarter of the trained length, as a power of 2."""
    trained = model.trained_length
    reference = 1 << (max(1, min(MOST_REFERENCE, (trained or 0) // 4)).bit_length() - 1)
    if reference < 2 * BINS_PER_REFERENCE:
        raise UsageError(
            f"the length that {model.name} was trained for is {trained or 'not known'}",
            expected=f"a reference within it, of at least {2 * BINS_PER_REFERENCE} tokens, to compare with",
            fix="give --reference",
        )
    return reference


def _longest(model: Reader, length: int | None, reference: int, passage: int) -> int:
    """The given length, the default, or what a table of positions allows, in whole blocks of R/2."""
    least = max(2 * reference, 4 * passage)
    if length is None:
        trained = model.trained_length
        length = max(least, LONGEST if trained is None else min(LONGEST, TIMES_TRAINED * trained))
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
