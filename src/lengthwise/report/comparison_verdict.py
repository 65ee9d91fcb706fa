"""What the numbers of `compare` say, in words: first the evidence, then what is known to cause it.

`SHOWN` has a sentence for every pattern, `CAUSES` what makes such a pattern, in order of preference.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lengthwise.measure.change_point import mean
from lengthwise.report.comparison_evidence import (
    ALL_ONE_SIDED,
    APART,
    NEARLY_ALL,
    Evidence,
    Kind,
    difference_curve,
    evidence,
    moved,
    tolerances_of,
)
from lengthwise.report.comparison_use import used_alike
from lengthwise.results import Row, percent

FAR = 0.5
"""Nats a token from which on a difference is more than precision."""
FEW_BITS = 0.5
"""Nats a token up to which keys and values in few bits are a likely cause of what a cache does."""
LEAST_WARM = 0.02
"""Nats a token up to which a warm prefix cache differs by rounding alone."""
WIDE = 64
"""From so many tokens on the end of the first tokens is said as a range."""
SEEN = 0.2
"""Nats by which the loss of B must fall, and the share of A's loss, to suspect that B sees what it predicts."""


SHOWN: Mapping[Kind, str] = {
    "equal": "B predicts as A does, up to {longest:,} tokens: {size:.2g} nats per token apart on average, "
    "{largest:.2g} at most. Up to {tolerance:.2g} on average is rounding here.",
    "undecided": "Whether B predicts as A does cannot be told: rounding alone moves a prediction by {size:.2g} nats "
    "per token here. Compare in float32.",
    "all positions": "B differs from A by {size:.2g} nats per token at all positions alike{cached}{signed}.",
    "from a place": "B is equal to A up to {low:,} tokens{resolution}, and {size:.2g} nats per token apart beyond, "
    "up to {until:,}{again}{signed}.",
    "growing": "B differs from A{cached}, and more further on: by {before:.2g} nats per token before token {low:,} "
    "and by {size:.2g} beyond{changes}, up to {until:,}{again}{signed}.",
    "first tokens": "B differs from A by {size:.2g} nats per token in the first {ends} tokens{cached}, and by "
    "{before:.2g} beyond{again}{signed}.",
    "some windows": "B differs from A in {windows} of the windows, and in the others not: {size:.2g} nats per "
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
        lambda seen, at: (
            seen.pattern == "equal" and _not_exact(at) and max(at["most_a"], at["most_b"]) > 0.01
        ),
        "A difference smaller than that could not have been seen in 16 bits; in float32 it could.",
    ),
    (
        "equal, not exactly",
        lambda seen, at: seen.pattern == "equal" and _not_exact(at),
        "A difference smaller than that could not have been seen; in float64 it could.",
    ),
    ("equal", lambda seen, at: seen.pattern in ("equal", "undecided"), ""),
    (
        "unstable",
        lambda seen, at: seen.pattern == "unstable",
        "A server that answers by batch or by what it holds in its cache does this, several servers behind one "
        "address, a state that stays between texts, kernels that add in any order, and dropout.",
    ),
    (
        "the future is seen",
        lambda seen, at: _everywhere(seen) and _much_better(seen, at),
        "A loss that is so much lower means that A is the side with the fault, that B sees what it predicts (a mask "
        "that leaks, or the text in its training), or that its numbers are no log-probabilities (a temperature, a "
        "cut-off).",
    ),
    (
        "more rows",
        lambda seen, at: bool(at["more_rows"]) and seen.pattern == "all positions",
        "The vocabularies have other sizes ({more_rows:+,.0f} rows in B), and every row takes a share of the "
        "probability.",
    ),
    (
        "one-sided, better",
        lambda seen, at: _everywhere(seen) and seen.sign == "better" and _one_sided(seen, at),
        "Nearly every token that differs is likelier in B, which no precision does: A gives a share of the "
        "probability away (a bias of the output head, rows that were added, a filter), B sees what it predicts (a "
        "mask that leaks), or its numbers are no log-probabilities (a temperature, a cut-off).",
    ),
    (
        "some windows",
        lambda seen, at: seen.pattern == "some windows",
        "Requests that are mixed up do this (a batch, a prefix cache, padding), another model that answers some of "
        "them, and texts of which something is cut off or replaced.",
    ),
    (
        "some tokens",
        lambda seen, at: seen.pattern == "some tokens",
        "Rows of the vocabulary that are others do this (an embedding, the output head), tokens of the text that are "
        "replaced or swapped, a filter of the output, "
        "values beyond a number format, and single errors of memory.",
    ),
    (
        "one-sided, a share",
        lambda seen, at: _everywhere(seen) and not seen.cached and seen.one_sided and seen.size < FAR,
        "Nearly every token is {likelier} in B, and single ones are up to {largest:.2g} nats apart, which no "
        "precision does: another share of the probability goes to some rows of the output head (a bias, rows that "
        "were added, a filter), or {likelier_side} sees what it predicts (a mask that leaks).",
    ),
    (
        "by length",
        lambda seen, at: bool(at["by_length_a"]) != bool(at["by_length_b"]),
        "Side {by_length} predicts the same tokens otherwise where more text follows them: {otherwise:.2g} nats per "
        "token apart, and the same again when it reads the same. A rope scaling that depends on the length of the "
        "input does this, and a mask that lets a token see what follows.",
    ),
    (
        "moves",
        lambda seen, at: seen.moves,
        "The place moves with the length of the window, as with a rope scaling that depends on it, or a kernel that "
        "fails in the last tokens.",
    ),
    (
        "another beginning",
        lambda seen, at: bool(at["other_ids"]),
        "The sides begin a text otherwise (see the note on BOS), which alone can do this: --bos never and --bos "
        "always read both alike.",
    ),
    (
        "at both ends",
        lambda seen, at: seen.pattern in ("first tokens", "growing") and seen.again is not None,
        "What differs at both ends and not between is no beginning alone, and no growth: tokens that are replaced, "
        "a mask or positions of some places, a cache that is read or written wrongly at its ends.",
    ),
    (
        "first tokens, cached",
        lambda seen, at: seen.pattern == "first tokens" and seen.cached,
        "What is near the place from where the cache is read differs most: the first passes through the cache, "
        "their positions or their mask.",
    ),
    (
        "first tokens, and beyond",
        lambda seen, at: seen.pattern == "first tokens" and seen.size < APART * APART * seen.before,
        "The beginning of the input does this (another BOS, a template, tokens before the text, a part that is cut "
        "off), or a difference of all positions that early tokens show more: a mask of near tokens, other weights.",
    ),
    (
        "first tokens",
        lambda seen, at: seen.pattern == "first tokens",
        "The beginning of the input does this: another BOS, a template, tokens before the text, or a beginning that "
        "is cut off or seen otherwise.",
    ),
    (
        "from a place, cached",
        lambda seen, at: seen.pattern == "from a place" and seen.cached,
        "That is a fault of the cache or of long context: a window or a budget beyond which it forgets, an offset of "
        "positions, values or keys, or a sliding window.",
    ),
    (
        "from a place",
        lambda seen, at: seen.pattern == "from a place",
        "That is a fault of long context, or of what is read there: another rope scaling, a sliding window or "
        "another mask, a cut context, a kernel that fails from there on, tokens that are dropped or replaced.",
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
        "growing",
        lambda seen, at: seen.pattern == "growing",
        "That is long context (another rope base or scaling, positions that drift, errors that add up), or a "
        "difference of all positions (weights, a mask, tokens before the text, the output) in a model that is less "
        "sure of late tokens.",
    ),
    (
        "far",
        lambda seen, at: seen.size >= FAR,
        "That is more than precision: other weights, an adapter that was not loaded, another rope base or scaling, a "
        "mask, or log-probabilities of other tokens or of another base.",
    ),
    (
        "flat",
        lambda seen, at: True,
        "Precision does this (another dtype, quantized weights), other weights or an adapter, a rope scaling of all "
        "positions (YaRN), other positions, a mask of near tokens, tokens before the text, a temperature, and rows "
        "added to the vocabulary.",
    ),
)
"""(name, whether it applies, what does this); the first that applies is said."""


