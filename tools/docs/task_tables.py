"""What models answer, beside what guessing answers and by depth; where their context ends."""

from __future__ import annotations

from collections.abc import Sequence

from lengthwise.report.limit_answer import reaches
from lengthwise.report.tables import Cell, Table, row_estimate
from lengthwise.results import Results


def against_chance(runs: Sequence[Results]) -> Table:
    """Accuracy in likelihood mode, a row for each task, a column for each model and length; guessing's in front.

    Groups of tasks are left out: their tasks differ in what guessing answers.
    """
    whole = [
        (run.model_name, row) for run in runs for row in run.rows if row.depth is None and row.bucket is None
    ]
    chances = {row.task: row.value for _, row in whole if row.metric == "chance"}
    found = {(row.task, model, row.length): row for model, row in whole if row.metric == "accuracy"}
    sides = list(dict.fromkeys((model, length) for _, model, length in found))
    several = len({length for _, length in sides}) > 1
    names = [f"{model}, {length:,} tokens" if several else model for model, length in sides]
    rows: list[list[Cell]] = [
        [
            task,
            f"{chance:.3g}",
            *(row_estimate(found[key]) if (key := (task, *side)) in found else None for side in sides),
        ]
        for task, chance in chances.items()
        if chance is not None
    ]
    return Table(columns=["", "guessing", *names], rows=rows, caption="")


def by_quarter(runs: Sequence[Results]) -> Table:
    """Accuracy at the greatest length by the quarter of the context with the answer, for each task and model."""
    quarters = [f"{name} quarter" for name in ("first", "second", "third", "last")]
    several = len({run.model_name for run in runs}) > 1
    rows: list[list[Cell]] = []
    for run in runs:
        longest = max(row.length or 0 for row in run.rows)
        own = [row for row in run.rows if row.metric == "accuracy" and row.length == longest and row.bucket]
        found = {(row.task, row.bucket): row_estimate(row) for row in own}
        rows += [
            [task, *[run.model_name] * several, *(found.get((task, each)) for each in quarters)]
            for task in dict.fromkeys(task for task, _ in found)
        ]
    rows.sort(key=lambda row: str(row[0]))
    return Table(columns=["", *[""] * several, *quarters], rows=rows, caption="")


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


def limits(runs: Sequence[Results]) -> Table:
    """Where the context ends, by both limits, one row for each model."""
    rows: list[list[Cell]] = []
    for run in runs:
        found = {row.metric: row for row in run.rows}
        extension = run.provenance["model"].get("extension")
        name = run.model_name
        if extension is not None:
            name = f"with {extension['method']} x{extension['factor']:g}"
        rows.append(
            [name, f"{found['sound_up_to'].length:,}", *(each.text for each in reaches(run).values())]
        )
    columns = ["", "windows of", "predictions stay sound up to", "context is still used up to"]
    return Table(columns=columns, rows=rows, caption="")
