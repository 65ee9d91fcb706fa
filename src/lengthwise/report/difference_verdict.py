"""What the numbers of `difference` say, in sentences for the terminal and the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from lengthwise.results import Row

APART = 2.0
"""How many times as far apart predictions must be on one side of a position as on the other to call it a change."""

_CAUSES = {
    "flat": "That is precision (another dtype, quantized weights, a quantized cache), an adapter, or a rope scaling "
    "of all positions (YaRN)",
    "flat, far": "That is another model: other weights, an adapter that was not loaded, or another rope base or "
    "scaling",
    "flat, cached": "That is the precision of the cache: quantized keys and values",
    "later": "That is a fault of long context: another rope scaling, a sliding window, or a cut context",
    "later, cached": "That is a fault of the cache: a window or a budget beyond which it forgets, or an offset",
    "first": "That is the beginning of the input: another BOS, or an offset of the positions",
}
EARLIEST = 128
"""A difference that grows before this position is one of all positions: early tokens have little context."""
LOST = 0.1
"""The share of a benefit from which on a change of it is called one."""
_FAR = 1.0
"""Nats a token from which on a flat difference is called more than precision."""


class Stretch(NamedTuple):
    """The mean difference over positions `begin` to `end`."""

    begin: int
    end: int
    mean: float
    n: int


class Pattern(NamedTuple):
    """How a difference depends on the position: it begins or grows at `place`, or is largest before it (first)."""

    kind: Literal["equal", "flat", "later", "first"]
    place: int
    """The position at which it changes; 0 where it does not."""
    before: float
    """The mean before `place`; equal to `after` where nothing changes."""
    after: float


def pattern(curve: Sequence[Stretch], tolerance: float) -> Pattern:
    """Where a difference changes: at its first stretch above the tolerance, or at the edge that splits it best.

    The best split into two constants is that of least squares.
    """
    whole = _mean(curve)
    unequal = [index for index, part in enumerate(curve) if part.mean > tolerance]
    if not unequal:
        return Pattern("equal", 0, whole, whole)
    splits = [(_scatter(curve[:index]) + _scatter(curve[index:]), index) for index in range(1, len(curve))]
    for index in [unequal[0], *([min(splits)[1]] if splits else [])]:
        if not index:
            continue
        before, after, place = _mean(curve[:index]), _mean(curve[index:]), curve[index - 1].end
        grown = after > tolerance and after >= APART * before
        if grown and (before <= tolerance or place >= EARLIEST):
            return Pattern("later", place, before, after)
        if before > tolerance and before >= APART * after:
            return Pattern("first", place, before, after)
    return Pattern("flat", 0, whole, whole)


def verdict(rows: Sequence[Row]) -> list[str]:
    """How far apart both sides are, from where on, what does such a thing, and whether far context is used alike."""
    whole = [row for row in rows if row.is_whole and row.value is not None]
    at = {(row.metric, row.length): row.value or 0.0 for row in whole if row.distance is None}
    lengths = sorted(length for metric, length in at if metric == "difference" and length)
    if not lengths:
        return []
    tolerance, cached_from = at["tolerance", None], at.get(("cached_from", None), 0)
    curve = difference_curve(rows)
    # Before a cache is read there is nothing that it could change.
    cached = [part for part in curve if part.begin >= cached_from] or curve
    found = pattern(cached, tolerance)
    longest = lengths[-1]
    largest = max(at["largest", length] for length in lengths)
    moved = _moved(at, lengths)
    through_cache = bool(cached_from) or all(part.begin for part in curve)
    later = _CAUSES["later, cached" if through_cache else "later"]
    by = "B differs from A by {:.2g} nats per token"
    if moved:
        text = f"{moved} {later}."
    elif found.kind == "equal":
        text = (
            f"B predicts as A does, up to {longest:,} tokens: {_mean(curve):.2g} nats per token apart on average, "
            f"{largest:.2g} at most. Up to {tolerance:.2g} on average is rounding here."
        )
    elif found.kind == "flat":
        exact = [part.mean <= tolerance for part in curve if part.end <= cached_from]
        cause = "flat, cached" if exact and all(exact) else "flat, far" if found.after > _FAR else "flat"
        where = f", once a cache is read (from token {cached_from:,.0f} on)" if cached_from else ""
        text = f"{by.format(found.after)} at all positions alike{where}. {_CAUSES[cause]}."
    elif found.kind == "later":
        beyond = f"beyond, up to {longest:,}. {later}."
        text = f"{by.format(found.before)} before token {found.place:,} and by {found.after:.2g} {beyond}"
        if found.before <= tolerance:
            equal = f"B is equal to A up to {found.place:,} tokens, and"
            text = f"{equal} {found.after:.2g} nats per token apart {beyond}"
    else:
        first = f"in the first {found.place:,} tokens and by {found.after:.2g} beyond"
        text = f"{by.format(found.before)} {first}. {_CAUSES['first']}."
    warmed = max((at.get(("prefix_cache", length), 0.0) for length in lengths), default=0.0)
    if warmed > tolerance:
        text += (
            f" With its prefix cache the server predicts otherwise than without: {warmed:.2g} nats per token apart. "
            "The cache returns keys of another prompt, or of other positions."
        )
    return [text, *_use(whole)]


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


def clear_benefits(rows: Sequence[Row]) -> list[tuple[int | None, int]]:
    """(length, distance) where a repeated passage clearly helps A."""
    benefits = (row for row in rows if row.metric == "benefit_a" and (row.ci_low or 0.0) > 0)
    return [(row.length, row.distance) for row in benefits if row.distance is not None]


def _use(rows: Sequence[Row]) -> list[str]:
    """Whether what is far back is used alike, where it differs most; nothing without a clear benefit."""
    at = {(row.metric, row.length, row.distance or 0): row for row in rows if row.distance is not None}
    clear = clear_benefits(rows)
    if not clear:
        return ["Whether far context is used cannot be told: repeated passages have no clear benefit for A."]

    changes = {place: at["benefit_change", *place] for place in clear}
    for word, sign in (("less", -1.0), ("more", 1.0)):
        worst, moved = max(changes.items(), key=lambda each: sign * (each[1].value or 0.0))
        a, b = at["benefit_a", *worst], at["benefit_b", *worst]
        sure = not moved.stderr or sign * ((moved.ci_high if sign < 0 else moved.ci_low) or 0.0) > 0
        if sure and sign * (moved.value or 0.0) > LOST * (a.value or 0.0):
            p = "" if moved.p_holm is None else f" (p {moved.p_holm:.2g} after Holm)"
            return [
                f"B uses far context {word}: a passage {worst[1]:,} tokens back is worth {b.value:.2g} nats per "
                f"token in place of {a.value:.2g}{p}."
            ]
    farthest = max(clear, key=lambda place: place[1])
    one, two = (f"{at[f'benefit_{side}', *farthest].value:.2g}" for side in "ab")
    return [
        f"Far context is used alike: a passage {farthest[1]:,} tokens back is worth {one} nats per token to A and "
        f"{two} to B."
    ]


def _moved(at: Mapping[tuple[str, int | None], float], lengths: Sequence[int]) -> str | None:
    """Whether the first unequal position moves with the length of the window, in a sentence; None if it does not."""
    places = {length: at["equal_up_to", length] for length in lengths if ("equal_up_to", length) in at}
    unequal = [length for length, place in places.items() if place < length]
    if len(places) < 2 or not unequal:
        return None
    place = places[unequal[0]]
    # With a longer input the same place may fall into the next bin.
    if all(found == min(length, place) for length, found in places.items()):
        return None
    equal = " and ".join(f"{length:,}" for length in lengths if length not in unequal)
    return (
        f"B is {f'equal to A in windows of {equal} tokens' if equal else 'equal to A at no length'}; in windows of "
        f"{unequal[-1]:,} tokens it differs from token {places[unequal[-1]]:,.0f} on. The place moves with the "
        "length of the window, as with a rope scaling that depends on it."
    )


def _mean(curve: Sequence[Stretch]) -> float:
    return sum(part.mean * part.n for part in curve) / sum(part.n for part in curve)


def _scatter(curve: Sequence[Stretch]) -> float:
    """The summed squared distance from the mean."""
    middle = _mean(curve)
    return sum(part.n * (part.mean - middle) ** 2 for part in curve)
