"""What programs of `bench/` measured, kept in `studies/results/bench/`: each file of repeats as a table of ratios."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from lengthwise.report.tables import Table
from tools.docs.kept_results import results_folder

OBJECTIVE = {
    "fused_triton": "L*, 512 MiB of logits in a chunk, the default until then",
    "fused_triton@1024": "L*, 1,024 MiB (2,093 pairs; the default is now 2,048)",
    "fused_triton@2048": "L*, 2,048 MiB: three chunks, so the head's gradient is summed in bf16",
    "fused_bf16_triton": "L*, 512 MiB, the head's gradient summed in bf16",
    "fused_torch": "L*, 512 MiB, the torch tile",
    "chunked_ce_triton": "CE of both windows alone, 512 MiB",
    "liger_ce": "Liger's fused CE of both windows",
    "trl_ce": "TRL's chunked CE of both windows",
    "cce": "Cut Cross Entropy of both windows",
    "naive": "L* with all logits (Appendix D)",
}
"""Row of `bench/objective.py` -> what the page calls it."""
VERBS = {
    "ppl": ("ppl", "1"),
    "limit": ("limit, mean of two windows", "1.5"),
    "longppl": ("longppl, K = 1,024", "2"),
    "measure": ("measure", "2"),
    "compare": ("compare, a pair of windows with both sides", "4"),
}
"""Row of `bench/verbs.py` -> what the page calls it, and the passes that no way can do without."""
STEPS = {
    "ce": "one view, cross entropy alone",
    "ce_both": "two views, cross entropy alone",
    "sce": "two views and SCE",
    "jeffreys": "two views and Jeffreys",
    "kl": "two views and kl, the second without gradients",
    "reverse_kl": "two views and reverse_kl, the second without gradients",
}
"""Row of `bench/forms.py` -> what the page calls it."""
_PRODUCTS = "products"


def kept_bench(root: Path, name: str) -> dict[str, Any]:
    """A kept file of repeats."""
    return json.loads((results_folder(root) / "bench" / f"{name}.json").read_text(encoding="utf-8"))


def ratios(own: Sequence[float], other: Sequence[float]) -> list[float]:
    """Of the times of two rows, within each repeat: the median, the least, the greatest."""
    found = [one / to for one, to in zip(own, other, strict=False)]
    return [median(found), min(found), max(found)]


def objective_rows(root: Path, shape: str) -> dict[str, tuple[list[float], float]]:
    """Row -> milliseconds of forward and backward, one number for each repeat, and the extra MiB."""
    [rows] = [one["rows"] for one in kept_bench(root, "gpu")["objective"] if one["shape"] == shape]
    return {name: ([fmean(passes) for passes in row["ms"]], row["extra_mib"]) for name, row in rows.items()}


def objective_table(root: Path, shape: str) -> Table:
    """Milliseconds of forward and backward, their ratio to the matrix products alone, and memory."""
    rows = objective_rows(root, shape)
    lines = [
        (
            says,
            f"{median(rows[name][0]):.1f}",
            f"{ratios(rows[name][0], rows[_PRODUCTS][0])[0]:.2f}",
            f"{rows[name][1]:,.0f}",
        )
        for name, says in OBJECTIVE.items()
        if name in rows
    ]
    return Table(columns=("", "ms", "/ the products alone", "extra MiB"), rows=lines)


def verb_times(root: Path) -> dict[str, list[float]]:
    """Verb, or "bare" -> seconds on one window of 4,096 tokens, one number for each repeat."""
    times = kept_bench(root, "verbs")["runs"][0]["seconds"]
    return {name.removesuffix(" 4096"): seconds for name, seconds in times.items()}


def verbs_table(root: Path) -> Table:
    """What a verb takes on one window, in bare forward passes over it."""
    times = verb_times(root)
    lines = [(says, least, _spread(times[verb], times["bare"])) for verb, (says, least) in VERBS.items()]
    return Table(
        columns=("verb, on one window", "passes it cannot do without", "bare passes it takes"), rows=lines
    )


def step_times(root: Path) -> dict[str, list[float]]:
    """Form of the objective -> processor seconds of a training step, one number for each repeat."""
    results = kept_bench(root, "forms")["results"]
    return {name: [one["cpu_seconds"] for one in repeats] for name, repeats in results.items()}


def steps_table(root: Path) -> Table:
    """The time of a training step beside that of cross entropy on one view."""
    times = step_times(root)
    lines = [(says, _spread(times[name], times["ce"])) for name, says in STEPS.items()]
    return Table(columns=("a step on", "/ one view"), rows=lines)


def _spread(own: Sequence[float], other: Sequence[float]) -> str:
    middle, least, most = ratios(own, other)
    return f"{middle:.2f} ({least:.2f}-{most:.2f})"


TABLES = {"objective": objective_table, "verbs": verbs_table, "steps": steps_table}
"""Name -> what makes it."""
