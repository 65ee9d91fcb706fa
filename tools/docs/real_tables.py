"""The tables of the study of a real model at the paper's geometry, from its kept rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from math import exp
from pathlib import Path
from statistics import fmean
from typing import Any

from lengthwise.report.tables import Cell, Estimate, Table
from lengthwise.results import Results, Row, rows_with
from lengthwise_studies.arms import arm_after
from lengthwise_studies.claims import shown_p
from lengthwise_studies.over_seeds import over_seeds
from lengthwise_studies.paired_claims import by_line
from lengthwise_studies.paper.methods import ENTROPY, JEFFREYS, PLAIN, SCE, UNTRAINED
from lengthwise_studies.paper.sizes import Size
from lengthwise_studies.real.kept import kept_files, read_kept
from lengthwise_studies.real.steps import REAL_STEPS
from lengthwise_studies.real.study import FULL, LIGHTER, ON_CLEX, ON_YARN
from tools.docs.kept_results import kept_run, results_folder

YARN, CLEX = ON_YARN.name, ON_CLEX.name
SHOWN = (
    *((YARN, SCE, PLAIN, times) for times in (0.25, 1, 2, 4)),
    *((YARN, SCE, ENTROPY, times) for times in (1, 2, 4)),
    *((YARN, JEFFREYS, PLAIN, times) for times in (1, 2, 4)),
    *((CLEX, SCE, PLAIN, times) for times in (1, 2, 4)),
    (CLEX, SCE, ENTROPY, 2),
    (CLEX, LIGHTER.name, PLAIN, 1),
)
"""The setting, two arms, and the length in multiples of T."""
ASKED = (("needle_multi_key", (0.0, 25.0, 50.0, 75.0)), ("chains_0", (None,)))
"""Tasks, and the depths that are shown of each."""


@cache
def kept_real(root: Path) -> Results:
    """What is kept of the real model."""
    return read_kept(kept_files(results_folder(root) / "real"))


def of_real(root: Path, arm: str, metric: str, times: float, to: str | None = None, **more: Any) -> list[Row]:
    """A number of an arm, or its difference from another, at so many T: a row for each seed."""
    wanted = {"arm": arm, "reference": to, "metric": metric, "length": round(times * FULL.trained)}
    return rows_with(kept_real(root).rows, **{"depth": None, "context_other": None, **wanted, **more})


def perplexity_table(root: Path) -> Table:
    """Perplexity of every arm by length; the number of seeds is in the name."""
    lines = by_line(rows_with(kept_real(root).rows, metric="perplexity", reference=None), lambda row: row.arm)
    rows = [
        (
            f"{arm} ({len({row.seed for row in own})})",
            *(_mean(of_real(root, arm, "perplexity", times)) for times in FULL.lengths),
        )
        for arm, own in lines.items()
    ]
    return Table(columns=["arm (seeds)", *(f"{times:g}T" for times in FULL.lengths)], rows=rows)


def _mean(rows: Sequence[Row]) -> Cell:
    """Over the seeds, with the lowest and the highest seed."""
    values = [row.value for row in rows if row.value is not None]
    if len(values) < 2:
        return next(iter(values), None)
    return Estimate(fmean(values), min(values), max(values))


def difference_table(root: Path) -> Table:
    """An arm minus another: the loss, and the loss at each arm's best temperature."""
    lines = []
    for setting, arm, other, times in SHOWN:
        one, to = f"{setting}: {arm}", f"{setting}: {other}"
        over = over_seeds(of_real(root, one, "loss", times, to))
        tempered = of_real(root, one, "loss_best_temperature", times, to)
        detectable = over.detectable()
        lines.append(
            (
                setting,
                f"{arm} minus {other}",
                f"{times:g}T",
                over.estimate,
                shown_p(over.p_value()),
                None if detectable is None else f"{detectable:#.2g}",
                over_seeds(tempered).estimate if tempered else None,
            )
        )
    columns = ("", "nats per token", "at", "difference", "p", "could be seen", "best temperature")
    return Table(columns=columns, rows=lines)


def answer_table(root: Path) -> Table:
    """Accuracy at T of every arm that was asked: needles by depth, and chains."""
    asked = [(task, depth) for task, depths in ASKED for depth in depths]
    columns = ["", *(task if depth is None else f"needle at {depth:g} %" for task, depth in asked)]
    lines = by_line(rows_with(kept_real(root).rows, metric="accuracy", reference=None), lambda row: row.arm)
    rows = [
        [
            arm.removeprefix(f"{YARN}: "),
            *(_mean(of_real(root, arm, "accuracy", 1, task=task, depth=depth)) for task, depth in asked),
        ]
        for arm in lines
        if arm.startswith(YARN)
    ]
    return Table(columns=columns, rows=rows)


def steps_table(results: Results) -> Table:
    """The perplexity of plain CE and of the term by steps, on windows of T/8, and the term's cost."""
    [setting], size = REAL_STEPS.settings, Size.of(results.config["size"])
    untrained, plain, term = map(setting.arm, (UNTRAINED, PLAIN, SCE))
    found = rows_with(results.rows, metric="loss", position=None, bucket=None)

    def line(times: float, steps: int) -> list[Cell]:
        mark = steps if steps < size.steps else None
        names = [arm_after(arm, mark) for arm in (plain, term)] if steps else [untrained]
        own = rows_with(found, length=round(times * size.trained))
        levels = [
            _mean(
                [replace(row, value=exp(row.value or 0.0)) for row in rows_with(own, arm=arm, reference=None)]
            )
            for arm in names
        ]
        if not steps:
            return [f"{times:g}T", steps, *levels, None, None, None]
        over = over_seeds(rows_with(own, arm=names[1], reference=names[0]))
        return [f"{times:g}T", steps, *levels, over.estimate, shown_p(over.p_value())]

    rows = [line(times, steps) for times in size.lengths for steps in (0, *size.marks, size.steps)]
    return Table(columns=["at", "steps", PLAIN, SCE, "difference, nats", "p"], rows=rows)


TABLES = {
    "perplexity": perplexity_table,
    "differences": difference_table,
    "answers": answer_table,
    "steps": lambda root: steps_table(kept_run(root, f"{REAL_STEPS.name}-laptop")),
}
"""Name -> what makes it."""
