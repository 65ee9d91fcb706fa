"""Time and memory of the objective beside its peers: each in a fresh process, all in one run.

    python bench/objective.py                          about two minutes
    python bench/objective.py --shape smollm2 --dtype float32 bfloat16
    python bench/objective.py --device cuda --shape llama3 qwen --dtype bfloat16      two minutes on an H100

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

On a GPU time is wall time by the GPU's events and memory is the allocator's (`one_process.py`). There the rows of
ours come with the torch tile and the Triton tile (`_torch`, `_triton`), and `@N` chooses chunks of N MiB of logits;
`_bf16` sums the head's gradient in bf16, and `fused_js` has the divergence "js". The peers are in `peers.py`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import one_process
import peers
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

# On a GPU. Ours first: what is left out when the time is up are the last.
GPU_ROWS = (
    "chunked_ce_triton",
    "fused_triton",
    "fused_torch",
    "chunked_ce_torch",
    "products",
    "liger_ce",
    "cce",
    "trl_ce",
    "torch_ce",
    "naive",
    "naive_ce",
    "fused_jeffreys_triton",
    "fused_js_triton",
    "liger_jsd",
    "liger_kl",
    "trl_jsd",
    "fused_triton@128",
    "fused_triton@1024",
    "fused_triton@2048",
    "fused_bf16_triton",
    "fused_bf16_triton@2048",
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
    "tiny": Shape(width=64, vocabulary=1000, length=64, offset=16),
    "llama3": Shape(width=4096, vocabulary=128256, length=8192, offset=2048),
    "qwen": Shape(width=4096, vocabulary=151936, length=8192, offset=2048),
}


def main() -> None:
    options = parse()
    if options.worker == "all":
        one_process.measure_all(options, lambda row: build_on(row, options))
        return
    if options.worker:
        print(json.dumps(measure(options.worker, options)))
        return
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    if options.one_process:
        on_a_gpu(options, out)
        return
    results = {dtype: repeat_rows(dtype, options) for dtype in options.dtype}
    document = {"machine": machine(options.threads), "settings": settings(options), "results": results}
    (out / "objective.json").write_text(json.dumps(document, indent=2) + "\n")
    draw(results, settings(options), out / "objective.svg")
    for dtype, rows in results.items():
        print_table(dtype, rows)
    print(f"written: {out / 'objective.json'}, {out / 'objective.svg'}")


def on_a_gpu(options: argparse.Namespace, out: Path) -> None:
    """Shapes and dtypes one after the other, in equal shares of the time; what there is so far is always written."""
    runs = [(shape, dtype) for shape in options.shape for dtype in options.dtype]
    end = time.monotonic() + options.seconds
    document = {"machine": machine(options.threads), "peers": peers.versions(), "results": []}
    tables = []
    for index, (shape, dtype) in enumerate(runs):
        print(f"{shape}, {dtype}:", file=sys.stderr)
        now = time.monotonic()
        rows = one_process.run_rows(__file__, shape, dtype, options, now + (end - now) / (len(runs) - index))
        size = asdict(SHAPES[shape])
        document["results"].append({"shape": shape, "dtype": dtype, **size, "rows": rows})
        title = f"{shape}, {dtype}: " + ", ".join(f"{name} {value}" for name, value in size.items())
        tables.append(
            one_process.markdown(title, rows, ("chunked_ce_triton", "chunked_ce_torch", "naive", "naive_ce"))
        )
        (out / "objective.json").write_text(json.dumps(document, indent=2) + "\n")
        (out / "objective.md").write_text("\n".join(tables))
        print(tables[-1])


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument(
        "--one-process",
        action="store_true",
        help="all rows in one process; always so on a GPU, where it is exact",
    )
    parser.add_argument(
        "--shape", nargs="+", choices=SHAPES, default=["small"], help="several with --one-process"
    )
    parser.add_argument("--dtype", nargs="+", choices=("float32", "bfloat16"), default=["float32"])
    parser.add_argument("--rows", nargs="+", choices=(*ROWS, *GPU_ROWS), metavar="ROW", default=None)
    parser.add_argument(
        "--min-context", type=int, default=0, help="0 pairs the whole overlap, the most expensive case"
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--chunk-size", type=int, default=None)
    parser.add_argument("--accumulate-dtype", choices=("float32", "bfloat16"), default=None)
    parser.add_argument("--seconds", type=float, default=600.0, help="with --one-process: stop after these")
    parser.add_argument("--out", default="runs/bench-objective")
    parser.add_argument("--worker", choices=(*ROWS, "all"), help=argparse.SUPPRESS)
    parser.add_argument("--log", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.one_process |= options.device == "cuda"
    if not options.rows:
        options.rows = list(GPU_ROWS if options.one_process else ROWS)
    if not options.one_process and options.worker != "all":
        if len(options.shape) > 1:
            parser.error("one --shape, or --one-process")
        if others := sorted(set(options.rows) - set(ROWS)):
            parser.error(f"{', '.join(others)}: with --one-process")
        options.shape = options.shape[0]
    return options


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


def build_on(row: str, options: argparse.Namespace) -> tuple[Callable[[], Any], list[Any]]:
    """The step of a GPU row, which returns its loss, and the leaves that get gradients."""
    name, _, mib = row.partition("@")
    name, _, tile = name.rpartition("_") if name.endswith(("_torch", "_triton")) else (name, "", "")
    if tile == "triton" and options.device == "cpu":
        raise RuntimeError("the Triton tile needs a GPU")
    base = name.removesuffix("_bf16")
    shape = SHAPES[options.shape[0]]
    settings = argparse.Namespace(**vars(options))
    settings.accumulate_dtype = "bfloat16" if base != name else options.accumulate_dtype
    if mib:
        item_size = 2 if options.dtype[0] == "bfloat16" else 4
        settings.chunk_size = max(16, int(mib) * 2**20 // (2 * shape.vocabulary * item_size))
    with tile_of(tile):
        loss, leaves = losses_of(base, shape, settings)

    def step() -> Any:
        with tile_of(tile):
            value = loss()
            if value is not None:
                value.backward()
        return value

    return step, leaves


@contextmanager
def tile_of(name: str) -> Iterator[None]:
    """The objective on this tile, also where its trial on the device fails; "" leaves the choice."""
    from lengthwise.alignment import kernels

    kept = kernels.TRITON_DEVICES, kernels.kernels_pass
    if name:
        kernels.TRITON_DEVICES = {"cuda"} if name == "triton" else set()
        kernels.kernels_pass = lambda device: True  # type: ignore[assignment]
    try:
        yield
    finally:
        kernels.TRITON_DEVICES, kernels.kernels_pass = kept


def build(row: str, shape: Shape, options: argparse.Namespace, *, warm_up: bool = False) -> Callable[[], int]:
    """The row's step: runs forward and backward, returns the bytes of the gradients that stay."""
    loss, leaves = losses_of(row, shape, options, warm_up=warm_up)

    def step() -> int:
        value = loss()
        if value is None:
            return 0
        value.backward()
        return sum(leaf.nbytes for leaf in leaves)

    return step


