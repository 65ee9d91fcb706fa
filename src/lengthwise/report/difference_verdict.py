"""What the numbers of `difference` say: first the evidence, then what is known to cause it.

`evidence` decides from the rows alone, so a direct comparison, kept runs and a page say the same. `verdict` puts it
into words: `SHOWN` has a sentence for every pattern, `CAUSES` what makes such a pattern, in order of preference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

from lengthwise.measure.change_point import Stretch, best_split, first_above, mean
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
FAR = 1.0
"""Nats a token from which on a difference is more than precision."""
FEW_BITS = 0.5
"""Nats a token up to which keys and values in few bits are a likely cause of what a cache does."""
ONE_SIDED = 0.5
"""Rounding makes as many tokens likelier as less likely; from this surplus on it is not rounding."""
FEW_TOKENS = 0.5
"""The share of a difference that a hundredth of the tokens has, from which on they carry it. Of rounding: 0.05."""
NOISY = 0.25
"""Nats a token of rounding (or of unlike answers to the same prompt) beyond which nothing can be said."""
SEEN = 0.2
"""Nats by which the loss of B must fall, and the share of A's loss, to suspect that B sees what it predicts."""


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
    tolerances, decoded = _tolerances(rows), all(part.begin for part in curve)
    # Before a cache is read there is nothing that it could change.
    seen = [part for part in curve if part.begin >= cached_from] or curve
    tolerance = number("tolerance")
    allowed = [tolerances.get((part.begin, part.end), tolerance) for part in seen]
    shift_row = at.get(("shift", longest))
    shift, size = number("shift"), mean(seen)
    sign = _sign(shift_row, number("one_sided"), number("difference"))
    floors = {side: number(f"floor_{side}") for side in "ab"}
    moves = _moved(at, lengths) is not None
    place: tuple[int, int] | None = None
    before, kind = 0.0, "equal"
    apart = first_above(
        [Stretch(p.begin, p.end, p.mean / a, p.n) for p, a in zip(seen, allowed, strict=True)], 1
    )
    largest = max(_value(at.get(("largest", length))) for length in lengths)
    if max(floors.values()) > NOISY and size < APART * APART * max(floors.values()):
        kind = "unstable" if max(floors.values()) >= APART * 2 * min(floors.values()) else "undecided"
        size = max(floors.values())
    elif moves or apart is not None:
        kind, place, before, size = _pattern(seen, apart or 0, allowed, decoded)
        if 0 < number("windows_apart") < 1:
            kind, place = "some windows", None
        elif number("top_share") > FEW_TOKENS and kind != "first tokens":
            kind, place, size = "some tokens", None, largest
        elif moves:
            kind = "from a place"
        elif place and not decoded:
            place = _refined(at, longest, place)
    elif largest > number("largest_rounding", float("inf")):
        kind, size = "some tokens", largest
    elif _one_sided(number, shift, shift_row):
        kind, size = "all positions", abs(shift)
    elif (found := _exact_before(at, longest, cached_from, tolerance)) is not None:
        kind, place, before, size = found
    through = bool(cached_from) or decoded
    return Evidence(kind, sign, size, place, before, shift, _use(whole)[0], through, moves)  # type: ignore[arg-type]


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
    at: Mapping[tuple[str, int | None], Row], longest: int, cached_from: float, tolerance: float
) -> tuple[Kind, tuple[int, int], float, float] | None:
    """A difference within the tolerance that begins at a place, before which both sides are equal to the last bit."""
    begins, before, after = (at.get((metric, longest)) for metric in ("begins", "before", "after"))
    if begins is None or _value(begins) < max(EARLIEST, cached_from + 1):
        return None
    grown = _value(after) > 0.1 * tolerance and _value(before) < 0.05 * _value(after)
    if not grown:
        return None
    place = (int(begins.ci_low or 0), int(begins.ci_high or 0))
    return "from a place", place, _value(before), _value(after)


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


