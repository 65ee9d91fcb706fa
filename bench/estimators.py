"""How narrow the intervals of the two estimators of Eq. 2 are after equal time, and how many views are best.

    python bench/estimators.py                                        tiny-books, some three minutes
    python bench/estimators.py --model smollm2-135m --length 512 --seconds 60 --views 3

Every row gets the same processor time on the same text and runs as many windows as fit in it; what is
compared is the 95 % interval that `lengthwise measure` would print. Time is the CPU time of this process, so
that other work on the machine disturbs it less than wall time. Widths are rescaled by the square root of
used over given time, which corrects the few per cent by which a row misses its time. An interval is an
estimate itself: with N documents its width is uncertain by about 1 / sqrt(2 N).

Writes estimators.json and estimators.svg into --out.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch

from lengthwise.measure import Misalignment, run
from lengthwise.results import Results
from lengthwise.subjects import LoadedModel, load
from lengthwise.text import TokenDocuments, load_corpus, tokenize

METRICS = ("sce", "entropy", "jeffreys")
PROBE_WINDOWS = 3


def main() -> None:
    options = parse()
    torch.set_num_threads(options.threads)
    model = load(options.model, dtype=options.dtype)
    documents = tokenize(load_corpus(options.text, split=options.split), model.tokenizer)
    rows = [{"estimator": "paper"}, *({"estimator": "lattice", "views": views} for views in options.views)]
    measured = [measure(model, documents, row, options) for row in rows]
    paper = measured[0]
    for row in measured[1:]:
        row["narrower_than_paper"] = {
            metric: paper["width"][metric] / row["width"][metric] for metric in METRICS
        }
    document = {
        "model": model.describe(),
        "settings": vars(options),
        "documents": len(documents),
        "rows": measured,
    }
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    (out / "estimators.json").write_text(json.dumps(document, indent=2) + "\n")
    draw(measured, options, out / "estimators.svg")
    print(table(measured))


def measure(
    model: LoadedModel, documents: TokenDocuments, row: dict[str, Any], options: argparse.Namespace
) -> dict[str, Any]:
    """One estimator for `options.seconds` of processor time."""

    def timed(windows: int) -> tuple[float, Results]:
        started = time.process_time()
        spec = Misalignment(lengths=(options.length,), windows=windows, seed=options.seed, **row)
        found = run(spec, model, documents)
        return time.process_time() - started, found

    timed(1)
    probe, _ = timed(PROBE_WINDOWS)
    seconds, found = timed(max(4, round(options.seconds * PROBE_WINDOWS / probe)))
    headline = {r.metric: r for r in found.rows if r.is_headline}
    scale = math.sqrt(seconds / options.seconds)
    return {
        **row,
        "seconds": seconds,
        "value": {metric: headline[metric].value for metric in METRICS},
        "width": {metric: scale * (headline[metric].ci_high - headline[metric].ci_low) for metric in METRICS},
        "windows": len(found.records),
        "comparisons": headline["jeffreys"].n,
        "documents": headline["jeffreys"].documents,
    }


def name(row: dict[str, Any]) -> str:
    return "paper" if row["estimator"] == "paper" else f"lattice, {row['views']} views"


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        f"{'estimator':18} {'windows':>7} {'comparisons':>11} "
        + " ".join(f"{m + ' (width, gain)':>28}" for m in METRICS)
    ]
    for row in rows:
        gains = row.get("narrower_than_paper", dict.fromkeys(METRICS, 1.0))
        cells = (f"{row['value'][m]:.4f} ({row['width'][m]:.4f}, {gains[m]:.1f}x)" for m in METRICS)
        lines.append(
            f"{name(row):18} {row['windows']:>7} {row['comparisons']:>11} "
            + " ".join(f"{cell:>28}" for cell in cells)
        )
    return "\n".join(lines)


def draw(rows: list[dict[str, Any]], options: argparse.Namespace, path: Path) -> None:
    figure, axes = plt.subplots(1, len(METRICS), figsize=(10, 3), layout="constrained")
    for panel, metric in zip(axes, METRICS, strict=True):
        panel.barh([name(row) for row in rows], [row["width"][metric] for row in rows])
        panel.invert_yaxis()
        panel.set(title=metric, xlabel="width of the 95 % interval (nats)")
        if metric != METRICS[0]:
            panel.set_yticklabels([])
    figure.suptitle(f"{options.model}, L = {options.length}, {options.seconds:g} s of processor time each")
    figure.savefig(path)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="tiny-books")
    parser.add_argument("--text", default="books")
    parser.add_argument("--split", default="all")
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--views", type=int, nargs="+", default=[2, 3, 4, 6])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", default="runs/bench-estimators")
    return parser.parse_args()


if __name__ == "__main__":
    main()
