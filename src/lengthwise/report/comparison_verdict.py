"""What the numbers of `compare` say, in words: first the evidence, then what is known to cause it.

`SHOWN` has a sentence for every pattern; what makes such a pattern is in `comparison_causes`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from lengthwise.measure.change_point import mean
from lengthwise.report.comparison_causes import CAUSES, SIDES
from lengthwise.report.comparison_curve import difference_curve, tolerances_of, used_alike
from lengthwise.report.comparison_evidence import Evidence, Kind, evidence
from lengthwise.results import Row, percent

LEAST_WARM = 0.02
"""Nats a token up to which a warm prefix cache differs by rounding alone."""
WIDE = 64
"""From so many tokens on the end of the first tokens is said as a range."""


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


def verdict(rows: Sequence[Row]) -> list[str]:
    """How far apart both sides are, where, in which direction, what does such a thing; how far context is used."""
    seen = evidence(rows)
    if seen is None:
        return []
    at = words_of(rows, seen)
    text = seen.moves or SHOWN[seen.pattern].format(**at)
    causes = next(each for _, applies, each in CAUSES if applies(seen, at)).format(**at)
    warmed = ""
    # Not the tolerance: such a server differs from itself, which raises it.
    if at["prefix_cache"] > max(LEAST_WARM, 2 * at["floor_a"]):
        warmed = (
            f"With its prefix cache the server predicts otherwise than without: {at['prefix_cache']:.2g} nats per "
            "token apart. The cache returns keys of another prompt, or of other positions."
        )
    sees = next((each for _, applies, each in SIDES if applies(seen, at)), "")
    begun = at["other_ids"] and seen.pattern == "equal"
    note = (
        "The sides begin a text otherwise (see the note on BOS), which changes nothing here." if begun else ""
    )
    whole = [row for row in rows if row.is_whole and row.value is not None]
    return [" ".join(part for part in (text, causes, sees, note, warmed) if part), used_alike(whole)[1]]


def words_of(rows: Sequence[Row], seen: Evidence) -> defaultdict[str, Any]:
    """What sentences and causes ask for: numbers at the greatest length, 0 where there is none, and their words."""
    whole = [row for row in rows if row.is_whole and row.value is not None and row.distance is None]
    longest = max(row.length or 0 for row in whole)
    at = defaultdict(float, {row.metric: row.value or 0.0 for row in whole if row.length in (longest, None)})
    for metric in ("largest", "prefix_cache"):
        at[metric] = max((row.value or 0.0 for row in whole if row.metric == metric), default=0.0)
    curve, tolerances = difference_curve(rows), tolerances_of(rows)
    early = [part for part in curve if part.end <= at["cached_from"]]
    exact = bool(early) and all(p.mean <= tolerances.get((p.begin, p.end), at["tolerance"]) for p in early)
    low, high = seen.place or (0, 0)
    begin, end = seen.again or (0, 0)
    apart = high > low
    return at | {
        "exact": exact,
        "mean": mean(curve),
        "decoded": all(part.begin for part in curve),
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
