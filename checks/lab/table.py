"""The table of all pairs: kind -> what is planted, or sound, and what must be said of it."""

from __future__ import annotations

from checks.lab import (
    cache_faults,
    input_faults,
    mask_faults,
    part_faults,
    pattern_faults,
    rope_faults,
    server_faults,
    sound,
    weight_faults,
)
from checks.lab.sides import Pair

PAIRS: dict[str, tuple[Pair, ...]] = {
    "cache": cache_faults.PAIRS,
    "rope": rope_faults.PAIRS,
    "mask": mask_faults.PAIRS,
    "weights": weight_faults.PAIRS,
    "input": input_faults.PAIRS,
    "server": server_faults.PAIRS,
    "pattern": pattern_faults.PAIRS,
    "part": part_faults.PAIRS,
    "sound": sound.PAIRS,
}
