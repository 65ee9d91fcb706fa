"""The Triton tile at real sizes: errors beside the torch tile's, both against fp64. With `speed`: time by block size.

The cases of the tests have small blocks. Here are those that the objective has, with up to 512 threads on a row.
"""

from __future__ import annotations

import itertools
import os
import statistics
import sys
import time
from typing import Any

if "cpu" in sys.argv:
    # Before triton is imported.
    os.environ["TRITON_INTERPRET"] = "1"

import torch
from part import Result, attempt, options

from lengthwise.alignment import kernels
from lengthwise.alignment.divergences import Objective
from lengthwise.alignment.tile import Activation, Tiles, wide_dtype
from lengthwise.alignment.triton import TritonTiles

STATISTICS = ("top", "total", "own", "cross", "score")
TERMS: tuple[tuple[str, Activation], ...] = (
    ("sce", (1.0, None)),
    ("jeffreys", (1.0, 30.0)),
    ("js", (0.5, 20.0)),
    ("entropy", (1.0, None)),
)
# Block and warps: the second last is what `TritonTiles` takes.
BLOCKS = ((1024, 4), (2048, 4), (2048, 8), (4096, 8), (4096, 16), (8192, 16))


def tiles(kind: Any, vocabulary: int, dtype: torch.dtype, device: str, term: tuple[str, Activation]) -> Any:
    name, activation = term
    settings = {
        "dtype": dtype,
        "device": torch.device(device),
        "activation": activation,
        "rule": Objective(divergence=name).rule,
        "weight": 0.5,
        "gradient": True,
    }
    return kind(vocabulary, **settings) if kind is TritonTiles else Tiles(8, vocabulary, **settings)


def rows(pairs: int, vocabulary: int, dtype: torch.dtype, device: str) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator(device).manual_seed(1)
    long = torch.randn(pairs, 1, vocabulary, generator=generator, device=device)
    apart = torch.randn(pairs, 2, vocabulary, generator=generator, device=device)
    labels = torch.randint(vocabulary, (pairs, 2, 1), generator=generator, device=device)
    weights = torch.ones(pairs, 2, 1, dtype=wide_dtype(dtype), device=device)
    return (3 * (long + 0.1 * apart)).to(dtype), labels, weights


def error(found: torch.Tensor, true: torch.Tensor) -> float:
    return ((found.double() - true).norm() / true.norm()).item()


def compare(vocabulary: int, dtype: torch.dtype, device: str, term: tuple[str, Activation]) -> dict[str, Any]:
    """Relative errors (Frobenius) of gradient and statistics: the Triton tile's, the torch tile's."""
    logits, labels, weights = rows(16, vocabulary, dtype, device)
    found: dict[str, Any] = {}
    gradients, parts = {}, {}
    for name, kind, of in (
        ("truth", Tiles, torch.float64),
        ("torch", Tiles, dtype),
        ("triton", TritonTiles, dtype),
    ):
        gradients[name] = logits.to(of, copy=True)
        tile = tiles(kind, vocabulary, of, device, term)
        sums = tile.pairs(gradients[name], labels, weights.to(wide_dtype(of)))
        parts[name] = dict(zip(STATISTICS, sums, strict=False))
    true = gradients["truth"]
    for name in ("triton", "torch"):
        found[f"{name} gradient"] = error(gradients[name], true)
        for part, value in parts[name].items():
            found[f"{name} {part}"] = error(value, parts["truth"][part].double())
    found["largest difference"] = (gradients["triton"].double() - true).abs().max().item()
    found["largest gradient"] = true.abs().max().item()
    again = logits.clone()
    tiles(TritonTiles, vocabulary, dtype, device, term).pairs(again, labels, weights)
    found["repeats"] = torch.equal(again, gradients["triton"])

    single, kept = logits.flatten(0, 1).clone(), logits.flatten(0, 1).double()
    flat = labels.flatten(0, 1), weights.flatten(0, 1)
    tiles(TritonTiles, vocabulary, dtype, device, term).rows(single, *flat)
    tiles(Tiles, vocabulary, torch.float64, device, term).rows(kept, flat[0], flat[1].double())
    found["triton rows"] = error(single, kept)
    # Not a number compares false.
    found["ok"] = found["repeats"] and found["triton gradient"] <= 1.1 * found["torch gradient"] + 1e-6
    return found


