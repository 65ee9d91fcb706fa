"""Time and memory of the objective beside its peers: each in a fresh process, all in one run.

    python bench/objective.py                          about two minutes
    python bench/objective.py --shape smollm2 --dtype float32 bfloat16

Time is the CPU time of the process over forward and backward, so that other work on the machine disturbs it
less than wall time. Memory is the peak resident set during both, beyond what was resident before and the
gradients themselves (Linux only). Every repeat runs all rows one after another; ratios are taken within a
repeat. The rows:

    fused            alignment_loss, gradient through both sides
    fused_jeffreys   as fused, with divergence "jeffreys"
    chunked_ce       alignment_loss without pairs: cross entropy of both views, nothing else
    naive            appendix D: full logits, log_softmax in their dtype, cross entropy in fp32
    naive_ce         cross entropy of full logits in fp32, nothing else
    torch_ce         torch's linear_cross_entropy on each view (where this torch has it)
    products         the three matrix products that fused cannot do without, at its chunk size
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from measuring import in_fresh_process, machine, ratios, reset_peak, resident, spread

ROWS = (
    "fused",
    "fused_jeffreys",
    "chunked_ce",
    "naive",
    "naive_ce",
    "torch_ce",
    "products",
)


@dataclass(frozen=True)
class Shape:
    width: int
    vocabulary: int
    length: int
    offset: int


SHAPES = {
    "small": Shape(width=256, vocabulary=16384, length=512, offset=128),
    "smollm2": Shape(width=576, vocabulary=49152, length=2048, offset=512),
    "wide": Shape(width=2048, vocabulary=128256, length=1024, offset=256),
}


def main() -> None:
    options = parse()
    if options.worker:
        print(json.dumps(measure(options.worker, options)))
        return
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    results = {dtype: repeat_rows(dtype, options) for dtype in options.dtype}
    document = {"machine": machine(options.threads), "settings": settings(options), "results": results}
    (out / "objective.json").write_text(json.dumps(document, indent=2) + "\n")
    draw(results, settings(options), out / "objective.svg")
    for dtype, rows in results.items():
        print_table(dtype, rows)
    print(f"written: {out / 'objective.json'}, {out / 'objective.svg'}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", choices=SHAPES, default="small")
    parser.add_argument("--dtype", nargs="+", choices=("float32", "bfloat16"), default=["float32"])
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument(
        "--min-context", type=int, default=0, help="0 pairs the whole overlap, the most expensive case"
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--chunk-size", type=int, default=None)
    parser.add_argument("--accumulate-dtype", choices=("float32", "bfloat16"), default=None)
    parser.add_argument("--out", default="runs/bench-objective")
    parser.add_argument("--worker", choices=ROWS, help=argparse.SUPPRESS)
    return parser.parse_args()


def settings(options: argparse.Namespace) -> dict:
    return {
        "shape": options.shape,
        **asdict(SHAPES[options.shape]),
        "min_context": options.min_context,
        "repeats": options.repeats,
        "chunk_size": options.chunk_size,
        "accumulate_dtype": options.accumulate_dtype,
    }


def repeat_rows(dtype: str, options: argparse.Namespace) -> dict[str, list[dict]]:
    measured: dict[str, list[dict]] = {row: [] for row in options.rows}
    for repeat in range(options.repeats):
        for row in options.rows:
            print(f"{dtype}, repeat {repeat + 1} of {options.repeats}: {row}", file=sys.stderr)
            measured[row].append(run_worker(row, dtype, options))
    return {row: runs for row, runs in measured.items() if runs[0] is not None}


def run_worker(row: str, dtype: str, options: argparse.Namespace) -> dict | None:
    command = ["--worker", row, "--dtype", dtype, "--shape", options.shape]
    command += ["--min-context", str(options.min_context), "--threads", str(options.threads)]
    if options.chunk_size:
        command += ["--chunk-size", str(options.chunk_size)]
    if options.accumulate_dtype and dtype == "bfloat16":
        command += ["--accumulate-dtype", options.accumulate_dtype]
    return in_fresh_process(__file__, command, threads=options.threads)


def measure(row: str, options: argparse.Namespace) -> dict | None:
    """One forward and backward pass of one row, in this process."""
    import torch

    if row == "torch_ce" and not hasattr(torch.nn, "LinearCrossEntropyOptions"):
        return None
    torch.set_num_threads(options.threads)
    # A first pass of a small shape loads the kernels; what they occupy is no cost of the objective.
    build(row, Shape(width=64, vocabulary=1024, length=64, offset=16), options, warm_up=True)()
    step = build(row, SHAPES[options.shape], options)
    reset_peak()
    before, start = resident("VmRSS"), time.process_time()
    gradients = step()
    seconds = time.process_time() - start
    peak = resident("VmHWM")
    extra = None if peak is None or before is None else (peak - before) / 2**20 - gradients / 2**20
    return {"cpu_seconds": seconds, "extra_mib": extra}


def build(row: str, shape: Shape, options: argparse.Namespace, *, warm_up: bool = False) -> Callable[[], int]:
    """The row's step: runs forward and backward, returns the bytes of the gradients that stay."""
    import torch
    from torch.nn import functional as F

    from lengthwise.alignment import Objective, PairGeometry, alignment_loss
    from lengthwise.alignment.chunked import default_chunk_size

    dtype = getattr(torch, options.dtype[0])
    generator = torch.Generator().manual_seed(0)
    common = shape.length - shape.offset

    def normal(*sizes: int) -> torch.Tensor:
        return torch.randn(*sizes, generator=generator)

    long, short = normal(1, shape.length, shape.width), normal(1, shape.length, shape.width)
    short[:, :common] = long[:, shape.offset :] + 0.1 * normal(1, common, shape.width)
    # Logits of standard deviation 3, about that of a trained model.
    weight = normal(shape.vocabulary, shape.width).mul_(3 / shape.width**0.5)
    leaves = [tensor.to(dtype).requires_grad_() for tensor in (long, short, weight)]
    labels = torch.randint(0, shape.vocabulary, (2, 1, shape.length), generator=generator)
    min_context = 0 if warm_up else options.min_context
    geometry = PairGeometry(shape.length, shape.offset, min_context)
    chunk_size = options.chunk_size or default_chunk_size(shape.vocabulary, dtype, weight.device)
    accumulate = getattr(torch, options.accumulate_dtype) if options.accumulate_dtype else None
    alpha = 0.1
    del long, short, weight

    def fused(geometry: PairGeometry, divergence: str) -> torch.Tensor:
        return alignment_loss(
            *leaves, labels[0], labels[1], geometry=geometry,
            objective=Objective(alpha=alpha, divergence=divergence),
            chunk_size=chunk_size, accumulate_dtype=accumulate,
        ).loss  # fmt: skip

    def cross_entropy(logits: list[torch.Tensor]) -> torch.Tensor:
        views = [F.cross_entropy(z.float(), y.flatten()) for z, y in zip(logits, labels, strict=True)]
        return (views[0] + views[1]) / 2

    def full_logits() -> list[torch.Tensor]:
        return [hidden[0] @ leaves[2].T for hidden in leaves[:2]]

    def naive() -> torch.Tensor:
        logits = full_logits()
        # As printed: the softmax of all rows first, then the paired ones.
        log_p = logits[0].log_softmax(-1)[geometry.long_rows]
        log_q = logits[1].log_softmax(-1)[geometry.short_rows]
        sce = (-log_p * log_q.exp() - log_q * log_p.exp()).sum(-1).mean()
        return cross_entropy(logits) + alpha * sce

    def torch_ce() -> torch.Tensor:
        # Chunks of as many rows as ours: its own choice of 64 is several times slower on a CPU.
        chunks = torch.nn.LinearCrossEntropyOptions(batch_chunk_size=min(2 * chunk_size, shape.length))
        views = [
            F.linear_cross_entropy(hidden[0], leaves[2], y[0], options=chunks)
            for hidden, y in zip(leaves[:2], labels, strict=True)
        ]
        return (views[0] + views[1]) / 2

    def products() -> None:
        rows = min(2 * chunk_size, 2 * shape.length)
        logits = torch.empty(rows, shape.vocabulary, dtype=dtype)
        with torch.no_grad():
            hidden = torch.cat((leaves[0][0], leaves[1][0])).split(rows)
            total = torch.zeros_like(leaves[2])
            for part in hidden:
                z = torch.mm(part, leaves[2].T, out=logits[: len(part)])
                z @ leaves[2]
                total.addmm_(z.T, part)

    losses: dict[str, Callable[[], torch.Tensor]] = {
        "fused": lambda: fused(geometry, "sce"),
        "fused_jeffreys": lambda: fused(geometry, "jeffreys"),
        "chunked_ce": lambda: fused(PairGeometry(shape.length, shape.length), "sce"),
        "naive": naive,
        "naive_ce": lambda: cross_entropy(full_logits()),
        "torch_ce": torch_ce,
    }

    def step() -> int:
        if row == "products":
            products()
            return 0
        losses[row]().backward()
        return sum(leaf.nbytes for leaf in leaves)

    return step