SIDES: tuple[tuple[str, Callable[[Evidence, Mapping[str, float]], bool], str], ...] = (
    ("no numbers", lambda seen, at: seen.pattern in ("equal", "undecided", "unstable"), ""),
    (
        "much better",
        lambda seen, at: not _everywhere(seen) and _much_better(seen, at),
        "A loss that is so much lower means that the fault is in A, or that B sees what it predicts.",
    ),
    (
        "better, one-sided",
        lambda seen, at: not _everywhere(seen) and seen.sign == "better" and _one_sided(seen, at),
        "Nearly every token that differs is likelier in B: the fault is in A, or B sees what it predicts.",
    ),
    (
        "worse, one-sided",
        lambda seen, at: (
            seen.sign == "worse" and _one_sided(seen, at) and not (_everywhere(seen) and seen.size < FAR)
        ),
        "Nearly every token that differs is less likely in B: the fault is in B, or A sees what it predicts.",
    ),
)
"""(name, whether it applies, which side may be at fault), said after the causes; the first that applies."""


def _not_exact(at: Mapping[str, float]) -> bool:
    """Whether a side differs from itself by more than float32 mostly rounds."""
    return max(at["floor_a"], at["floor_b"]) > 1e-4


def _everywhere(seen: Evidence) -> bool:
    """Whether tokens of all positions differ."""
    return seen.pattern in ("all positions", "growing")


