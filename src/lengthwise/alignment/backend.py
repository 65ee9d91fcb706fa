"""Which implementation of the objective's tile works on a device: decided here and nowhere else."""

from __future__ import annotations

import functools
import warnings
from importlib.util import find_spec
from typing import Literal

import torch

from lengthwise.alignment.divergences import Objective
from lengthwise.alignment.tile import Activation, Tiles, wide_dtype

# Device types with a tile of their own, where triton is installed. All others have the torch tile.
TRITON_DEVICES = {"cuda"}

# The trial of `kernels_pass`: a size that no block divides, and the two longest ways through the kernels.
_PAIRS, _VOCABULARY = 3, 5003
_CASES = (("sce", Activation()), ("js", Activation(scale=0.5, soft_cap=20.0)))

# Of the largest gradient: rounding of the arithmetic, and of 16-bit results.
_TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 2e-2}


def tile_on(device_type: str) -> Literal["torch", "triton"]:
    """The tile for a torch device type. Both compute the same formulas in the same precision."""
    return "triton" if device_type in TRITON_DEVICES and find_spec("triton") else "torch"


@functools.cache
def kernels_pass(device: torch.device) -> bool:
    """Whether `TritonTiles` agrees with `Tiles` on `device`; tried once a process.

    The kernels were written without a GPU to run them on. So the first objective on a device compares the two
    tiles on a few rows. Kernels that fail or disagree are not used in this process, and a warning says so.
    """
    try:
        worst = max(
            _error(device, dtype, case) / bound for dtype, bound in _TOLERANCE.items() for case in _CASES
        )
        problem = (
            None if worst <= 1 else f"their gradients are off by {worst:.2g} times what rounding explains"
        )
    except Exception as error:  # Whatever a compiler or driver raises: the torch tile needs neither.
        problem = f"{type(error).__name__}: {error}"
    if problem is not None:
        warnings.warn(
            f"the objective's Triton kernels fail on {device} ({problem}); the torch tile is used, slower and "
            "with the same results. Please report this with your GPU and the versions of torch and triton.",
            RuntimeWarning,
            stacklevel=2,
        )
    return problem is None


def _error(device: torch.device, dtype: torch.dtype, case: tuple[str, Activation]) -> float:
    """The largest difference of gradients and statistics, as a share of the largest value."""
    from lengthwise.alignment.triton import TritonTiles

    divergence, activation = case
    generator = torch.Generator().manual_seed(0)
    logits = (3 * torch.randn(_PAIRS, 2, _VOCABULARY, generator=generator)).to(device, dtype)
    labels = torch.randint(_VOCABULARY, (_PAIRS, 2, 1), generator=generator).to(device)
    weights = torch.ones(_PAIRS, 2, 1, dtype=wide_dtype(dtype), device=device)
    settings = {
        "dtype": dtype,
        "device": device,
        "activation": activation,
        "rule": Objective(divergence=divergence).rule,
        "weight": 0.5,
        "gradient": True,
    }
    found, expected = logits.clone(), logits.clone()
    theirs = TritonTiles(_VOCABULARY, **settings).pairs(found, labels, weights)
    ours = Tiles(_PAIRS, _VOCABULARY, **settings).pairs(expected, labels, weights)
    pairs = [
        (found, expected),
        (theirs.total, ours.total),
        (theirs.own, ours.own),
        (theirs.cross, ours.cross),
    ]
    errors = [((a.double() - b.double()).abs().max() / b.double().abs().max()).item() for a, b in pairs]
    # NaN compares false with everything, and has to lose.
    return max(error if error == error else float("inf") for error in errors)