def print_table(dtype: str, rows: dict[str, list[dict]]) -> None:
    print(f"\n{dtype}: median (range) over repeats")
    print(f"{'row':16}{'CPU s':>22}{'/ chunked_ce':>22}{'/ naive':>22}{'/ naive_ce':>22}{'extra MiB':>24}")
    for row, runs in rows.items():
        cells = [spread([run["cpu_seconds"] for run in runs])]
        cells += [
            spread(ratios(rows, row, peer, "cpu_seconds")) for peer in ("chunked_ce", "naive", "naive_ce")
        ]
        extra = [run["extra_mib"] for run in runs]
        memory = "-" if row == "products" or None in extra else spread(extra, 0)
        print(f"{row:16}" + "".join(f"{cell:>22}" for cell in cells) + f"{memory:>24}")


def draw(results: dict[str, dict[str, list[dict]]], shown: dict, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(len(results), 2, figsize=(10, 3.2 * len(results)), squeeze=False)
    for (time_axis, memory_axis), (dtype, rows) in zip(axes, results.items(), strict=True):
        for axis, key, label in (
            (time_axis, "cpu_seconds", "CPU seconds, forward and backward"),
            (memory_axis, "extra_mib", "peak MiB beyond the gradients"),
        ):
            names = [row for row in rows if key == "cpu_seconds" or row != "products"]
            names = [row for row in names if all(run[key] is not None for run in rows[row])]
            values = [[run[key] for run in rows[row]] for row in names]
            middles = [statistics.median(runs) for runs in values]
            errors = [
                [middle - min(runs) for middle, runs in zip(middles, values, strict=True)],
                [max(runs) - middle for middle, runs in zip(middles, values, strict=True)],
            ]
            axis.barh(names, middles, xerr=errors, color="tab:blue", ecolor="black", capsize=3)
            axis.invert_yaxis()
            axis.set_xlabel(label)
            axis.set_title(dtype)
    figure.suptitle(
        "d = {width}, V = {vocabulary}, L = {length}, e = {offset}; bars: median, lines: range".format(
            **shown
        )
    )
    figure.tight_layout()
    figure.savefig(path)


if __name__ == "__main__":
    main()
