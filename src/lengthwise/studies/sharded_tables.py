"""What `make recipes` found, as tables of the documentation: bytes of sharded runs, and plans at full size."""

from __future__ import annotations

from lengthwise.report.tables import Table
from lengthwise.results import Results

KIND = "sharded-recipes"
"""The kind of its results; of the task of a row:"""
RUN = "two steps in two processes"
PLANNED = "plan"
WAY_ALONE = "one card"
"""The metric of a plan for one device; for several it is the way of sharding, and `n` is how many they are."""
_COLUMNS = (
    (WAY_ALONE, 1),
    ("full_shard", 2),
    ("whole copies", 8),
    ("shard_grad_op", 8),
    ("full_shard", 8),
    ("full_shard with offload", 8),
)


def runs_table(results: Results) -> Table:
    """A line for each recipe: bytes of its state in one of two processes, by the plan, and both losses."""
    lines = []
    for name in results.config["recipes"]:
        by = {row.metric: row.value or 0 for row in results.select(task=RUN, arm=name)}
        lines.append(
            (name, round(by["allocated"]), round(by["planned"]), f"{by['loss 1']:.4f}", f"{by['loss 2']:.4f}")
        )
    columns = ("recipe", "bytes in one of two processes", "bytes by the plan", "loss of step 1", "of step 2")
    return Table(columns=columns, rows=lines)


def plans_table(results: Results) -> Table:
    """A line for each recipe: what each device needs at the recipe's own size."""
    lines = []
    for name in results.config["recipes"]:
        by = {(row.metric, row.n): row.value or 0 for row in results.select(task=PLANNED, arm=name)}
        lines.append((name, *(f"{by[key] / 1e9:.0f} GB" if key in by else None for key in _COLUMNS)))
    columns = [way if number == 1 else f"{way} on {number}" for way, number in _COLUMNS]
    return Table(columns=("recipe", *columns), rows=lines)
