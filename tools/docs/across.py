"""What the arms that every table has do in all kept runs of one scale: one line for each table and setting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from lengthwise.report.tables import Cell, Table
from lengthwise.results import Results, Row
from lengthwise_studies.paired_claims import Quantity, range_over_seeds
from lengthwise_studies.paper.all_tables import TABLES
from lengthwise_studies.paper.methods import BEST, ENTROPY, JEFFREYS, PLAIN, SCE, UNTRAINED
from lengthwise_studies.paper.paper_table import Setting
from lengthwise_studies.paper.sizes import PARTS, Size, loss, recalled
from tools.docs.kept_results import runs_of

LOSS, JEFFREYS_PART, RECALL = loss(2), PARTS[2], recalled(1)
_OWN = (SCE, ENTROPY, JEFFREYS, BEST, UNTRAINED)


def across_table(folder: Path, scale: str) -> Table:
    """Loss at 2T of each arm minus plain CE, SCE minus the entropy control, and what Jeffreys does to recall at T.

    Tables that do not read 2T are left out; tables that share their arms share a line.
    """
    lines: dict[tuple[Cell, ...], list[str]] = {}
    for name in TABLES:
        for run in runs_of(folder, name):
            if run.scale == scale and LOSS.times in run.results.config["size"]["lengths"]:
                for setting in TABLES[name].settings:
                    lines.setdefault(_cells(setting, run.results), []).append(name)
    return Table(
        columns=[
            "table",
            "setting",
            *_OWN,
            f"{SCE} minus {ENTROPY}",
            f"disagreement: {JEFFREYS}",
            f"{RECALL.heading}: {JEFFREYS}",
        ],
        rows=[[", ".join(names), *cells] for cells, names in lines.items()],
        notes=[
            f"The {LOSS.heading} minus that of {PLAIN} on the same windows, in nats, after all steps; then "
            f"disagreement and recall with {JEFFREYS}, minus those of {PLAIN}. Means over pretrainings; in brackets "
            "the lowest and the highest."
        ],
    )


def _cells(setting: Setting, results: Results) -> tuple[Cell, ...]:
    losses = {arm: _differences(results, setting, arm, LOSS) for arm in _OWN}
    size = Size.of(results.config["size"])
    return (
        f"{setting.adjustment.name}, {size.corpora[setting.corpus]}",
        *(range_over_seeds(losses[arm], signed=True) for arm in _OWN),
        range_over_seeds(_minus(losses[SCE], losses[ENTROPY]), signed=True),
        range_over_seeds(_differences(results, setting, JEFFREYS, JEFFREYS_PART), signed=True),
        range_over_seeds(_differences(results, setting, JEFFREYS, RECALL), signed=True),
    )


def _differences(results: Results, setting: Setting, arm: str, quantity: Quantity) -> list[Row]:
    """The arm minus plain CE, a row for each seed."""
    length = Size.of(results.config["size"]).trained
    pair = (setting.arm(arm), setting.arm(PLAIN))
    return [row for row in results.rows if (row.arm, row.reference) == pair and quantity.is_in(row, length)]


def _minus(rows: Sequence[Row], others: Sequence[Row]) -> list[Row]:
    """Seed by seed, without intervals; without a value where one of the two has none."""
    own, other = ({row.seed: row for row in of} for of in (rows, others))

    def difference(seed: int | None) -> float | None:
        values = [of[seed].value if seed in of else None for of in (own, other)]
        return None if values[0] is None or values[1] is None else values[0] - values[1]

    every = {**other, **own}
    return [replace(row, value=difference(seed), ci_low=None, ci_high=None) for seed, row in every.items()]