SHOWN: Mapping[Kind, str] = {
    "equal": "B predicts as A does, up to {longest:,} tokens: {size:.2g} nats per token apart on average, "
    "{largest:.2g} at most. Up to {tolerance:.2g} on average is rounding here.",
    "undecided": "Whether B predicts as A does cannot be told: rounding alone moves a prediction by {size:.2g} nats "
    "per token here. Compare in float32.",
    "all positions": "B differs from A by {size:.2g} nats per token at all positions alike{cached}{signed}.",
    "from a place": "B is equal to A up to {low:,} tokens{resolution}, and {size:.2g} nats per token apart beyond, "
    "up to {longest:,}{signed}.",
    "growing": "B differs from A more and more: by {before:.2g} nats per token before token {low:,} and by "
    "{size:.2g} beyond, up to {longest:,}{signed}.",
    "first tokens": "B differs from A by {size:.2g} nats per token in the first {high:,} tokens and by {before:.2g} "
    "beyond{signed}.",
    "some windows": "B differs from A in {windows:.0%} of the windows, and in the others not: {size:.2g} nats per "
    "token apart in all{signed}.",
    "some tokens": "B differs from A at few tokens, by up to {size:.2g} nats, and by {mean:.2g} nats per token on "
    "average{signed}.",
    "unstable": "Side {unstable} differs from itself: the same tokens, read or asked twice, are {size:.2g} nats per "
    "token apart. Nothing can be said of both sides before that is mended.",
}
"""What is seen, by pattern."""

CAUSES: tuple[tuple[str, Callable[[Evidence, Mapping[str, float]], bool], str], ...] = (
    (
        "equal in 16 bits",
        lambda seen, at: seen.pattern == "equal" and max(at["floor_a"], at["floor_b"]) > 1e-4,
        "A difference smaller than that could not have been seen in 16 bits; in float32 it could.",
    ),
    ("equal", lambda seen, at: seen.pattern in ("equal", "undecided"), ""),
    (
        "unstable",
        lambda seen, at: seen.pattern == "unstable",
        "A server that answers by batch or by what it holds in its cache does this, a state that stays between "
        "texts, a rope scaling that depends on the length, and dropout.",
    ),
    (
        "the future is seen",
        lambda seen, at: seen.sign == "better" and -seen.shift > max(SEEN, SEEN * at["loss_a"]),
        "A loss that is so much lower means that B sees what it predicts (a mask that leaks, or the text in its "
        "training), or that its numbers are no log-probabilities (a temperature, a cut-off).",
    ),
    (
        "some windows",
        lambda seen, at: seen.pattern == "some windows",
        "Requests that are mixed up do this (a batch, a prefix cache, padding), and texts of which something is cut "
        "off or replaced.",
    ),
    (
        "some tokens",
        lambda seen, at: seen.pattern == "some tokens",
        "Rows of the vocabulary that are others do this (an embedding, the output head), a filter of the output, "
        "values beyond a number format, and single errors of memory.",
    ),
    (
        "more rows",
        lambda seen, at: bool(at["more_rows"]) and seen.pattern == "all positions",
        "The vocabularies have other sizes ({more_rows:+,.0f} rows in B), and every row takes a share of the "
        "probability.",
    ),
    (
        "moves",
        lambda seen, at: seen.moves,
        "The place moves with the length of the window, as with a rope scaling that depends on it.",
    ),
    (
        "another beginning",
        lambda seen, at: bool(at["other_ids"]),
        "The sides begin a text otherwise (see the note on BOS), which alone can do this: --bos never and --bos "
        "always read both alike.",
    ),
    (
        "first tokens, cached",
        lambda seen, at: seen.pattern == "first tokens" and seen.cached,
        "What is near the place from where the cache is read differs most: the first passes through the cache, "
        "their positions or their mask.",
    ),
    (
        "first tokens",
        lambda seen, at: seen.pattern == "first tokens",
        "The beginning of the input does this: another BOS, a template, or tokens before the text.",
    ),
    (
        "from a place, cached",
        lambda seen, at: seen.pattern in ("from a place", "growing") and seen.cached,
        "That is a fault of the cache or of long context: a window or a budget beyond which it forgets, an offset of "
        "positions, values or keys, or a sliding window.",
    ),
    (
        "growing",
        lambda seen, at: seen.pattern == "growing",
        "That is long context: another rope base or scaling, positions that drift, or errors that add up.",
    ),
    (
        "from a place",
        lambda seen, at: seen.pattern == "from a place",
        "That is a fault of long context: another rope scaling, a sliding window, a mask between documents, or a cut "
        "context.",
    ),
    (
        "cache, few bits",
        lambda seen, at: seen.cached and bool(at["exact"]) and seen.size < FEW_BITS and seen.use != "less",
        "Without the cache both sides are equal. The precision of the cache does this (quantized keys and values), "
        "and so do tokens that it drops or moves.",
    ),
    (
        "cache, more",
        lambda seen, at: seen.cached and bool(at["exact"]),
        "Without the cache both sides are equal, and this is more than its precision: tokens that it forgets, "
        "overwrites or moves, or very few bits.",
    ),
    (
        "decode path",
        lambda seen, at: seen.cached and bool(at["decoded"]),
        "The decode path does this (its cache, its positions, its kernel), or whatever else differs between the "
        "sides: precision, weights, an adapter, a rope scaling.",
    ),
    (
        "far",
        lambda seen, at: seen.size >= FAR,
        "That is more than precision: other weights, an adapter that was not loaded, another rope base or scaling, a "
        "mask, or log-probabilities of other tokens.",
    ),
    (
        "flat",
        lambda seen, at: True,
        "Precision does this (another dtype, quantized weights), other weights or an adapter, a rope scaling of all "
        "positions (YaRN), and rows added to the vocabulary.",
    ),
)
"""(name, whether it applies, what does this); the first that applies is said."""


