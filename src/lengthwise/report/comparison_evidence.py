"""What the rows of `compare` show, before anything is said of it: pattern, sign, size, place, and use.

It is decided from the rows alone, so a direct comparison, kept runs and a page say the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

from lengthwise.measure.change_point import EXACT, Stretch, best_split, first_above, mean
from lengthwise.results import SIGNIFICANCE, Row

Kind = Literal[
    "equal",
    "undecided",
    "all positions",
    "from a place",
    "first tokens",
    "growing",
    "some windows",
    "some tokens",
    "unstable",
]
APART = 2.0
"""How many times as far apart predictions must be on one side of a position as on the other to call it a change."""
EARLIEST = 128
"""A difference that grows before this position is one of all positions: early tokens have little context."""
LOST = 0.1
"""The share of a benefit from which on a change of it is called one."""
ONE_SIDED = 0.5
"""Rounding makes as many tokens likelier as less likely; from this surplus on it is not rounding."""
FEW_TOKENS = 0.5
"""The share of a difference that a hundredth of the tokens has, from which on they carry it. Of rounding: 0.05."""
NOISY = 0.25
"""Nats a token of rounding (or of unlike answers to the same prompt) beyond which nothing can be said."""


class Evidence(NamedTuple):
    """What the rows show of side B beside A."""

    pattern: Kind
    sign: Literal["worse", "better", "either"]
    """Whether the loss of B is clearly higher or lower."""
    size: float
    """Nats per token where both sides differ (the largest token where a few differ)."""
    place: tuple[int, int] | None
    """Tokens between which the difference begins (of "first tokens": ends)."""
    before: float
    """Nats per token before `place`, 0 without one."""
    shift: float
    """Loss of B - loss of A."""
    use: Literal["less", "more", "alike", "not clear"]
    cached: bool
    """Whether the tokens that differ were predicted through a cache."""
    moves: bool
    """Whether the place moves with the length of the window."""


def evidence(rows: Sequence[Row]) -> Evidence | None:
    """The evidence; None without rows of a comparison."""
    whole = [row for row in rows if row.is_whole and row.value is not None]
    at = {(row.metric, row.length): row for row in whole if row.distance is None}
    lengths = sorted(length for metric, length in at if metric == "difference" and length)
    if not lengths:
        return None
    if not (curve := difference_curve(rows)):
        return None
    longest = lengths[-1]
    number: Callable[..., float] = lambda metric, default=0.0: (  # noqa: E731
        _value(at.get((metric, longest)) or at.get((metric, None)), default)
    )
    cached_from = number("cached_from")
    tolerances, decoded = tolerances_of(rows), all(part.begin for part in curve)
    # Before a cache is read there is nothing that it could change.
    seen = [part for part in curve if part.begin >= cached_from] or curve
    tolerance = number("tolerance")
    allowed = [tolerances.get((part.begin, part.end), tolerance) for part in seen]
    shift_row = at.get(("shift", longest))
    shift, size = number("shift"), mean(seen)
    sign = _sign(shift_row, number("one_sided"), number("difference"))
    floors = {side: number(f"floor_{side}") for side in "ab"}
    moves = moved(at, lengths) is not None
    through = bool(cached_from) or decoded
    place: tuple[int, int] | None = None
    before, kind = 0.0, "equal"
    apart = first_above(
        [Stretch(p.begin, p.end, p.mean / a, p.n) for p, a in zip(seen, allowed, strict=True)], 1
    )
    largest = max(_value(at.get(("largest", length))) for length in lengths)
    beyond = [side for side, floor in floors.items() if floor > number(f"most_{side}", NOISY)]
    if beyond and size < APART * APART * max(floors.values()):
        rounding = min(number(f"most_{side}", NOISY) for side in beyond) >= NOISY
        unlike = max(floors.values()) >= APART * 2 * min(floors.values())
        kind, size = "undecided" if rounding and not unlike else "unstable", max(floors.values())
    elif moves or apart is not None:
        kind, place, before, size = _pattern(seen, apart or 0, allowed, decoded)
        exact = None if through else _exact_before(at, longest)
        if number("top_share") > FEW_TOKENS and kind != "first tokens":
            kind, place, size = "some tokens", None, largest
        elif 0 < number("windows_apart") < 1:
            kind, place = "some windows", None
        elif kind == "all positions" and exact is not None and not moves:
            kind, place, before, size = exact
        elif moves:
            kind = "from a place"
        elif place and not decoded:
            place = _refined(at, longest, place)
    elif not through and (found := _exact_before(at, longest)) is not None and found[3] > 0.1 * tolerance:
        kind, place, before, size = found
    elif largest > number("largest_rounding", float("inf")):
        kind, size = "some tokens", largest
    elif _one_sided(number, shift, shift_row):
        kind, size = "all positions", abs(shift)
    return Evidence(kind, sign, size, place, before, shift, used_alike(whole)[0], through, moves)  # type: ignore[arg-type]


def _sign(row: Row | None, one_sided: float, difference: float) -> Literal["worse", "better", "either"]:
    if row is None or row.value is None:
        return "either"
    sure = row.ci_low is not None and row.ci_high is not None and (row.ci_low > 0 or row.ci_high < 0)
    # One document has no interval; then most tokens must agree.
    if abs(row.value) < 0.1 * difference or not (sure or abs(one_sided) >= ONE_SIDED / 2):
        return "either"
    return "worse" if row.value > 0 else "better"


def _one_sided(number: Callable[..., float], shift: float, row: Row | None) -> bool:
    """Whether nearly all differences have one sign, which rounding does not make."""
    enough = abs(shift) > 0.05 * number("tolerance")
    surplus = abs(number("one_sided")) >= ONE_SIDED
    balance = abs(shift) >= ONE_SIDED * number("difference")
    sure = row is not None and row.p_holm is not None and row.p_holm < SIGNIFICANCE
    return enough and (surplus or (balance and sure))


def _exact_before(
    at: Mapping[tuple[str, int | None], Row], longest: int
) -> tuple[Kind, tuple[int, int], float, float] | None:
    """A difference that begins at a place, before which both sides are equal to the last bit, however small it is.

    Most tokens beyond the place must differ, since single tokens begin somewhere too. This is not asked where a
    cache is read: both sides have the same kernels in the first pass, so sound pairs are exact there.
    """
    begins, before, after, signs = (
        at.get((name, longest)) for name in ("begins", "before", "after", "one_sided")
    )
    tokens = at.get(("difference", longest))
    if begins is None or signs is None or tokens is None or not _value(begins):
        return None
    beyond = (tokens.n or 0) * (1 - _value(begins) / longest)
    if _value(before) > EXACT or (signs.n or 0) < 0.5 * beyond:
        return None
    return "from a place", (int(begins.ci_low or 0), int(begins.ci_high or 0)), _value(before), _value(after)


def _pattern(
    curve: Sequence[Stretch], first: int, allowed: Sequence[float], decoded: bool
) -> tuple[Kind, tuple[int, int] | None, float, float]:
    """(pattern, place, mean before, mean after): at the first stretch above its tolerance, or at the best split."""
    split = best_split(curve)
    by_split = 0 if split is None else next(i for i, part in enumerate(curve) if part.begin == split.place)
    for index in dict.fromkeys((first, by_split)):
        if not index:
            continue
        before, after = mean(curve[:index]), mean(curve[index:])
        tolerance, place = max(allowed), curve[index - 1].end
        between = (curve[index - 1].end if decoded else curve[index - 1].begin, curve[index].end)
        if after > tolerance and after >= APART * before and (before <= tolerance or place >= EARLIEST):
            rises = before > tolerance and split is not None and split.gradual
            return "growing" if rises else "from a place", between, before, after
        if before > tolerance and before >= APART * after and not decoded:
            return "first tokens", between, after, before
    return "all positions", None, 0.0, mean(curve)


def _refined(
    at: Mapping[tuple[str, int | None], Row], longest: int, place: tuple[int, int]
) -> tuple[int, int]:
    """The place by cells, where it lies beside the place by bins."""
    row = at.get(("begins", longest))
    if row is None or row.ci_low is None or row.ci_high is None:
        return place
    low, high = int(row.ci_low), min(int(row.ci_high), place[1])
    return (low, max(low, high)) if place[0] <= low <= place[1] else place


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


def tolerances_of(rows: Sequence[Row]) -> dict[tuple[int, int], float]:
    """The tolerance of each bin, by its edges."""
    return {
        (row.position, row.position_end or 0): row.value or 0.0
        for row in rows
        if row.metric == "tolerance" and row.position is not None
    }


def clear_benefits(rows: Sequence[Row]) -> list[tuple[int | None, int]]:
    """(length, distance) where a repeated passage clearly helps A."""
    benefits = (row for row in rows if row.metric == "benefit_a" and (row.ci_low or 0.0) > 0)
    return [(row.length, row.distance) for row in benefits if row.distance is not None]


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
            and sign * _value(row) > LOST * _value(at["benefit_a", *place])
        }
        if moved:
            worst, row = max(moved.items(), key=lambda each: sign * _value(each[1]))
            a, b = (_value(at[f"benefit_{side}", *worst]) for side in "ab")
            return word, (  # type: ignore[return-value]
                f"B uses far context {word}: a passage {worst[1]:,} tokens back is worth {b:.2g} nats per token in "
                f"place of {a:.2g} (p {row.p_holm:.2g} after Holm)."
            )
    farthest = max(clear, key=lambda place: place[1])
    one, two = (_value(at[f"benefit_{side}", *farthest]) for side in "ab")
    worths = (
        f"a passage {farthest[1]:,} tokens back is worth {one:.2g} nats per token to A and {two:.2g} to B"
    )
    if abs(two - one) > 2 * LOST * one:
        return "not clear", f"Whether far context is used alike is not clear from so few documents: {worths}."
    return "alike", f"Far context is used alike: {worths}."


def moved(at: Mapping[tuple[str, int | None], Row], lengths: Sequence[int]) -> str | None:
    """Whether the first unequal position moves with the length of the window, in a sentence; None if it does not."""
    places = {
        length: _value(at["equal_up_to", length]) for length in lengths if ("equal_up_to", length) in at
    }
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
        f"{unequal[-1]:,} tokens it differs from token {places[unequal[-1]]:,.0f} on."
    )


def _value(row: Row | None, default: float = 0.0) -> float:
    return default if row is None or row.value is None else row.value
