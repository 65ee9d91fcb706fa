"""What the numbers of `served` say, in sentences for the terminal and the page."""

from __future__ import annotations

from collections.abc import Sequence

from lengthwise.results import Row


def verdict(rows: Sequence[Row]) -> list[str]:
    """One sentence on where both are equal and how far they are apart beyond, and one on what does that.

    By `equal_up_to` of each length. A place that is the same at every length that reaches it is a matter of the
    position; one that moves with the length, of the length of the whole input.
    """
    at = {
        (row.metric, row.length or 0): row.value
        for row in rows
        if row.position is None and row.value is not None
    }
    places = {length: int(place) for (metric, length), place in at.items() if metric == "equal_up_to"}
    if not places:
        return []
    longest, unequal = max(places), sorted(length for length, place in places.items() if place < length)
    largest = f"{at['largest', unequal[-1] if unequal else longest]:.2g} at most"
    if not unequal:
        return [
            f"The served model predicts as the checkpoint does, up to {longest:,} tokens: "
            f"{at['difference', longest]:.2g} nats per token apart on average, {largest} "
            f"(tolerance {at['tolerance', longest]:g})."
        ]
    last, place = unequal[-1], places[unequal[0]]
    bins = [row for row in rows if row.metric == "difference" and row.length == last]
    beyond = [(row.value or 0.0, row.n or 0) for row in bins if (row.position_end or 0) > places[last]]
    mean = sum(value * n for value, n in beyond) / sum(n for _, n in beyond)
    apart = f"{mean:.2g} nats per token apart on average, {largest}"
    # With a longer input the same place may fall into the next bin.
    if any(found != min(length, place) for length, found in places.items()):
        equal = " and ".join(f"{length:,}" for length in sorted(places) if length not in unequal)
        moves = ", ".join(
            f"in windows of {length:,} tokens it differs from token {places[length]:,} on"
            for length in sorted({unequal[0], last})
        )
        return [
            f"The served model is {f'equal in windows of {equal} tokens' if equal else 'equal at no length'}; "
            f"{moves}: {apart} in windows of {last:,}.",
            "The place moves with the length of the window, as with a rope scaling that depends on it.",
        ]
    if place == 0:
        return [
            f"The served model differs from the checkpoint from the first tokens on: {apart} in windows of "
            f"{longest:,} tokens.",
            "That is what other weights, a quantization, another BOS or a rope scaling of all positions do.",
        ]
    return [
        f"The served model is equal to the checkpoint up to {place:,} tokens, then {apart} up to {longest:,}.",
        "That is what another rope scaling, a sliding window or a cut context do.",
    ]