def _much_better(seen: Evidence, at: Mapping[str, float]) -> bool:
    """Whether the loss of B is lower by more than a better model explains."""
    return seen.sign == "better" and -seen.shift > max(SEEN, SEEN * at["loss_a"])


def _one_sided(seen: Evidence, at: Mapping[str, float]) -> bool:
    """Whether nearly all tokens that differ do so in the same direction; rounding has no share in the sums."""
    return abs(at["one_sided"]) >= ALL_ONE_SIDED or abs(seen.shift) >= NEARLY_ALL * at["difference"]


def verdict(rows: Sequence[Row]) -> list[str]:
    """How far apart both sides are, where, in which direction, what does such a thing; how far context is used."""
    seen = evidence(rows)
    if seen is None:
        return []
    at = _facts(rows, seen)
    words = words_of(rows, seen)
    text = _shown(rows, seen, at, words)
    causes = next(each for _, applies, each in CAUSES if applies(seen, at)).format(**words)
    warmed = ""
    # Not the tolerance: such a server differs from itself, which raises it.
    if at["prefix_cache"] > max(LEAST_WARM, 2 * at["floor_a"]):
        warmed = (
            f"With its prefix cache the server predicts otherwise than without: {at['prefix_cache']:.2g} nats per "
            "token apart. The cache returns keys of another prompt, or of other positions."
        )
    sees = next((each for _, applies, each in SIDES if applies(seen, at)), "")
    note = ""
    if at["other_ids"] and seen.pattern == "equal":
        note = "The sides begin a text otherwise (see the note on BOS), which changes nothing here."
    whole = [row for row in rows if row.is_whole and row.value is not None]
    return [" ".join(part for part in (text, causes, sees, note, warmed) if part), used_alike(whole)[1]]


def _facts(rows: Sequence[Row], seen: Evidence) -> defaultdict[str, float]:
    """The numbers that sentences and causes ask for; 0 where there is none."""
    whole = [row for row in rows if row.is_whole and row.value is not None and row.distance is None]
    longest = max(row.length or 0 for row in whole)
    at = defaultdict(float, {row.metric: row.value or 0.0 for row in whole if row.length in (longest, None)})
    for metric in ("largest", "prefix_cache"):
        at[metric] = max((row.value or 0.0 for row in whole if row.metric == metric), default=0.0)
    curve, tolerances = difference_curve(rows), tolerances_of(rows)
    early = [part for part in curve if part.end <= at["cached_from"]]
    exact = bool(early) and all(p.mean <= tolerances.get((p.begin, p.end), at["tolerance"]) for p in early)
    at |= {"longest": longest, "exact": float(exact), "mean": mean(curve), "moves": float(seen.moves)}
    at["decoded"] = float(all(part.begin for part in curve))
    return at


def words_of(rows: Sequence[Row], seen: Evidence) -> dict[str, Any]:
    """What the sentences by pattern name."""
    at = _facts(rows, seen)
    low, high = seen.place or (0, 0)
    longest, apart = int(at["longest"]), high > low
    begin, end = seen.again or (0, 0)
    return {
        **at,
        "size": seen.size,
        "before": seen.before,
        "low": low,
        "high": high,
        "longest": longest,
        "signed": {
            "worse": f"; its loss is {seen.shift:.2g} higher",
            "better": f"; its loss is {-seen.shift:.2g} lower",
            "either": "",
        }[seen.sign],
        "resolution": f" (it begins between {low:,} and {high:,})" if apart else "",
        "changes": f" (it changes between {low:,} and {high:,})" if apart else "",
        "ends": f"{low:,} to {high:,}" if low and high - low > WIDE else f"{high:,}",
        "until": begin if end == longest else longest,
        "again": ", and equal again from there on"
        if end == longest
        else f", but equal from {begin:,} to {end:,}"
        if end
        else "",
        "cached": f", once a cache is read (from token {at['cached_from']:,.0f} on)"
        if at["cached_from"]
        else "",
        "windows": percent(at["windows_apart"]),
        "unstable": "A" if at["floor_a"] > at["floor_b"] else "B",
        "likelier": "likelier" if at["one_sided"] > 0 else "less likely",
        "likelier_side": "B" if at["one_sided"] > 0 else "A",
        "by_length": "A" if at["by_length_a"] > at["by_length_b"] else "B",
        "otherwise": max(at["by_length_a"], at["by_length_b"]),
    }


def _shown(rows: Sequence[Row], seen: Evidence, at: Mapping[str, float], words: Mapping[str, Any]) -> str:
    """The sentence of the pattern."""
    if seen.moves:
        whole = [row for row in rows if row.is_whole and row.value is not None and row.distance is None]
        places = {(row.metric, row.length): row for row in whole}
        lengths = sorted({row.length for row in whole if row.metric == "difference" and row.length})
        return moved(rows, places, lengths) or ""
    return SHOWN[seen.pattern].format(**words)