def losses_of(
    row: str, shape: Shape, options: argparse.Namespace, *, warm_up: bool = False
) -> tuple[Callable[[], Any], list[Any]]:
    """The row's loss (None of the bare products) and the leaves: both views' hidden states, the head's weight."""
    import torch
    from torch.nn import functional as F

    from lengthwise.alignment import Objective, PairGeometry, alignment_loss
    from lengthwise.alignment.chunked import default_chunk_size

    if row == "torch_ce" and not hasattr(torch.nn, "LinearCrossEntropyOptions"):
        raise RuntimeError(f"torch {torch.__version__} has no linear_cross_entropy")
    dtype, device = getattr(torch, options.dtype[0]), torch.device(options.device)
    generator = torch.Generator(device).manual_seed(0)
    common = shape.length - shape.offset

    def normal(*sizes: int) -> torch.Tensor:
        return torch.randn(*sizes, generator=generator, device=device)

    long, short = normal(1, shape.length, shape.width), normal(1, shape.length, shape.width)
    short[:, :common] = long[:, shape.offset :] + 0.1 * normal(1, common, shape.width)
    # Logits of standard deviation 3, about that of a trained model.
    weight = normal(shape.vocabulary, shape.width).mul_(3 / shape.width**0.5)
    leaves = [tensor.to(dtype).requires_grad_() for tensor in (long, short, weight)]
    labels = torch.randint(0, shape.vocabulary, (2, 1, shape.length), generator=generator, device=device)
    min_context = 0 if warm_up else options.min_context
    geometry = PairGeometry(shape.length, shape.offset, min_context)
    chunk_size = options.chunk_size or default_chunk_size(shape.vocabulary, dtype, weight.device)
    accumulate = getattr(torch, options.accumulate_dtype) if options.accumulate_dtype else None
    alpha = 0.1
    del long, short, weight
    if row in peers.MAKERS:
        return peers.peer(row, leaves, labels, (geometry.long_rows, geometry.short_rows)), leaves

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
        logits = torch.empty(rows, shape.vocabulary, dtype=dtype, device=device)
        with torch.no_grad():
            hidden = torch.cat((leaves[0][0], leaves[1][0])).split(rows)
            total = torch.zeros_like(leaves[2])
            for part in hidden:
                z = torch.mm(part, leaves[2].T, out=logits[: len(part)])
                z @ leaves[2]
                total.addmm_(z.T, part)

    losses: dict[str, Callable[[], torch.Tensor | None]] = {
        "fused": lambda: fused(geometry, "sce"),
        "fused_jeffreys": lambda: fused(geometry, "jeffreys"),
        "fused_js": lambda: fused(geometry, "js"),
        "chunked_ce": lambda: fused(PairGeometry(shape.length, shape.length), "sce"),
        "naive": naive,
        "naive_ce": lambda: cross_entropy(full_logits()),
        "torch_ce": torch_ce,
        "products": products,
    }
    return losses[row], leaves


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
