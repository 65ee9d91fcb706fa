"""Which tile a device has: the Triton kernels, where they pass a trial, or else the torch tile."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING

import torch

from lengthwise.alignment.divergences import DIVERGENCES, Divergence
from lengthwise.alignment.tile import Activation, Tiles, wide_dtype

if TYPE_CHECKING:
    from lengthwise.alignment.triton import TritonTiles

# Logits of one view in a tile. On a CPU its four to eight scratch tensors of this size have to stay in the
# cache that each thread has.
_TILE_LOGITS_A_THREAD = 2**16
_TILE_LOGITS_ELSEWHERE = 2**23

# Device types with a tile of their own, where triton is installed. All others have the torch tile.
TRITON_DEVICES = {"cuda"}

# The trial of `kernels_pass`: a size that no block divides, and the two longest ways through the kernels.
_PAIRS, _VOCABULARY = 3, 5003
_TRIALS: tuple[tuple[str, Activation], ...] = (("sce", (1.0, None)), ("js", (0.5, 20.0)))

# Of the largest gradient: rounding of the arithmetic, and of 16-bit results.
_TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 2e-2}


@functools.cache
def kernels_pass(device: torch.device) -> bool:
    """Whether `TritonTiles` agrees with `Tiles` on `device`; tried once a process.

    The kernels have run on one kind of GPU and with one version of Triton. So the first objective on a device
    compares the two tiles on a few rows. Kernels that fail or disagree are not used in this process, and a warning
    says so.
    """
    try:
        worst = max(
            _error(device, dtype, *trial) / bound for dtype, bound in _TOLERANCE.items() for trial in _TRIALS
        )
        if worst <= 1:
            return True
        problem = f"their gradients are off by {worst:.2g} times what rounding explains"
    except Exception as error:  # Whatever a compiler or driver raises: the torch tile needs neither.
        problem = f"{type(error).__name__}: {error}"
    warnings.warn(
        f"the objective's Triton kernels fail on {device} ({problem}); the torch tile is used, slower and "
        "with the same results. Please report this with your GPU and the versions of torch and triton.",
        RuntimeWarning,
        stacklevel=2,
    )
    return False


def _error(device: torch.device, dtype: torch.dtype, divergence: str, activation: Activation) -> float:
    """The largest difference of gradients and statistics, as a share of the largest value."""
    from lengthwise.alignment.triton import TritonTiles

    generator = torch.Generator().manual_seed(0)
    logits = (3 * torch.randn(_PAIRS, 2, _VOCABULARY, generator=generator)).to(device, dtype)
    labels = torch.randint(_VOCABULARY, (_PAIRS, 2, 1), generator=generator).to(device)
    weights = torch.ones(_PAIRS, 2, 1, dtype=wide_dtype(dtype), device=device)
    settings = {
        "dtype": dtype,
        "device": device,
        "activation": activation,
        "rule": DIVERGENCES[divergence],
        "weight": 0.5,
        "gradient": True,
    }
    found, expected = logits.clone(), logits.clone()
    theirs = TritonTiles(_VOCABULARY, **settings).pairs(found, labels, weights)
    ours = Tiles(_PAIRS, _VOCABULARY, **settings).pairs(expected, labels, weights)
    both = [(found, expected), *zip(theirs[1:4], ours[1:4], strict=True)]
    errors = [((a.double() - b.double()).abs().max() / b.double().abs().max()).item() for a, b in both]
    # NaN compares false with everything, and has to lose.
    return max(error if error == error else float("inf") for error in errors)


def tiles_on(device: torch.device, vocabulary: int, rule: Divergence) -> Callable[..., Tiles | TritonTiles]:
    """What makes the tiles of a device. Both kinds compute the same formulas in the same precision."""
    if device.type in TRITON_DEVICES and find_spec("triton") and kernels_pass(device):
        from lengthwise.alignment.triton import SOURCES, TritonTiles

        if rule.source in SOURCES:
            return TritonTiles
    on_cpu = device.type == "cpu"
    logits = _TILE_LOGITS_A_THREAD * torch.get_num_threads() if on_cpu else _TILE_LOGITS_ELSEWHERE
    return functools.partial(Tiles, max(1, logits // vocabulary))
