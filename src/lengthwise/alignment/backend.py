"""Which implementation of the objective's tile works on a device: decided here and nowhere else."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Literal

# Device types with a tile of their own, where triton is installed. All others have the torch tile.
TRITON_DEVICES = {"cuda"}


def tile_on(device_type: str) -> Literal["torch", "triton"]:
    """The tile for a torch device type. Both compute the same formulas in the same precision."""
    return "triton" if device_type in TRITON_DEVICES and find_spec("triton") else "torch"
