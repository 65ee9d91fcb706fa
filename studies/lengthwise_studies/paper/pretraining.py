"""Does more training change what the term costs? Starts of CLEX that were pretrained 4 and 10 times as long.

`when` has the same arms from starts of 300 and of 700 steps. SmolLM2-135M is read after 50 and 200 steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lengthwise.report.tables import Cell, Table
from lengthwise.results import Results, rows_with
from lengthwise_studies.claims import OTHER
from lengthwise_studies.paired_claims import range_of
from lengthwise_studies.paper.methods import CLEX, CONTROLLED, ENTROPY, PLAIN, SCE
from lengthwise_studies.paper.paper_table import PaperTable
from lengthwise_studies.paper.sizes import SIZES, loss
from lengthwise_studies.paper.statements import OURS, Setting, claim
from lengthwise_studies.paper.when import EARLY, USUAL
from lengthwise_studies.real.steps import REAL_STEPS
from lengthwise_studies.skeleton import Study

TIMES = (1, 2, 4)
_LOWER: tuple[tuple[str, str, dict[str, Any]], ...] = (
    (f"{SCE} lowers the loss at {{}}T", PLAIN, {"like": "Table 4"}),
    # Written after the numbers were known.
    (f"{SCE} has a lower loss than {ENTROPY} at {{}}T", ENTROPY, {"term": OTHER}),
)


def _table(steps: int) -> PaperTable:
    """The extension alone, plain CE, SCE and its entropy, from starts of so many steps."""
    setting = Setting(
        name=f"CLEX, {steps:,} steps",
        adjustment=CLEX,
        start=(("steps", steps),),
        arms=CONTROLLED[:4],
    )
    return PaperTable(
        name=f"pretraining-{steps}",
        label=f"Ours, {steps:,} steps",
        title=f"What does the term cost after {steps:,} steps of pretraining?",
        shows=f"The start was pretrained for {steps:,} steps; those of all other tables for 700.",
        settings=(setting,),
        claims=tuple(
            claim(OURS, says.format(times), loss(times), "lower", against=against, of=setting, **about)
            for says, against, about in _LOWER
            for times in (2, 4)
        ),
        in_study="pretraining",
        # Other scales start from models that are not ours.
        sizes={name: SIZES[name] for name in ("default", "laptop", "smoke")},
    )


PRETRAINED = {steps: _table(steps) for steps in (2800, 7000)}
"""Steps of pretraining -> the table of its starts."""
STUDY = Study(
    title="Does more training change what the term costs?",
    parts=(
        *(table.part(f"parts/{steps}") for steps, table in PRETRAINED.items()),
        REAL_STEPS.part("parts/real"),
    ),
    lead=(
        "The term on starts that were pretrained 4 and 10 times as long as those of all other tables, and on "
        "SmolLM2-135M after 50 and after 200 steps.",
    ),
    takes=("seeds", "steps"),
)
SOURCES = {
    300: ("when", EARLY),
    700: ("when", USUAL),
    **{steps: (table.name, table.settings[0]) for steps, table in PRETRAINED.items()},
}
"""Steps of pretraining -> the table that has its starts, and their setting."""
_COSTS = {
    f"{arm} at {times}T{where}": (arm, replace(loss(times), metric=metric))
    for arm, where, metric in (
        (SCE, "", "loss"),
        (ENTROPY, "", "loss"),
        (SCE, ", best temperature", "loss_best_temperature"),
    )
    for times in TIMES
}
"""Heading -> the arm and its number."""


def cost_table(results: Mapping[str, Results]) -> Table:
    """What the term, its entropy alone, and the term at each arm's best temperature add to the loss of plain CE.

    `results` are those of the tables in `SOURCES`; starts that were not run are left out.
    """
    columns: dict[str, list[Cell]] = {"": ["pretrainings", *_COSTS]}
    for steps, (table, setting) in SOURCES.items():
        of = results.get(table)
        differences = rows_with(of.rows, reference=setting.arm(PLAIN)) if of else []
        if of is None or not differences:
            continue
        cells: list[Cell] = [len({row.seed for row in differences})]
        columns[f"{steps:,} steps"] = cells
        for arm, quantity in _COSTS.values():
            pair = setting.arm(arm), setting.arm(PLAIN)
            cells.append(range_of(of.rows, quantity, of.config["size"]["trained"], *pair))
    return Table(
        columns=[*columns],
        rows=[*zip(*columns.values(), strict=True)],
        notes=["Nats above plain CE: mean and extremes over pretrainings, or the 95 % interval of one."],
    )
