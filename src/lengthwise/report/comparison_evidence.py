"""What the rows of `compare` show, before anything is said of it: pattern, sign, size, place, and use.

It is decided from the rows alone, so a direct comparison, kept runs and a page say the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal, NamedTuple

from lengthwise.measure.change_point import Stretch, alike_again, best_split, mean
from lengthwise.measure.pair_records import FLOORS
from lengthwise.report.comparison_curve import (
    APART,
    difference_curve,
    moved,
    tolerances_of,
    used_alike,
    value_of,
)
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
EARLIEST = 128
"""A difference that grows before this position is one of all positions: early tokens have little context."""
ONE_SIDED = 0.5
"""Rounding makes as many tokens likelier as less likely; from this surplus on it is not rounding."""
ALL_ONE_SIDED = 0.8
"""From this surplus on nearly all tokens are likelier, or less likely."""
FEW_TOKENS = 0.5
"""The share of a difference that a hundredth of the tokens has, from which on they carry it. Of rounding: 0.05."""
NEARLY_ALL = 0.95
"""The share that a tenth of the tokens has, from which on they carry it."""
ALONE = 0.7
"""From which share on tokens that differ stand alone among eight, and not together: those of a place have 0.3."""
AS_ROUNDING = (0.3, 1.5)
"""What lies between so many floors may be rounding: sound pairs lie at 0.6 to 1.15 of a floor."""
FAR_LARGER = 1000.0
"""From this ratio on a difference is not the beginning of the next."""
FAINT = 10.0
"""What is within a tolerance but above so many floors differs too, unless what follows is as many times as large."""
UNLIKE = 3.0
"""How many times as far from itself one side of two in one dtype must be that this is no rounding."""
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
    again: tuple[int, int] | None
    """Tokens between which both sides are equal again, after others that differ."""
    before: float
    """Nats per token before `place`, 0 without one."""
    shift: float
    """Loss of B - loss of A."""
    use: Literal["less", "more", "alike", "not clear"]
    cached: bool
    """Whether the tokens that differ were predicted through a cache."""
    moves: str | None
    """How the place moves with the length of the window, in a sentence; None if it does not."""
    one_sided: bool
    """Whether nearly all tokens are likelier in B, or less likely."""


def evidence(rows: Sequence[Row]) -> Evidence | None:
    """The evidence; None without rows of a comparison."""
    whole = [row for row in rows if row.is_whole and row.value is not None]
    at = {(row.metric, row.length): row for row in whole if row.distance is None}
    lengths = sorted(length for metric, length in at if metric == "difference" and length)
    curve = difference_curve(rows)
    if not lengths or not curve:
        return None
    longest = lengths[-1]
    number: Callable[..., float] = lambda metric, default=0.0: (  # noqa: E731
        value_of(at.get((metric, longest)) or at.get((metric, None)), default)
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
    moves = moved(rows, at, lengths)
    one_sided = _all_one_sided(at.get(("one_sided", longest)), at["difference", longest])
    through = bool(cached_from) or decoded
    place: tuple[int, int] | None = None
    before, kind = 0.0, "equal"
    apart = next((index for index, part in enumerate(seen) if part.mean > allowed[index]), None)
    largest = max(value_of(at.get(("largest", length))) for length in lengths)
    beyond = [side for side, floor in floors.items() if floor > number(f"most_{side}", NOISY)]
    if beyond and size < APART * APART * max(floors.values()):
        rounding = min(number(f"most_{side}", NOISY) for side in beyond) >= NOISY
        unlike = max(floors.values()) >= APART * 2 * min(floors.values())
        kind, size = "undecided" if rounding and not unlike else "unstable", max(floors.values())
    elif moves is not None or apart is not None:
        kind, place, before, size = _pattern(seen, apart or 0, allowed, decoded, max(floors.values()))
        begins = None if decoded else _begins(at, longest, cached_from, max(floors.values()))
        at_first = kind == "first tokens" and before <= tolerance
        if _few(number) and not at_first and begins is None:
            kind, place, size = ("all positions", None, size) if one_sided else ("some tokens", None, largest)
        elif 0 < number("windows_apart") < 1:
            kind, place, size = "some windows", None, mean(seen)
        elif moves:
            kind = "from a place"
        elif begins is not None:
            kind, place, before = "from a place", begins, 0.0
            size = _beyond(at, longest, begins[0])
        elif place and not decoded:
            by_bins, place = place, _refined(at, longest, place)
            if kind == "first tokens" and place != by_bins:
                size = max(size, number("before"))
        everywhere = kind != "first tokens" and alike_again(seen, allowed, after=0, to_end=True) is None
        if place and not place[0] and everywhere and not moves:
            kind, place, before, size = "all positions", None, 0.0, mean(seen)
    elif found := (
        (not through and _faint(at, longest, max(floors.values()), 0.1 * tolerance))
        or (not _few(number) and _last_tokens(at, longest, tolerance))
    ):
        kind, place, size = "from a place", *found
    elif largest > number("largest_rounding", float("inf")) and not one_sided:
        kind, size = "some windows" if 0 < number("windows_apart") < 1 else "some tokens", largest
    elif _one_sided(number, shift, shift_row):
        kind, size = "all positions", max(abs(shift), size)
    elif _hidden_by_itself(number, floors.values(), size):
        kind, size = "unstable", max(floors.values())
    again: tuple[int, int] | None = None
    if place and not decoded and kind in ("from a place", "growing", "first tokens"):
        begins_there = kind == "from a place"
        again = alike_again(seen, allowed, after=place[1] if begins_there else 0, to_end=begins_there)
    if place and again and again[1] == longest:
        size = mean([part for part in seen if place[1] <= part.end <= again[0]])
    use = used_alike(whole)[0]
    return Evidence(kind, sign, size, place, again, before, shift, use, through, moves, one_sided)  # type: ignore[arg-type]


def _hidden_by_itself(number: Callable[..., float], floors: Collection[float], size: float) -> bool:
    """Whether a difference is within the tolerance only because one side differs from itself by more than rounding.

    Two sides of one dtype round alike: the floors of sound ones lie within a factor of 1.8, and so do those of sides
    with other weights that are nearly as good.
    """
    low, high = min(floors), max(floors)
    by_floor = math.isclose(number("tolerance"), FLOORS * high)
    return (
        low > 0
        and high > UNLIKE * low
        and size > FLOORS * low
        and by_floor
        and number("most_a") == number("most_b")
    )


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
    tolerance = number("tolerance")
    # In float32 the sum over 50,000 rows of a vocabulary is too small by 1e-5 of it.
    enough = abs(shift) > max(0.05 * tolerance, 0.5 * min(tolerance, 1e-4))
    surplus = abs(number("one_sided")) >= ONE_SIDED
    balance = abs(shift) >= ONE_SIDED * number("difference")
    sure = row is not None and row.p_holm is not None and row.p_holm < SIGNIFICANCE
    return enough and (surplus or (balance and sure))


def _all_one_sided(signs: Row | None, tokens: Row) -> bool:
    """Whether most tokens differ, and nearly all of them in the same direction."""
    most = signs is not None and 2 * (signs.n or 0) >= (tokens.n or 0)
    return most and abs(value_of(signs)) >= ALL_ONE_SIDED


def _few(number: Callable[..., float]) -> bool:
    """Whether few tokens carry the difference, here and there: tokens side by side are those of a place."""
    few = number("top_share") > FEW_TOKENS or number("tenth_share") > NEARLY_ALL
    return few and number("alone_share", 1.0) > ALONE


def _begins(
    at: Mapping[tuple[str, int | None], Row], longest: int, cached_from: float, floor: float
) -> tuple[int, int] | None:
    """The tokens between which a difference begins, before which both sides are equal to the last bit.

    Most tokens beyond its cell must differ, since single tokens begin somewhere too. What is as small as rounding may
    be rounding or the beginning of what follows: then the place lies anywhere in it, unless that is far larger.
    """
    exact, signs, tokens = (at.get((name, longest)) for name in ("exact_up_to", "one_sided", "difference"))
    if exact is None or signs is None or tokens is None or value_of(exact) <= cached_from:
        return None
    low, high = int(exact.ci_low or 0), int(exact.ci_high or 0)
    if (signs.n or 0) < 0.5 * (tokens.n or 0) * (1 - high / longest):
        return None
    clear = at.get(("begins", longest))
    if clear is None or value_of(clear) <= high:
        return low, high
    faint, after = (value_of(at.get((name, longest))) for name in ("before", "after"))
    if faint > AS_ROUNDING[1] * floor:
        return low, high
    # Far below rounding, single tokens were rounded otherwise, or a difference begins slowly.
    rounding = faint >= AS_ROUNDING[0] * floor and after > FAR_LARGER * faint
    return int(clear.ci_low or 0) if rounding else low, int(clear.ci_high or 0)


def _faint(
    at: Mapping[tuple[str, int | None], Row], longest: int, floor: float, least: float
) -> tuple[tuple[int, int], float] | None:
    """(place, size) of a difference that begins at one place after equal bits, however small beside the tolerance.

    Not where a cache is read: sound pairs have the same kernels in the first pass, and are exact there.
    """
    begins, place = at.get(("begins", longest)), _begins(at, longest, 0.0, floor)
    if begins is None or place is None or value_of(begins) > place[1]:
        return None
    size = _beyond(at, longest, place[0])
    return (place, size) if size > least else None


def _last_tokens(
    at: Mapping[tuple[str, int | None], Row], longest: int, tolerance: float
) -> tuple[tuple[int, int], float] | None:
    """(place, size) of a difference of the last tokens, which a whole bin hides: clear in the cells from there on."""
    begins, before, after = (at.get((name, longest)) for name in ("begins", "before", "after"))
    clear = value_of(after) > APART * max(tolerance, APART * value_of(before))
    if begins is None or not begins.ci_low or begins.ci_high is None or not clear:
        return None
    return (int(begins.ci_low), int(begins.ci_high)), value_of(after)


def _beyond(at: Mapping[tuple[str, int | None], Row], longest: int, place: int) -> float:
    """The mean difference beyond a place, before which there is none."""
    return value_of(at.get(("difference", longest))) * longest / max(1, longest - place)


def _pattern(
    curve: Sequence[Stretch], first: int, allowed: Sequence[float], decoded: bool, floor: float
) -> tuple[Kind, tuple[int, int] | None, float, float]:
    """(pattern, place, mean before, mean after): at the first stretch above its tolerance, or at the best split."""
    by_split, *_ = best_split(curve) or (0,)
    levels = [part._replace(mean=level) for part, level in zip(curve, allowed, strict=True)]
    last = max((i for i, part in enumerate(curve) if part.mean > allowed[i]), default=len(curve) - 1)
    for index, end in dict.fromkeys(((first, last + 1), (by_split, len(curve)))):
        if not index:
            continue
        before, after = mean(curve[:index]), mean(curve[index:end])
        below, above = before <= mean(levels[:index]), after > mean(levels[index:end])
        between = (curve[index - 1].end if decoded else curve[index - 1].begin, curve[index].end)
        if above and after >= APART * before and (below or curve[index - 1].end >= EARLIEST):
            alike = all(part.mean <= APART * allowed[i] for i, part in enumerate(curve[:index]))
            exact = below and alike and (before <= FAINT * floor or after >= FAINT * before)
            return "from a place" if exact else "growing", between, before, after
        if not first and not below and before >= APART * after and not decoded:
            end = curve[index].end if curve[index].mean > allowed[index] else curve[index].begin
            return "first tokens", (between[0], end), after, before
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
