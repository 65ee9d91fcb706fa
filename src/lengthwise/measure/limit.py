"""The effective context length of a model on a text, without labels: where it stops being sound, and used.

Each window of text is read once from its beginning, up to `length` tokens, and compared with the same model
that reads only the last R/4 + 1 .. R tokens before each target, R = `reference`, a length it was trained for:

    excess(n) = loss(token | all n tokens before it) - loss(the same token | the last R/4 + 1 .. R of them)

After d tokens of the window, for d on a grid, its first passage is repeated. Every second window is read again with
another first passage, and the repetitions are read after that too (as `Recall`, but with the filler's beginning):

    benefit(d) = loss(passage | a different passage d tokens back) - loss(passage | the same one)

docs/explanation/evaluation.md defines the two limits that follow from these, with what they assume and cannot see.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np
from annotated_types import Ge, MultipleOf
from cyclopts import Parameter
from pydantic import model_validator

from lengthwise.errors import UsageError
from lengthwise.measure.limit_curves import sound_up_to, used_level, used_up_to
from lengthwise.measure.measurement import Display, Item, Record, WindowMeasurement, check_passage, in_groups
from lengthwise.measure.statistics import Statistic, equal_bins
from lengthwise.results import Results, Row
from lengthwise.settings import PYTHON_ONLY, Count, Positive, Share, Whole
from lengthwise.text import view

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from lengthwise.models import Predictor, Reader

_SHOWN_BINS = 32
_BINS_PER_REFERENCE = 8
_STEPS_PER_DOUBLING = 3
_LONGEST, _TIMES_TRAINED = 16384, 8
_MOST_REFERENCE = 1024


class Limit(WindowMeasurement):
    """Where does the useful context end, on this text?

    Two numbers without labels: up to which length all context predicts no worse than its most recent tokens alone
    (sound), and up to which distance a repeated passage is still recognised (used).
    """

    kind = "limit"
    task = "limit"
    one_by_one = True
    caches = 2
    display = Display(
        title="Effective context length",
        metrics={
            "sound_up_to": "longest context whose loss is within the tolerance of the loss with recent tokens only",
            "used_up_to": "longest distance at which a repeated passage still helps",
            "excess": "loss with all context - loss of the same tokens with the most recent context only",
            "loss": "cross entropy of the next token with all context",
            "tolerance": "the excess up to which predictions count as sound",
            "used_level": "the benefit from which context counts as used",
            "benefit": "what a repeated passage is worth; 0 if the model does not use it",
        },
    )
    levels = ("tolerance", "used_level")
    examples = (
        "lengthwise limit smollm2-135m --out runs/limit",
        "lengthwise limit ./my-model --text notes/ --split all --max-length 32768",
        "lengthwise limit smollm2-135m --dry-run",
    )

    length: Annotated[Count | None, Parameter("--max-length", metavar="TOKENS")] = None
    """The longest context measured. Default: 16384, or eight times the trained length if that is less."""
    reference: Annotated[
        Annotated[Whole, Ge(2 * _BINS_PER_REFERENCE), MultipleOf(_BINS_PER_REFERENCE)] | None,
        Parameter(metavar="TOKENS"),
    ] = None
    """A length that the model was trained for, to compare with. Default: a quarter of the trained length, at most
    1024."""
    windows: Annotated[Count, Parameter("--limit")] = 8
    """Windows of text, from as many documents. Every second one shows how far context is used."""
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
        trained, reference = model.trained_length, self.reference
        if reference is None:
            # A quarter of the trained length, as a power of 2.
            reference = 1 << (max(1, min(_MOST_REFERENCE, (trained or 0) // 4)).bit_length() - 1)
        if reference < 2 * _BINS_PER_REFERENCE:
            raise UsageError(
                f"the length that {model.name} was trained for is {trained or 'not known'}",
                expected=f"a reference within it, of at least {2 * _BINS_PER_REFERENCE} tokens, to compare with",
                fix="give --reference",
            )
        least = max(2 * reference, 4 * self.passage)
        length = self.length or max(least, min(_LONGEST, _TIMES_TRAINED * (trained or _LONGEST)))
        allowed = min(length, model.max_positions or length)
        length = allowed - allowed % (reference // 2)
        if length < least:
            raise UsageError(
                f"a longest context of {allowed} tokens is too short to look for a limit",
                expected=f"at least {least}: twice the reference, and four passages",
                fix="give a greater --max-length or a smaller --reference",
            )
        return self.model_copy(update={"reference": reference, "length": length})

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Of resolved settings: the longest context, R, and the rows in a bin of the excess, in tokens."""
        assert self.length is not None
        assert self.reference is not None
        return self.length, self.reference, self.reference // _BINS_PER_REFERENCE

    @property
    def distances(self) -> list[int]:
        """Distances of the repeated passage: three to a doubling from two passages on, and the longest."""
        first, last = 2 * self.passage, self.sizes[0] - self.passage
        steps = int(_STEPS_PER_DOUBLING * np.log2(last / first))
        grid = {round(first * 2 ** (step / _STEPS_PER_DOUBLING)) for step in range(steps + 1)}
        return [*sorted(distance for distance in grid if distance < 0.95 * last), last]

    def items(self, model: Reader, text: Any, other: Reader) -> list[Item]:
        """Every window; every second one is read `twice`."""
        length, reference, _ = self.sizes
        branches = len(self.distances) * (self.passage - 1)
        short = len(self._short_views) * reference
        # The longest context, its targets, and another first passage.
        windows = self.sampled(text, length + 1 + 2 * self.passage)
        found = []
        for index, window in enumerate(windows):
            twice = index % 2 == 0
            key = f"L{length}/R{reference}/P{self.passage}/w{index:04d}"
            tokens = length + short + twice * (length + 2 * branches)
            found.append(
                self.item(key, window, length, tokens=tokens, twice=twice, table=model.max_positions)
            )
        return found

    @property
    def _short_views(self) -> list[tuple[int, int]]:
        """(the first token, the first row that is scored) of each short context; it has R tokens."""
        length, reference, _ = self.sizes
        scored = reference * 3 // 4
        return [
            (min(first - reference // 4, length - reference), first)
            for first in range(reference, length, scored)
        ]

    def score(self, model: Predictor, items: Sequence[Item], other: Predictor) -> Iterator[Record]:
        """Sums by bin of `excess` and `loss`; of windows read `twice` the passage's losses by distance, after the
        `same` one and a `different` one, that at the window's end.
        """
        tokens = partial(view, start=0, length=self.sizes[0], bos_id=self.bos_id(model))
        for item in items:
            ids = item.content.ids
            distances = self.distances if item.facts["twice"] else []
            whole, same = self._losses(model, ids, tokens(ids), distances)
            excess = whole - self._short_losses(model, ids)
            record: Record = {
                name: each.unflatten(0, (-1, self.sizes[2])).sum(dim=1).tolist()
                for name, each in (("excess", excess), ("loss", whole))
            }
            if distances:
                other_ids = np.concatenate([ids[-self.passage :], ids[self.passage :]])
                _, different = self._losses(model, ids, tokens(other_ids), distances, scored=False)
                record |= {"same": same, "different": different}
            yield record

    def _short_losses(self, model: Predictor, ids: NDArray[Any]) -> Tensor:
        """The loss of each target beyond R, after the end of its context."""
        import torch

        reference, found = self.sizes[1], []
        for group in in_groups(self._short_views, self.batch_size):
            views = [view(ids, start, reference, self.bos_id(model)) for start, _ in group]
            labels = [ids[first + 1 : start + reference + 1] for start, first in group]
            found += model.token_losses(views, labels)
        return torch.cat(found)

    def _losses(
        self,
        model: Predictor,
        ids: NDArray[Any],
        tokens: NDArray[Any],
        distances: Sequence[int],
        *,
        scored: bool = True,
    ) -> tuple[Tensor, list[float]]:
        """The losses of the targets beyond R, if `scored`, and those of the passage, summed, at each distance.

        `tokens` are read once; by an endpoint, once for each distance too.
        """
        import torch

        from lengthwise.models import LoadedModel
        from lengthwise.models.branches import read_with_branches
        from lengthwise.models.loaded_model import target_losses

        (length, reference, _), passage = self.sizes, ids[: self.passage]
        labels, ends = ids[reference + 1 : length + 1], passage[-self.scored :]
        whole, repeated = torch.empty(0), []
        if isinstance(model, LoadedModel):
            text, branches = read_with_branches(model, tokens, passage[:-1], distances, piece=reference // 2)
            for distance, hidden in zip(distances, branches, strict=True):
                repeated.append(target_losses(model, hidden[-self.scored :], ends, first=distance))
            if scored:
                whole = target_losses(model, text[reference:], labels, first=reference)
        else:
            for group in in_groups(distances, self.batch_size):
                views = [np.concatenate([tokens[:distance], passage[:-1]]) for distance in group]
                repeated += model.token_losses(views, [ends] * len(group))
            if scored:
                [whole] = model.token_losses([tokens], [labels])
        return whole, [each.sum().item() for each in repeated]

    def statistics(self, records: Sequence[Record]) -> list[Statistic]:
        """The two limits, their levels and their curves."""
        twice = [record for record in records if "different" in record]
        if not twice:
            return []
        (length, reference, width), distances = self.sizes, self.distances
        near = max(1, sum(distance <= reference for distance in distances))
        targets, compared = self.scored, length - reference
        sound = partial(sound_up_to, start=reference, width=width, tolerance=self.tolerance)
        used = partial(used_up_to, distances=distances, near=near, share=self.share)
        level = partial(used_level, near=near, share=self.share)

        def number(some: Sequence[Record], metric: str, totals: Any, n: int | None, **row: Any) -> Statistic:
            return self.statistic(some, totals, metric=metric, length=length, n=n, **row)

        def by_distance(record: Record) -> list[float]:
            return [*record["same"], *record["different"], targets]

        each, rows = len(twice) * targets, len(records) * compared
        found = [
            number(records, "sound_up_to", lambda r: [*r["excess"], 1], rows, unit="tokens", estimator=sound),
            number(twice, "used_up_to", by_distance, each * len(distances), unit="tokens", estimator=used),
            number(records, "tolerance", lambda _: [self.tolerance, 1], None),
            number(twice, "used_level", by_distance, each * near, estimator=level),
        ]
        edges = equal_bins(0, compared // width, _SHOWN_BINS)
        positions = [reference + width * edge for edge in edges]
        for metric in ("excess", "loss"):
            shown = [{**record, metric: np.add.reduceat(record[metric], edges[:-1])} for record in records]
            found += self.curve(shown, metric, positions, metric=metric, length=length)
        for index, distance in enumerate(distances):
            sums = lambda r, i=index: [r["different"][i] - r["same"][i], targets]  # noqa: E731
            found.append(number(twice, "benefit", sums, each, distance=distance))
        return found

    def rows(self, statistics: Sequence[Statistic], records: Sequence[Record]) -> list[Row]:
        """The numbers, with intervals as wide as the grid makes them, and `at_least` where measuring ended.

        `used_up_to` has no value where the benefit nearby is not clearly above 0.
        """
        found = super().rows(statistics, records)
        if not found:
            return []
        [level] = [row.ci_low for row in found if row.metric == "used_level"]
        unclear, ends = level is not None and level <= 0, self._ends_with_table(records[0]["table"])
        return [self._on_the_grid(row, unclear=unclear, ends=ends) for row in found]

    def _on_the_grid(self, row: Row, *, unclear: bool, ends: bool) -> Row:
        no_interval: dict[str, Any] = {"stderr": None, "ci_low": None, "ci_high": None}
        if row.metric == "tolerance":
            return replace(row, **no_interval)
        if row.metric == "used_up_to" and unclear:
            return replace(row, value=None, **no_interval)
        if row.metric not in ("sound_up_to", "used_up_to") or row.value is None:
            return row
        low, high, (length, reference, width) = row.ci_low, row.ci_high, self.sizes
        if row.metric == "sound_up_to":
            # Between two bins the true place lies within one bin of the edge.
            low = None if low is None else max(low - width, reference)
            high = None if high is None else min(high + width, length)
            is_open = row.value >= length and not ends
        else:
            places = (0, *self.distances)
            low = None if low is None else max(place for place in places if place <= low)
            high = None if high is None else min(place for place in places if place >= high)
            is_open = row.value >= places[-1]
        return replace(row, ci_low=low, ci_high=high, at_least=is_open or None)

    def _ends_with_table(self, table: int | None) -> bool:
        """Whether the model can read no longer context, by its table of positions (to half the reference)."""
        length, reference, _ = self.sizes
        return table is not None and length > table - reference // 2

    def notes(self, model: Reader, other: Reader, items: Sequence[Item], results: Results) -> list[str]:
        """What the two numbers mean, where they are open or undefined, and what every measurement says."""
        notes = super().notes(model, other, items, results)
        by_metric = {row.metric: row for row in results.rows if row.position is None and row.distance is None}
        if not by_metric:
            return notes
        (length, reference, _), distances = self.sizes, self.distances
        sound, used = by_metric["sound_up_to"], by_metric["used_up_to"]
        ends = self._ends_with_table(model.max_positions)
        found = [
            f"Sound: up to there the loss with all context is at most {self.tolerance:g} nats above the loss with "
            f"the last {reference // 4 + 1} to {reference} tokens of it.",
            f"Used: up to there the benefit of a repeated passage is at least {self.share:.0%} of that at "
            f"distances up to {max(reference, distances[0])} tokens.",
        ]
        if sound.value == reference:
            found.append(
                f"Not sound beyond the reference of {reference} tokens: the limit may lie below it; "
                "measure again with a smaller --reference."
            )
        if ends and sound.value is not None and sound.value >= length:
            found.append(f"Sound to the end: the model's table of {model.max_positions} positions.")
        for row, end in ((sound, length), (used, distances[-1])):
            if row.at_least:
                found.append(f"{row.metric}: no end was found up to {end} tokens; this is a lower bound.")
            elif row.ci_high is not None and row.ci_high >= end and not ends:
                found.append(
                    f"{row.metric}: the upper end of the interval is {end}, where measuring ended; it is open."
                )
        if used.value is None:
            found.append(
                "used_up_to is not defined: even nearby the benefit of a repeated passage is not clearly above 0."
            )
        return found + notes