def verdict(rows: Sequence[Row]) -> list[str]:
    """How far apart both sides are, where, in which direction, what does such a thing; how far context is used."""
    seen = evidence(rows)
    if seen is None:
        return []
    at = _facts(rows, seen)
    text = _shown(rows, seen, at)
    causes = next(words for _, applies, words in CAUSES if applies(seen, at)).format(**at)
    warmed = ""
    if at["prefix_cache"] > at["tolerance"]:
        warmed = (
            f"With its prefix cache the server predicts otherwise than without: {at['prefix_cache']:.2g} nats per "
            "token apart. The cache returns keys of another prompt, or of other positions."
        )
    note = ""
    if at["other_ids"] and seen.pattern == "equal":
        note = "The sides begin a text otherwise (see the note on BOS), which changes nothing here."
    whole = [row for row in rows if row.is_whole and row.value is not None]
    return [" ".join(part for part in (text, causes, note, warmed) if part), _use(whole)[1]]


def _facts(rows: Sequence[Row], seen: Evidence) -> dict[str, float]:
    """The numbers that sentences and causes ask for; 0 where there is none."""
    whole = [row for row in rows if row.is_whole and row.value is not None and row.distance is None]
    longest = max(row.length or 0 for row in whole)
    at = {row.metric: row.value or 0.0 for row in whole if row.length in (longest, None)}
    for metric in ("largest", "prefix_cache"):
        at[metric] = max((row.value or 0.0 for row in whole if row.metric == metric), default=0.0)
    curve, tolerances = difference_curve(rows), _tolerances(rows)
    early = [part for part in curve if part.end <= at.get("cached_from", 0)]
    exact = bool(early) and all(p.mean <= tolerances.get((p.begin, p.end), at["tolerance"]) for p in early)
    names = ("cached_from", "floor_a", "floor_b", "more_rows", "other_ids", "windows_apart", "loss_a")
    return {
        **dict.fromkeys(names, 0.0),
        **at,
        "longest": longest,
        "exact": float(exact),
        "decoded": float(all(part.begin for part in curve)),
        "mean": mean(curve),
        "moves": float(seen.moves),
    }


def _shown(rows: Sequence[Row], seen: Evidence, at: Mapping[str, float]) -> str:
    """The sentence of the pattern."""
    low, high = seen.place or (0, 0)
    signed = {
        "worse": f"; its loss is {seen.shift:.2g} higher",
        "better": f"; its loss is {-seen.shift:.2g} lower",
        "either": "",
    }[seen.sign]
    words = {
        **at,
        "size": seen.size,
        "before": seen.before,
        "low": low,
        "high": high,
        "longest": int(at["longest"]),
        "signed": signed,
        "resolution": f" (it begins between {low:,} and {high:,})" if high > low else "",
        "cached": f", once a cache is read (from token {at['cached_from']:,.0f} on)"
        if at["cached_from"]
        else "",
        "windows": at["windows_apart"],
        "unstable": "A" if at["floor_a"] > at["floor_b"] else "B",
    }
    if seen.moves:
        whole = [row for row in rows if row.is_whole and row.value is not None and row.distance is None]
        places = {(row.metric, row.length): row for row in whole}
        lengths = sorted({row.length for row in whole if row.metric == "difference" and row.length})
        return _moved(places, lengths) or ""
    sentence = SHOWN[seen.pattern].format(**words)
    if seen.pattern == "from a place" and seen.before > at["tolerance"]:
        return (
            f"B differs from A by {seen.before:.2g} nats per token before token {low:,} and by {seen.size:.2g} "
            f"beyond{words['resolution']}, up to {words['longest']:,}{signed}."
        )
    return sentence


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


def _tolerances(rows: Sequence[Row]) -> dict[tuple[int, int], float]:
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


def _use(rows: Sequence[Row]) -> tuple[Literal["less", "more", "alike", "not clear"], str]:
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


def _moved(at: Mapping[tuple[str, int | None], Row], lengths: Sequence[int]) -> str | None:
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
