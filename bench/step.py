"""What the objective adds to a whole training step, each row in a fresh process, all in one run.

    python bench/step.py                               SmolLM2-135M, LoRA and full, about ten minutes
    python bench/step.py --model tiny-books --length 128

Every row is forward, backward and an AdamW step on the same two windows of L tokens. Time is the CPU time of
the process, the second of `--steps` and later ones; every repeat runs all rows one after another, and ratios
are taken within a repeat. The rows, for each of full fine-tuning and LoRA (frozen head):

    chunked_ce       the two windows with alignment_loss without pairs: cross entropy, nothing else
    fused            alignment_loss, SCE through both sides, the whole overlap paired
    model_loss       the two windows with the loss that transformers computes itself (full logits)
    naive            appendix D on full logits (skipped where they need more than --most-gib)
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measuring import in_fresh_process, machine, ratios, reset_peak, resident, spread

ROWS = ("chunked_ce", "fused", "model_loss", "naive")
ADAPTERS = ("lora", "full")


def main() -> None:
    options = parse()
    if options.worker:
        print(json.dumps(measure(options.worker, options)))
        return
    results = {adapter: repeat_rows(adapter, options) for adapter in options.adapters}
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    shown = {key: value for key, value in vars(options).items() if key not in ("worker", "out")}
    document = {"machine": machine(options.threads), "settings": shown, "results": results}
    (out / "step.json").write_text(json.dumps(document, indent=2) + "\n")
    draw(results, shown, out / "step.svg")
    for adapter, rows in results.items():
        print_table(adapter, rows)
    print(f"written: {out / 'step.json'}, {out / 'step.svg'}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--offset", type=int, default=256)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--adapters", nargs="+", choices=ADAPTERS, default=list(ADAPTERS))
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--steps", type=int, default=3, help="of which the first is not timed")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--most-gib", type=float, default=12.0)
    parser.add_argument("--out", default="runs/bench-step")
    parser.add_argument("--worker", choices=ROWS, help=argparse.SUPPRESS)
    return parser.parse_args()


def repeat_rows(adapter: str, options: argparse.Namespace) -> dict[str, list[dict]]:
    measured: dict[str, list[dict]] = {row: [] for row in options.rows}
    for repeat in range(options.repeats):
        for row in options.rows:
            print(f"{adapter}, repeat {repeat + 1} of {options.repeats}: {row}", file=sys.stderr)
            arguments = ["--worker", row, "--adapters", adapter, "--model", options.model]
            for name in ("length", "offset", "dtype", "steps", "threads", "most_gib"):
                arguments += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
            found = in_fresh_process(__file__, arguments, threads=options.threads)
            if found is not None:
                measured[row].append(found)
    return {row: runs for row, runs in measured.items() if runs}


def measure(row: str, options: argparse.Namespace) -> dict | None:
    """CPU seconds of a step, and peak resident memory beyond the loaded model."""
    import torch

    from lengthwise.subjects import load

    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    loaded = load(options.model, dtype="float32")
    logits = 2 * options.length * loaded.vocab_size * 4
    if row == "naive" and 5 * logits > options.most_gib * 2**30:
        return None
    model = prepare(loaded.model, options.adapters[0])
    tokens = torch.randint(loaded.vocab_size, (1, options.length + options.offset))
    step = build(row, model, tokens, options)
    step()
    reset_peak()
    before = resident("VmRSS")
    times = []
    for _ in range(options.steps - 1):
        start = time.process_time()
        step()
        times.append(time.process_time() - start)
    peak = resident("VmHWM")
    extra = None if peak is None or before is None else (peak - before) / 2**20
    return {"cpu_seconds": min(times), "extra_mib": extra}


def prepare(model: Any, adapter: str) -> Any:
    from peft import LoraConfig, get_peft_model

    from lengthwise.checkpoints.resolve import quiet_transformers

    if adapter == "lora":
        with quiet_transformers():
            model = get_peft_model(
                model, LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM")
            )
    return model.train()


def build(row: str, model: Any, tokens: Any, options: argparse.Namespace) -> Callable[[], None]:
    import torch
    from torch.nn import functional as F

    from lengthwise import Objective, PairGeometry, alignment_loss, next_token_labels
    from lengthwise.checkpoints import find_head
    from lengthwise.checkpoints.head import hidden_states_for

    length, offset = options.length, options.offset
    geometry = PairGeometry(length, offset, min_context=0)
    views = torch.cat([tokens[:, geometry.long_tokens], tokens[:, geometry.short_tokens]])
    labels = next_token_labels(views)
    head = find_head(model)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-6)
    none_paired = PairGeometry(length, length)

    def fused(geometry: PairGeometry) -> torch.Tensor:
        hidden = hidden_states_for(model, head, views)
        return alignment_loss(
            *hidden.chunk(2), head.weight, *labels.chunk(2), geometry=geometry, objective=Objective(alpha=0.1)
        ).loss

    def naive() -> torch.Tensor:
        logits = model(input_ids=views, use_cache=False).logits
        cross_entropy = F.cross_entropy(logits.float().flatten(0, 1), labels.flatten())
        log_p = logits[0].log_softmax(-1)[geometry.long_rows]
        log_q = logits[1].log_softmax(-1)[geometry.short_rows]
        sce = (-log_p * log_q.exp() - log_q * log_p.exp()).sum(-1).mean()
        return cross_entropy + 0.1 * sce

    losses: dict[str, Callable[[], torch.Tensor]] = {
        "chunked_ce": lambda: fused(none_paired),
        "fused": lambda: fused(geometry),
        "model_loss": lambda: model(input_ids=views, labels=views, use_cache=False).loss,
        "naive": naive,
    }

    def step() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=options.dtype == "bfloat16"):
            loss = losses[row]()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def print_table(adapter: str, rows: dict[str, list[dict]]) -> None:
    print(f"\n{adapter}: median (range) over repeats")
    print(
        f"{'row':14}{'CPU s a step':>22}{'/ chunked_ce':>24}{'/ model_loss':>22}{'peak MiB above model':>26}"
    )
    for row, runs in rows.items():
        cells = [spread([run["cpu_seconds"] for run in runs])]
        cells.append(spread(ratios(rows, row, "chunked_ce", "cpu_seconds"), 3))
        cells.append(spread(ratios(rows, row, "model_loss", "cpu_seconds")))
        extra = [run["extra_mib"] for run in runs]
        cells.append("-" if None in extra else spread(extra, 0))
        print(f"{row:14}{cells[0]:>22}{cells[1]:>24}{cells[2]:>22}{cells[3]:>26}")


def draw(results: dict[str, dict[str, list[dict]]], shown: dict, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(results), figsize=(5 * len(results), 3.2), squeeze=False)
    for axis, (adapter, rows) in zip(axes[0], results.items(), strict=True):
        names = [row for row in rows if row != "chunked_ce"]
        found = [ratios(rows, row, "chunked_ce", "cpu_seconds") or [] for row in names]
        for place, values in enumerate(found):
            axis.plot(values, [place] * len(values), "o", color="tab:blue")
        axis.axvline(1.0, color="black", linewidth=1)
        axis.set_yticks(range(len(names)), names)
        axis.set_xlabel("CPU time of a step / two windows with chunked CE")
        axis.set_title(adapter)
    figure.suptitle("{model}, L = {length}, {dtype}; a dot is a repeat".format(**shown))
    figure.tight_layout()
    figure.savefig(path)


if __name__ == "__main__":
    main()
