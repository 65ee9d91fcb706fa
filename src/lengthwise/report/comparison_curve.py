"""The curves in the rows of `compare`: differences by position, benefits of passages that come again by distance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from lengthwise.measure.change_point import Stretch
from lengthwise.measure.statistics import clearly_beyond
from lengthwise.results import SIGNIFICANCE, Row

APART = 2.0
"""How many times as far apart predictions must be on one side of a position as on the other to call it a change."""
LOST = 0.1
"""The share of a benefit from which on a change of it is called one."""


def difference_curve(rows: Sequence[Row]) -> list[Stretch]:
    """The mean difference by position, of `difference_bins`."""
    found = [
        Stretch(row.position, row.position_end, row.value, row.n or 1)
        for row in difference_bins(rows)
        if row.position is not None and row.position_end is not None and row.value is not None
    ]
    return sorted(found, key=lambda part: part.begin)


def difference_bins(rows: Sequence[Row]) -> list[Row]:
    """The differences by position at the greatest length; of decoded ends of windows, at every length."""
    bins = [row for row in rows if row.metric == "difference" and row.position is not None]
    longest = max((row.length or 0 for row in bins), default=0)
    decoded = all(row.position for row in bins)
    return [row for row in bins if decoded or row.length == longest]


def _depends_on_length(rows: Sequence[Row]) -> bool:
    """Whether some bin of positions differs at one length, `APART` times as much as at another."""
    tolerances: dict[tuple[int | None, int | None], float] = {
        (row.length, row.position): row.value or 0.0 for row in rows if row.metric == "tolerance"
    }
    found: dict[int, list[tuple[float, bool]]] = {}
    for row in rows:
        if row.metric == "difference" and row.position is not None and row.value is not None:
            unequal = row.value > tolerances.get((row.length, row.position), 0.0)
            found.setdefault(row.position, []).append((row.value, unequal))
    return any(
        max(each)[1] and max(each)[0] >= APART * min(each)[0] for each in found.values() if len(each) > 1
    )


def benefits_by_distance(rows: Sequence[Row]) -> list[Row]:
    """The benefits of repeated passages on both sides, at the lengths of `difference_bins`."""
    lengths = {row.length for row in difference_bins(rows)}
    return [row for row in rows if row.metric in ("benefit_a", "benefit_b") and row.length in lengths]


def tolerances_of(rows: Sequence[Row]) -> dict[tuple[int, int], float]:
    """The tolerance of each bin, by its edges."""
    return {
        (row.position, row.position_end or 0): row.value or 0.0
        for row in rows
        if row.metric == "tolerance" and row.position is not None
    }


def moved(
    rows: Sequence[Row], at: Mapping[tuple[str, int | None], Row], lengths: Sequence[int]
) -> str | None:
    """Whether the first unequal position moves with the length of the window, in a sentence; None if it does not.

    The same bin must clearly differ at one length and not at another: what is near a tolerance crosses it by chance.
    """
    places = {
        length: value_of(at["equal_up_to", length]) for length in lengths if ("equal_up_to", length) in at
    }
    unequal = [length for length, place in places.items() if place < length]
    if len(places) < 2 or not unequal:
        return None
    place = places[unequal[0]]
    # With a longer input the same place may fall into the next bin.
    if all(found == min(length, place) for length, found in places.items()):
        return None
    if not _depends_on_length(rows):
        return None
    equal = " and ".join(f"{length:,}" for length in lengths if length not in unequal)
    return (
        f"B is {f'equal to A in windows of {equal} tokens' if equal else 'equal to A at no length'}; in windows of "
        f"{unequal[-1]:,} tokens it differs from token {places[unequal[-1]]:,.0f} on."
    )


def clear_benefits(rows: Sequence[Row]) -> list[tuple[int | None, int]]:
    """(length, distance) where a repeated passage clearly helps A."""
    benefits = [row for row in rows if row.metric == "benefit_a" and row.distance is not None]
    return [(row.length, row.distance or 0) for row in clearly_beyond(benefits, 0.0)]


def used_alike(rows: Sequence[Row]) -> tuple[Literal["less", "more", "alike", "not clear"], str]:
    """Whether what is far back is used alike: one test a distance, corrected, and a change of some size."""
    at = {(row.metric, row.length, row.distance or 0): row for row in rows if row.distance is not None}
    clear = clear_benefits(rows)
    if not clear:
        few = max((row.documents or 0 for row in at.values()), default=0) < 2
        why = "one document gives no intervals" if few else "repeated passages have no clear benefit for A"
        return "not clear", f"Whether far context is used cannot be told: {why}."
    for word, sign in (("less", -1.0), ("more", 1.0)):
        moved = {
            place: row
            for place in clear
            if (row := at["benefit_change", *place]).p_holm is not None
            and row.p_holm < SIGNIFICANCE
            and sign * value_of(row) > LOST * value_of(at["benefit_a", *place])
        }
        if moved:
            worst, row = max(moved.items(), key=lambda each: sign * value_of(each[1]))
            a, b = (value_of(at[f"benefit_{side}", *worst]) for side in "ab")
            return word, (  # type: ignore[return-value]
                f"B uses far context {word}: a passage {worst[1]:,} tokens back is worth {b:.2g} nats per token in "
                f"place of {a:.2g} (p {row.p_holm:.2g} after Holm)."
            )
    far = max(clear, key=lambda place: place[1])
    one, two = (value_of(at[f"benefit_{side}", *far]) for side in "ab")
    worths = f"a passage {far[1]:,} tokens back is worth {one:.2g} nats per token to A and {two:.2g} to B"
    if abs(two - one) > 2 * LOST * one:
        return "not clear", f"Whether far context is used alike is not clear from so few documents: {worths}."
    return "alike", f"Far context is used alike: {worths}."


def value_of(row: Row | None, default: float = 0.0) -> float:
    """That of a row, or the default where there is none."""
    return default if row is None or row.value is None else row.value
