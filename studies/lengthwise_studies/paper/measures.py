"""What every table measures, and the numbers that its claims are about."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from lengthwise_studies.paired_claims import Quantity
from lengthwise_studies.paper.sizes import Size

DEPTHS = (0.0, 25.0, 50.0, 75.0)
"""Table 7's."""


def all_measures(size: Size, *, window: int) -> dict[str, dict[str, Any]]:
    """The measures of a trained arm, at training windows of `window` tokens."""
    tokens = size.tokens(size.lengths)
    found: dict[str, dict[str, Any]] = {
        "misalignment": {"lengths": [window], "windows": size.windows},
        "perplexity": {"lengths": tokens, "segments": size.segments},
        "recall": {
            "distances": size.tokens(size.distances),
            "pairs": size.pairs,
            "passage": min(64, size.trained // 4),
            "scored": min(48, size.trained // 6),
        },
    }
    if size.key_texts:
        # The evaluator is the model before training, so its whole context is within T.
        found["longppl"] = {"length": size.trained, "short": size.trained // 4, "texts": size.key_texts}
    if size.limit_windows:
        found["limit"] = {"length": max(tokens), "windows": size.limit_windows}
    if size.question_lengths:
        lengths = size.tokens(size.question_lengths)
        samples = {"depths": list(DEPTHS), "samples": size.questions}
        found["eval"] = {"tasks": ["babilong_qa1"], "mode": "likelihood", "lengths": lengths, **samples}
    if size.scores:
        found["eval longbench_e"] = dict(size.scores)
    return found


def loss(times: float) -> Quantity:
    """The loss, log of the perplexity, with windows of so many T."""
    return Quantity(heading=f"loss at {times:g}T", task="perplexity", metric="loss", times=times)


def recalled(distance: float) -> Quantity:
    """What a passage is worth that comes again after so many T."""
    return Quantity(heading=f"recall at {distance:g}T", task="recall", metric="benefit", distance=distance)


def answered(times: float, depth: float | None = None) -> Quantity:
    """Accuracy in BABILong's QA1, by likelihood."""
    heading = f"QA1 at {times:g}T" + ("" if depth is None else f", depth {depth:g} %")
    accuracy = partial(Quantity, task="babilong_qa1", metric="accuracy", unit="share")
    return accuracy(heading=heading, times=times, depth=depth)


SCORED = Quantity(heading="LongBench-E", task="longbench_e", metric="average_rows", unit="share")
"""Greedy replies."""
PARTS = (
    Quantity(heading="SCE", task="misalignment", metric="sce"),
    Quantity(heading="entropy part", task="misalignment", metric="entropy"),
    Quantity(heading="Jeffreys part", task="misalignment", metric="jeffreys"),
)


def columns(size: Size) -> Sequence[Quantity]:
    """The numbers of an arm that a table shows, as far as they are measured."""
    longest = max(size.lengths)
    tempered = f"loss at {longest:g}T, best temperature"
    found = [
        *map(loss, size.lengths),
        Quantity(heading=tempered, task="perplexity", metric="loss_best_temperature", times=longest),
        *PARTS,
        *map(recalled, size.distances),
    ]
    if size.key_texts:
        found.append(Quantity(heading="loss of key tokens", task="longppl", metric="loss_key"))
    if size.limit_windows:
        found += [
            Quantity(heading=f"{kind} to", task="limit", metric=f"{kind}_up_to", unit="tokens")
            for kind in ("sound", "used")
        ]
    return found + [answered(times, at) for times in size.question_lengths for at in (None, *DEPTHS)]
