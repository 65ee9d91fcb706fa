"""What the differences between a served model and its checkpoint mean, by rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lengthwise.results import Row


def verdict(rows: Sequence[Row]) -> list[str]:
    """One sentence on where both are equal and how far they are apart beyond, and one on what does that.

    By `equal_up_to` of each length. A place that is the same at every length that reaches it is a matter of the
    position; one that moves with the length, of the length of the whole input.
    """
    whole = {row.length: row for row in rows if row.metric == "equal_up_to" and row.value is not None}
    lengths = sorted(length for length in whole if length is not None)
    if not lengths:
        return []
    places = {length: int(whole[length].value or 0) for length in lengths}
    longest = lengths[-1]
    if all(places[length] == length for length in lengths):
        mean, largest, tolerance = (
            _at(rows, metric, longest) for metric in ("difference", "largest", "tolerance")
        )
        return [
            f"The served model predicts as the checkpoint does, up to {longest:,} tokens: {mean:.2g} nats per token "
            f"apart on average, {largest:.2g} at most (tolerance {tolerance:g})."
        ]
    unequal = [length for length in lengths if places[length] < length]
    first, last = unequal[0], unequal[-1]
    place = places[first]
    beyond, largest = _beyond(rows, last, places[last]), _at(rows, "largest", last)
    apart = f"{beyond:.2g} nats per token apart on average, {largest:.2g} at most"
    # With a longer input the same place may fall into the next bin.
    by_position = all(places[length] == min(length, place) for length in lengths)
    if by_position and place == 0:
        return [
            f"The served model differs from the checkpoint from the first tokens on: {apart} in windows of "
            f"{longest:,} tokens.",
            "That is what other weights, a quantization, another BOS or a rope scaling of all positions do.",
        ]
    if by_position:
        return [
            f"The served model is equal to the checkpoint up to {place:,} tokens, then {apart} up to {longest:,}.",
            "That is what another rope scaling, a sliding window or a cut context do.",
        ]
    equal = [length for length in lengths if places[length] == length]
    some = " and ".join(f"{length:,}" for length in equal)
    said = f"equal in windows of {some} tokens" if equal else "equal at no length"
    return [
        f"The served model is {said}; {_moves(places, first, last)}: {apart} in windows of {last:,}.",
        "The place moves with the length of the window, as with a rope scaling that depends on it.",
    ]


def _moves(places: Mapping[int, int], first: int, last: int) -> str:
    found = [
        f"in windows of {length:,} tokens it differs from token {places[length]:,} on"
        for length in (first, last)
    ]
    return found[0] if first == last else ", ".join(found)


def _at(rows: Sequence[Row], metric: str, length: int) -> float:
    found = (row for row in rows if row.metric == metric and row.length == length and row.position is None)
    return next((row.value for row in found if row.value is not None), 0.0)


def _beyond(rows: Sequence[Row], length: int, place: int) -> float:
    """The mean difference of the positions from `place` on."""
    bins = [
        (row.value, row.n)
        for row in rows
        if row.metric == "difference" and row.length == length
        if row.position is not None and row.position >= place and row.value is not None and row.n is not None
    ]
    return sum(value * n for value, n in bins) / sum(n for _, n in bins)
