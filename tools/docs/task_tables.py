"""What models answer: beside what guessing answers (which tasks can judge which model at all), and by depth."""

from __future__ import annotations

from collections.abc import Sequence

from lengthwise.report.tables import Cell, Table, row_estimate
from lengthwise.results import Results


def against_chance(runs: Sequence[Results]) -> Table:
    """Accuracy in likelihood mode, one row for each task and one column for each model; guessing's in front.

    Groups of tasks are left out: their tasks differ in what guessing answers.
    """
    found = {
        (row.task, row.metric, run.model_name): row for run in runs for row in run.rows if row.depth is None
    }
    chances = {task: row.value for (task, metric, _), row in found.items() if metric == "chance"}
    rows: list[list[Cell]] = [
        [
            task,
            "" if chance is None else f"{chance:.2f}",
            *(
                row_estimate(found[key]) if (key := (task, "accuracy", run.model_name)) in found else None
                for run in runs
            ),
        ]
        for task, chance in chances.items()
    ]
    return Table(columns=["", "guessing", *(run.model_name for run in runs)], rows=rows, caption="")


def answers_by_depth(results: Results, task: str) -> Table:
    """Accuracy of one task, a row for each depth (the last: all) and a column for each length."""
    own = [row for row in results.rows if (row.task, row.metric) == (task, "accuracy")]
    lengths = sorted({row.length for row in own if row.length is not None})
    depths = sorted({row.depth for row in own if row.depth is not None})
    found = {(row.length, row.depth): row_estimate(row) for row in own}
    return Table(
        columns=["", *(f"{length:,} tokens" for length in lengths)],
        rows=[
            [
                "all depths" if depth is None else f"depth {depth:g} %",
                *(found.get((length, depth)) for length in lengths),
            ]
            for depth in [*depths, None]
        ],
        caption="",
    )
