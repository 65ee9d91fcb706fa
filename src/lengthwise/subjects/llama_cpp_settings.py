"""Settings of a model that llama.cpp runs, in llama.cpp's numbers."""

from __future__ import annotations

import re
from typing import Any

from lengthwise.errors import UsageError

CACHE_TYPES = {
    "f32": 0,
    "f16": 1,
    "bf16": 30,
    "q8_0": 8,
    "q5_1": 7,
    "q5_0": 6,
    "q4_1": 3,
    "q4_0": 2,
    "iq4_nl": 20,
}
"""The types of keys and values in the cache, by llama.cpp's names, with their numbers in ggml.h."""
ROPE_SCALINGS = {"none": 0, "linear": 1, "yarn": 2}
"""llama.cpp's rope scalings, with their numbers in llama.h."""


def rope_settings(scaling: str | None) -> dict[str, Any]:
    """The context's settings for `none`, `linear:FACTOR` or `yarn:FACTOR`; None: as the file says."""
    if scaling is None:
        return {}
    match = re.fullmatch(r"(none)|(linear|yarn):(\d+(?:\.\d+)?)", scaling)
    if match is None or (match[3] and float(match[3]) <= 1):
        expected = "none, linear:FACTOR or yarn:FACTOR, with a factor above 1"
        raise UsageError(f"rope_scaling is {scaling!r}", expected=expected)
    scale = {"rope_freq_scale": 1 / float(match[3])} if match[3] else {}
    return {"rope_scaling_type": ROPE_SCALINGS[match[1] or match[2]], **scale}
