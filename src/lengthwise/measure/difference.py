"""Two configurations of a model compared: on the same tokens, by position, in all, and in the use of far context.

For a token t with context x, with sides A and B,

    d = log p_B(t | x) - log p_A(t | x)      (nats)

`difference` is the mean of |d|, `shift` the mean of -d: how much higher the loss of B is. `kl` is KL(p_A || p_B) of
the whole distributions. The windows end with repeated passages (`repeated_windows`): their `benefit` on each side
says whether what is far back is still used, which a compressed cache loses first.

Each side reads a text as it would read it alone: with its own BOS. Rounding gives differences too, so the run
measures how far each side differs from itself (`rounding`): `floor_a`, `floor_b`. A bin of positions counts as equal
up to its `tolerance`, FLOORS times the greater floor, and at least what any model of that dtype needs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import Field

from lengthwise.measure.change_point import beginning, mean
from lengthwise.measure.comparison import holm
from lengthwise.measure.measurement import About, Item, Record, grouped
from lengthwise.measure.pair_records import (
    benefit_totals,
    equal_up_to,
    fine_curve,
    floors,
    pair_record,
    spoken,
    summed,
)
from lengthwise.measure.repeated_windows import Layout, RepeatedWindows
from lengthwise.measure.statistics import Statistic
from lengthwise.results import Results, Row
from lengthwise.settings import PYTHON_ONLY, Positive

if TYPE_CHECKING:
    from lengthwise.subjects import Predictor, Reader

FLOORS = 1.5
"""The tolerance in floors: by bins, sound pairs lie up to 1.2 floors apart."""
LARGEST = 4.0
"""How much further apart one token may be than the furthest of a floor, which has fewer tokens."""
ONE_TOKEN = 20.0
"""How much further apart than the least tolerance one token is often, by rounding."""
UNLIKE = 2.0
"""How many times as far apart the windows that differ must be as all others, to say that only some differ."""
_CURVES = ("difference", "shift", "kl")
_PARTS = {"loss_a": ("loss",), "loss_b": ("loss", "shift")}
"""What is summed for a metric that is no column of the records."""


class Difference(RepeatedWindows):
    """Do two configurations of a model predict alike, at every position, and use far context alike?

    Reads the same tokens with both and compares the predictions: by position, and in the benefit of passages that
    come again. --a and --b change one side. --fail-above checks the mean absolute difference (nats per token) of
    every length and bin of positions, --fail-use the share of a benefit that B has lost.
    """

    about = About(
        kind="compare",
        task="difference",
        title="Two configurations of a model",
        metrics={
            "equal_up_to": "tokens of context up to which the difference stays within the tolerance",
            "difference": "mean |log p B - log p A| of the same tokens",
            "tolerance": "the difference up to which a bin of positions counts as equal",
            "floor_a": "mean |log p| of A - log p of A rounded otherwise",
            "floor_b": "the same of B",
            "most_a": "the same, at most by rounding in the dtype of A",
            "most_b": "the same of B",
            "cached_from": "tokens of the first pass: only from there on a cache is read",
            "shift": "loss of B - loss of A: above 0 B predicts worse",
            "kl": "KL(A || B) of the next-token distributions",
            "same_top": "share of positions with the same most likely token",
            "largest": "the largest difference of one token",
            "largest_rounding": "up to which one token may differ by rounding",
            "begins": "the position from which on both sides differ by another amount, with the range it lies in",
            "before": "mean |log p B - log p A| before that position",
            "after": "the same from there on",
            "windows_apart": "share of windows that differ, where the others do not",
            "top_share": "share of the difference that the hundredth of tokens with the largest ones has",
            "one_sided": "share of the tokens that differ which are likelier in B - share likelier in A",
            "other_ids": "tokens of a window that both sides read otherwise: the BOS",
            "more_rows": "rows of B's output head - rows of A's",
            "prefix_cache": "mean |log p| of B's decode path with the server's prefix cache - without it",
            "loss_a": "cross entropy of the next token, A",
            "loss_b": "cross entropy of the next token, B",
            "benefit_a": "what a repeated passage is worth to A, by its distance",
            "benefit_b": "the same to B",
            "benefit_change": "benefit of B - benefit of A",
            "benefit_kept": "benefit of B / benefit of A",
        },
        levels=(
            "tolerance",
            "floor_a",
            "floor_b",
            "most_a",
            "most_b",
            "largest_rounding",
            "cached_from",
            "other_ids",
            "more_rows",
        ),
        fail_above="difference",
        reads="either",
        second="side_b",
        no_facts=("side_b",),
        along_paths=True,
    )

    side_b: Annotated[dict[str, Any], PYTHON_ONLY] = Field(default={})
    """The second side: fields of `Subject`, its `model` among them."""
    tolerance: Positive | None = None
    """Mean absolute difference, in nats per token, that counts as equal. Default: from dtypes and rounding."""

    def score(self, model: Predictor, items: Sequence[Item], other: Predictor) -> Iterator[Record]:
        """The sums of the differences by position, and the losses of the repeated passages."""
        from lengthwise.measure.predictions import predictions
        from lengthwise.measure.sides import between, side_of

        layout, windows = self.windows_of(items)
        views = [self.views_of(each, windows) for each in (model, other)]
        one, two = (
            predictions(each, windows, seen, layout.first)
            for each, seen in zip((model, other), views, strict=True)
        )
        for index, item in enumerate(items):
            pair = slice(2 * index, 2 * index + 2)
            record = pair_record(layout, windows[pair], one[pair], two[pair], cached_from=self.cached_from)
            again = item.key.endswith("w0000")
            sides = [
                side_of(
                    each, self.bos_id(each), windows[pair], seen[pair], predicted[pair], layout, beside, again
                )
                for each, seen, predicted, beside in (
                    (model, views[0], one, other),
                    (other, views[1], two, model),
                )
            ]
            half, row = record["largest"][1:]
            said = spoken(model.tokenizer, windows[2 * index + half], row)
            yield {**record, **between(*sides), "said": said}

    def plan(self, items: Sequence[Item]) -> dict[str, Any]:
        """As every measurement; both sides read every token. `decode_passes`: of each side that decodes."""
        found = super().plan(items)
        decoded = {"decode_passes": 2 * self.decode * len(items)} if self.decode else {}
        return {**found, "tokens_to_run": 2 * found["tokens_to_run"], **decoded}

    def statistics(self, records: Sequence[Record]) -> list[Statistic]:
        """The numbers of each length that have intervals; the differences also by position, benefits by distance."""
        found: list[Statistic] = []
        for length, some in grouped(records, "length"):
            layout = Layout(length, self.decode)
            whole = partial(self.statistic, some, length=length, n=sum(record["targets"] for record in some))
            if not self.decode:
                _, tolerances = self.tolerated(some, layout)
                first_unequal = partial(equal_up_to, edges=layout.edges, tolerances=tolerances)
                by_bin = lambda record: [*record["difference"], 2]  # noqa: E731
                found.append(whole(by_bin, first_unequal, metric="equal_up_to", unit="tokens"))
            for metric in ("difference", "shift", "kl", "same_top", "loss_a", "loss_b", "prefix_cache"):
                parts = _PARTS.get(metric, (metric,))
                if parts[0] in some[0]:
                    unit: dict[str, Any] = {"unit": "share"} if metric == "same_top" else {}
                    found.append(whole(partial(summed, parts=parts), metric=metric, **unit))
            for metric in _CURVES:
                if metric in some[0]:
                    by_half = [{**r, metric: [each / 2 for each in r[metric]]} for r in some]
                    found += self.curve(by_half, metric, layout.edges, metric=metric, length=length)
            for index, distance in enumerate(layout.distances):
                count = sum(record["benefit"][index][-1] for record in some)
                totals = [{"document": r["document"], **benefit_totals(r, index)} for r in some]
                number = partial(self.statistic, totals, length=length, distance=distance, n=count)
                for metric in ("benefit_a", "benefit_b", "benefit_change", "benefit_kept"):
                    unit = {"unit": "ratio" if metric == "benefit_kept" else "nats"}
                    found.append(number(itemgetter(metric), metric=metric, **unit))
        return found

    def rows(self, statistics: Sequence[Statistic], records: Sequence[Record]) -> list[Row]:
        """The numbers; Holm's correction over the shifts and the changes of benefit; what has no interval."""
        found = [
            replace(row, at_least=True) if row.metric == "equal_up_to" and row.value == row.length else row
            for row in super().rows(statistics, records)
        ]
        tested = [row for row in found if row.is_whole and row.metric in ("shift", "benefit_change")]
        corrected = {row.place: row for row in holm(tested)}
        found = [corrected.get(row.place, row) for row in found]
        for length, some in grouped(records, "length"):
            found += self._plain_rows(some, Layout(length, self.decode))
        if self.cached_from:
            found.append(self._row("cached_from", self.cached_from, unit="tokens"))
        return found

    def _row(self, metric: str, value: float | None, **about: Any) -> Row:
        return Row(model="", task=self.about.task, metric=metric, value=value, **about)

    def _plain_rows(self, records: Sequence[Record], layout: Layout) -> list[Row]:
        """What has no interval over documents, of one length: floors, tolerances, where it begins, which windows."""
        plain = partial(self._row, length=layout.length)
        whole, tolerances = self.tolerated(records, layout)
        found = [
            plain(
                "largest", max(abs(r["largest"][0]) for r in records), n=sum(r["targets"] for r in records)
            ),
            plain("tolerance", whole),
            *(
                plain("tolerance", value, position=begin, position_end=end)
                for value, (begin, end) in zip(tolerances, itertools.pairwise(layout.edges), strict=True)
            ),
        ]
        for name in ("floor_a", "floor_b"):
            if (floor := floors(records, name, layout)) is not None:
                found.append(plain(name, floor[0]))
                most = max(record[name]["most"] for record in records if record.get(name))
                found.append(plain(name.replace("floor", "most"), most))
        largest = [r[name]["largest"] for r in records for name in ("floor_a", "floor_b") if r.get(name)]
        if largest:
            found.append(
                plain("largest_rounding", LARGEST * max(max(largest), ONE_TOKEN * records[0]["least"]))
            )
        curve = [part for part in fine_curve(records, layout) if part.begin >= self.cached_from]
        place = None if self.decode else beginning(curve, whole)
        if place is not None:
            low, high = map(float, place)
            found.append(plain("begins", low, unit="tokens", ci_low=low, ci_high=high))
            for name, part in (
                ("before", [part for part in curve if part.begin < low]),
                ("after", [part for part in curve if part.begin >= low]),
            ):
                found.append(plain(name, mean(part) if part else 0.0))
        found.append(plain("windows_apart", _windows_apart(records, whole), unit="share"))
        (top, total), (signs, unequal) = (
            np.sum([r[name] for r in records], axis=0) for name in ("top", "signs")
        )
        if unequal:
            found.append(plain("top_share", float(top / total), unit="share"))
            found.append(plain("one_sided", float(-signs / unequal), unit="share", n=int(unequal)))
        for metric in ("other_ids", "more_rows"):
            if records[0][metric]:
                found.append(plain(metric, float(records[0][metric]), unit="tokens"))
        return found

    def tolerated(self, records: Sequence[Record], layout: Layout) -> tuple[float, list[float]]:
        """The tolerance in all and of each bin: what the user says, or `FLOORS` floors and at least the dtype's."""
        bins = len(layout.edges) - 1
        if self.tolerance is not None:
            return self.tolerance, [self.tolerance] * bins
        least = max(record["least"] for record in records)
        known = [
            found for name in ("floor_a", "floor_b") if (found := floors(records, name, layout)) is not None
        ]
        whole = max([least, *(FLOORS * floor for floor, _ in known)])
        by_bin = [max([whole, *(FLOORS * part[index] for _, part in known)]) for index in range(bins)]
        return whole, by_bin

    def notes(self, model: Reader, other: Reader, items: Sequence[Item], results: Results) -> list[str]:
        """As every measurement, of each side; where the largest difference is, and what is bounded."""
        found = super().notes(model, other, items, results)
        own, others = (self.bos_note(side) for side in (model, other))
        if others != own:
            found[0] = f"A: {own} B: {others}"
        return found + difference_notes(list(results.records.values()))


def difference_notes(records: Sequence[Record]) -> list[str]:
    """What the records of a difference say beside the numbers, however they were made."""
    if not records:
        return []
    record = max(records, key=lambda each: abs(each["largest"][0]))
    value, half, row = record["largest"]
    before, token = record["said"]
    found = [
        f"The largest difference: log p of {token!r} is {abs(value):.3g} nats "
        f"{'lower' if value > 0 else 'higher'} in B, at token {row + 1} of the {('first', 'second')[half]} "
        f"window from token {record['start']} of {record['document']!r}, after {before!r}."
    ]
    if record["other_template"]:
        found.append("The chat templates differ. compare reads plain text, so that this does not show here.")
    if record["bounded"]:
        found.append("kl is a lower bound, from the likeliest tokens of each side alone.")
    return found


def _windows_apart(records: Sequence[Record], tolerance: float) -> float:
    """The share of windows that differ; 1 unless they are clearly apart from those that do not."""
    means = sorted(mean for record in records for mean in record["windows"])
    apart = [mean for mean in means if mean > tolerance]
    alike = means[: len(means) - len(apart)]
    if not apart:
        return 0.0
    return len(apart) / len(means) if alike and apart[0] >= UNLIKE * alike[-1] else 1.0
