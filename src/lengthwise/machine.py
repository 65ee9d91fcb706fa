"""The speed of this machine, for time estimates."""

from __future__ import annotations

import time


def product_rate(device: str, dtype: str, *, size: int | None = None) -> float:
    """Floating-point operations per second of a matrix product, measured now (best of three).

    Args:
        device: a torch device.
        dtype: "float32", "bfloat16", ...
        size: rows and columns; default 1024 on a CPU, 8192 on an accelerator.
    """
    import torch

    size = size or (1024 if device == "cpu" else 8192)
    a, b = (torch.ones(size, size, dtype=getattr(torch, dtype), device=device) for _ in range(2))
    best = float("inf")
    for _ in range(3):
        started = time.perf_counter()
        # Reading one number waits for an accelerator to finish.
        (a @ b)[0, 0].item()
        best = min(best, time.perf_counter() - started)
    return 2 * size**3 / best
