"""Whether both sides of a comparison use what is far back alike: the benefits of passages that come again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from lengthwise.measure.statistics import clearly_beyond
from lengthwise.results import SIGNIFICANCE, Row

LOST = 0.1
"""The share of a benefit from which on a change of it is called one."""


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
