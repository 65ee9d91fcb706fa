"""What views and divergences cost: steps of one LoRA in one process, in turn.

    python bench/forms.py                               SmolLM2-135M, about ten minutes
    python bench/forms.py --model tiny-books --length 64 --repeats 1

Every row is forward, backward and an AdamW step on one window of L tokens (one more in its second view). Time is the
CPU time of the process. A repeat runs all rows one after another, and ratios are taken within a repeat. The rows:

    ce               cross entropy of one view: what training costs without lengthwise
    ce_both          cross entropy of two views
    VIEWS            both views trained, with Jeffreys
    DIVERGENCE       on gap views: both trained; kl and reverse_kl with a detached long view
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measuring import machine, ratios, spread

TAUGHT = {"alpha": 1.0, "detach": "long", "ce_on": "short"}
JEFFREYS = {"alpha": 1.0, "divergence": "jeffreys"}
# Views and objective of each row.
ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "ce": ("gap", {"ce_on": "short"}),
    "ce_both": ("gap", {}),
    **{name: (name, JEFFREYS) for name in ("truncation", "gap", "cyclic", "repeat")},
    **{name: ("gap", {"alpha": 0.1, "divergence": name}) for name in ("sce", "jeffreys", "js")},
    **{name: ("gap", TAUGHT | {"divergence": name}) for name in ("kl", "reverse_kl")},
}
WITHOUT_POSITIONS = ("truncation", "cyclic")


def main() -> None:
    options = parse()
    results = measure(options)
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    shown = {key: value for key, value in vars(options).items() if key != "out"}
    document = {"machine": machine(options.threads), "settings": shown, "results": results}
    (out / "forms.json").write_text(json.dumps(document, indent=2) + "\n")
    draw(results, shown, out / "forms.svg")
    print_table(results)
    print(f"written: {out / 'forms.json'}, {out / 'forms.svg'}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="bfloat16")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", default="runs/bench-forms")
    return parser.parse_args()


def measure(options: argparse.Namespace) -> dict[str, list[dict]]:
    """CPU seconds of every row in every repeat, after one step of each that is not timed."""
    import torch

    from lengthwise.subjects import load
    from lengthwise.training.recipe import Adapter
    from lengthwise.training.starting_model import add_adapter

    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    loaded = load(options.model, dtype=options.dtype)
    model = add_adapter(loaded.model, Adapter(r=16)).train()
    steps = {row: build(row, model, loaded.vocab_size, options) for row in options.rows}
    results: dict[str, list[dict]] = {row: [] for row in steps}
    for repeat in range(options.repeats + 1):
        print(f"repeat {repeat} of {options.repeats}" if repeat else "warming up", file=sys.stderr)
        for row, step in steps.items():
            start = time.process_time()
            step()
            if repeat:
                results[row].append({"cpu_seconds": time.process_time() - start})
    return results


def build(row: str, model: Any, vocabulary: int, options: argparse.Namespace) -> Callable[[], None]:
    """A step of the row, on the same window in every row."""
    import torch

    from lengthwise import Objective
    from lengthwise.checkpoints import find_head
    from lengthwise.training import PairCollator, Positions, View
    from lengthwise.training.model_loss import model_alignment_loss

    views, terms = ROWS[row]
    length = options.length
    sampled = Positions(sampler="skip", target_length=8 * length)
    view = View(
        length,
        views,
        {"share": 1.0} if views == "repeat" else {},
        positions=None if views in WITHOUT_POSITIONS else sampled,
    )
    collate = PairCollator(view)
    generator = torch.Generator().manual_seed(0)
    offset = length // 4 if views == "truncation" else 0
    window = torch.randint(vocabulary, (length + offset,), generator=generator).tolist()
    batch = collate([{"input_ids": window}])
    objective = Objective(**({"alpha": 0.0} | terms))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-6)
    autocast = torch.autocast("cpu", dtype=torch.bfloat16, enabled=options.dtype == "bfloat16")
    with autocast:
        head = find_head(model)

    def step() -> None:
        with autocast:
            loss = model_alignment_loss(model, head, **batch, objective=objective).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def print_table(rows: dict[str, list[dict]]) -> None:
    print("\nmedian (range) over repeats")
    print(f"{'row':16}{'CPU s a step':>22}{'/ ce':>22}{'/ ce_both':>22}")
    for row, runs in rows.items():
        cells = [spread([run["cpu_seconds"] for run in runs])]
        cells += [spread(ratios(rows, row, peer, "cpu_seconds")) for peer in ("ce", "ce_both")]
        print(f"{row:16}{cells[0]:>22}{cells[1]:>22}{cells[2]:>22}")


def draw(rows: dict[str, list[dict]], shown: dict, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(6, 0.25 * len(rows) + 1.2))
    names = [row for row in rows if row != "ce"]
    for place, row in enumerate(names):
        values = ratios(rows, row, "ce", "cpu_seconds") or []
        axis.plot(values, [place] * len(values), "o", color="tab:blue")
    axis.axvline(1.0, color="black", linewidth=1)
    axis.set_yticks(range(len(names)), names)
    axis.invert_yaxis()
    axis.set_xlabel("CPU time of a step / cross entropy of one view")
    axis.set_title("{model}, L = {length}, {dtype}; a dot is a repeat".format(**shown))
    figure.tight_layout()
    figure.savefig(path)


if __name__ == "__main__":
    main()
