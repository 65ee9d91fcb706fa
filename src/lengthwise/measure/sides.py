"""What is known of one side of a comparison beside its predictions, and of two sides together.

The same facts travel in the records of a direct comparison and in those of kept predictions.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lengthwise.measure.predictions import Predictions
from lengthwise.measure.rounding import ELSEWHERE, MOST, least_of, most_of, own_rounding
from lengthwise.subjects import LoadedModel

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from lengthwise.measure.repeated_windows import Layout
    from lengthwise.subjects import Predictor

_NO_WEIGHTS = 1.5 * ELSEWHERE
"""The least tolerance where neither side can be read again with other rounding."""


def side_of(
    model: Predictor,
    bos_id: int | None,
    windows: NDArray[np.int64],
    views: NDArray[np.int64],
    predicted: Sequence[Predictions],
    layout: Layout,
    other: Predictor | None,
    again: bool,
) -> dict[str, Any]:
    """The facts of a side.

    Args:
        model: the side.
        bos_id: what it begins a text with.
        windows, views, predicted: of a pair: its tokens, what is read of them, what was predicted.
        layout: the layout of the windows.
        other: the other side; None where it is not known yet.
        again: whether the first window is read again, to see how far the side differs from itself.
    """
    weights = isinstance(model, LoadedModel)
    facts: dict[str, Any] = {
        "bos": bos_id,
        "weights": weights,
        "least": least_of(model),
        "most": most_of(model),
        "vocabulary": getattr(model, "vocab_size", None),
        "template": zlib.crc32(str(getattr(model.tokenizer, "chat_template", None)).encode()),
    }
    if again:
        beside_weights = other is None or isinstance(other, LoadedModel)
        if beside_weights or not weights:
            facts["floor"] = own_rounding(model, windows[0], views[0], predicted[0], layout)
        if weights and (other is None or not beside_weights):
            facts["floor_16"] = own_rounding(model, windows[0], views[0], predicted[0], layout, sixteen=True)
    return facts


def between(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    """The facts of two sides together."""
    both_elsewhere = not (a["weights"] or b["weights"])
    found: dict[str, Any] = {
        "least": max(a["least"], b["least"], _NO_WEIGHTS if both_elsewhere else 0.0),
        "other_ids": int(a["bos"] != b["bos"]),
        "other_template": a["template"] != b["template"],
        "more_rows": (b["vocabulary"] or 0) - (a["vocabulary"] or 0)
        if a["vocabulary"] and b["vocabulary"]
        else 0,
    }
    for name, one, other in (("floor_a", a, b), ("floor_b", b, a)):
        # Beside other software, the weights here are rounded as in 16 bits.
        kind = "floor_16" if one["weights"] and not other["weights"] else "floor"
        if one.get(kind) is not None:
            found[name] = {**one[kind], "most": MOST["bfloat16"] if kind == "floor_16" else one["most"]}
    return found