def speed(vocabulary: int, device: str, block: int | None, warps: int) -> dict[str, Any]:
    """Milliseconds of SCE's kernel on 1024 pairs in bf16 (of the torch tile without a block), and bytes moved."""
    logits, labels, weights = rows(1024, vocabulary, torch.bfloat16, device)
    kind = Tiles if block is None else TritonTiles
    tile = tiles(kind, vocabulary, torch.bfloat16, device, TERMS[0])
    if block is not None:
        tile._constants |= {"BLOCK": block, "num_warps": warps}
    kept, times = logits.clone(), []
    for index in range(8):
        logits.copy_(kept)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        tile.pairs(logits, labels, weights)
        end.record()
        torch.cuda.synchronize()
        if index > 2:
            times.append(start.elapsed_time(end))
    middle = statistics.median(times)
    # Two sweeps read, one writes.
    return {"ms": middle, "tb_per_s": 3 * logits.nbytes / middle / 1e9}


def speeds(result: Result, device: str, until: float) -> None:
    """The kernel by block and warps, and the torch tile."""
    times: dict[str, Any] = {}
    for block, warps in ((None, 0), *BLOCKS):
        if time.monotonic() > until:
            break
        name = "the torch tile" if block is None else f"block {block}, {warps} warps"
        times[name] = attempt(lambda b=block, w=warps: speed(128256, device, b, w))
        print(name, times[name])
        result.keep(speed=times)
    wrong = [f"{name}: {found['error']}" for name, found in times.items() if "error" in found]
    result.keep(ok=not wrong, failures=wrong, headline=f"{len(times) - len(wrong)} of {len(times)} timed")


def main() -> None:
    asked = options()
    # Importing torch came before.
    until = time.monotonic() + asked.seconds - 20
    result = Result(asked.result)
    result.keep(ok=None, headline="did not end")
    if "speed" in asked.rest:
        if asked.device == "cpu":
            result.keep(skipped=True, headline="skipped: the interpreter's speed says nothing")
        else:
            speeds(result, asked.device, until)
        return
    on_gpu = asked.device == "cuda"
    device = torch.device(asked.device, 0) if on_gpu else torch.device("cpu")

    def trial() -> dict[str, Any]:
        return {
            f"{dtype}, {name}": kernels._error(device, dtype, name, activation) / bound
            for dtype, bound in kernels._TOLERANCE.items()
            for name, activation in kernels._TRIALS
        }

    # As shares of what is allowed: above 1 the objective would leave the kernels.
    result.keep(trial=attempt(trial))
    print("trial:", result["trial"])
    compared: dict[str, Any] = {}
    sizes = (128256, 151936, 5003) if on_gpu else (700,)
    dtypes = (torch.bfloat16, torch.float32, torch.float16) if on_gpu else (torch.float32,)
    for vocabulary, dtype, term in itertools.product(sizes, dtypes, TERMS):
        if time.monotonic() > until:
            break
        name = f"V={vocabulary}, {dtype}, {term[0]}, {term[1]}"
        found = attempt(lambda v=vocabulary, d=dtype, t=term: compare(v, d, asked.device, t))
        compared[name] = found
        print(name, {key: f"{value:.3g}" for key, value in found.items() if isinstance(value, float | bool)})
        result.keep(compared=compared)
        if "CUDA error" in found.get("error", ""):
            # After a wrong access every later call fails as well.
            break
    wrong = [
        f"{name}: {found.get('error', found)}" for name, found in compared.items() if not found.get("ok")
    ]
    passes = "error" not in result["trial"] and max(result["trial"].values()) <= 1
    result.keep(
        ok=passes and not wrong,
        headline=f"trial {'passes' if passes else 'FAILS'}; "
        f"{len(compared) - len(wrong)} of {len(compared)} comparisons good",
        failures=([] if passes else [f"trial: {result['trial']}"]) + wrong,
    )


if __name__ == "__main__":
    main()
