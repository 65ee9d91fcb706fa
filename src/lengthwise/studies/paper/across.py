"""What the arms that every table has do in all kept runs of one scale: one line for each table and setting."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean

from lengthwise.report.tables import Cell, Estimate, Table
from lengthwise.results import Results
from lengthwise.studies.paired_claims import Quantity
from lengthwise.studies.paper.index import TABLES, kept_results, paper_table
from lengthwise.studies.paper.measures import PARTS, loss, recalled
from lengthwise.studies.paper.methods import BEST, ENTROPY, JEFFREYS, PLAIN, SCE, UNTRAINED
from lengthwise.studies.paper.paper_table import Setting
from lengthwise.studies.paper.sizes import Size

LOSS, JEFFREYS_PART, RECALL = loss(2), PARTS[2], recalled(1)
_OWN = (UNTRAINED, SCE, ENTROPY, JEFFREYS, BEST)


def across_table(folder: Path, scale: str) -> Table:
    """Loss at 2T of each arm minus plain CE, SCE minus the entropy control, and what Jeffreys does to recall at T."""
    rows: list[list[Cell]] = []
    for name in TABLES:
        for at, results in kept_results(folder, name):
            if at == scale:
                rows += [_line(name, setting, results) for setting in paper_table(name).settings]
    return Table(
        columns=[
            "table",
            "setting",
            "learning rate",
            *(f"{LOSS.heading}: {arm}" for arm in _OWN),
            f"{SCE} minus {ENTROPY}",
            f"disagreement: {JEFFREYS}",
            f"{RECALL.heading}: {JEFFREYS}",
        ],
        rows=rows,
        notes=[
            f"Minus {PLAIN} on the same windows, in nats, after all steps. Means over pretrainings; in brackets the "
            "lowest and the highest."
        ],
    )


def _line(name: str, setting: Setting, results: Results) -> list[Cell]:
    by_arm = {arm: _differences(results, setting, arm, LOSS) for arm in _OWN}
    sharper = {
        seed: value - by_arm[ENTROPY][seed] for seed, value in by_arm[SCE].items() if seed in by_arm[ENTROPY]
    }
    size = Size.of(results.config["size"])
    return [
        name,
        f"{setting.adjustment.name}, {size.corpora[setting.corpus]}",
        f"{float(rate):g}" if (rate := _changed(size, "optimizer.learning_rate")) else None,
        *(_over(by_arm[arm]) for arm in _OWN),
        _over(sharper),
        _over(_differences(results, setting, JEFFREYS, JEFFREYS_PART)),
        _over(_differences(results, setting, JEFFREYS, RECALL)),
    ]


def _differences(results: Results, setting: Setting, arm: str, quantity: Quantity) -> dict[int | None, float]:
    """By seed."""
    length = Size.of(results.config["size"]).trained
    return {
        row.seed: row.value
        for row in results.rows
        if (row.arm, row.reference) == (setting.arm(arm), setting.arm(PLAIN))
        and quantity.is_in(row, length)
        and row.value is not None
    }


def _over(by_seed: Mapping[int | None, float]) -> Estimate | None:
    values = list(by_seed.values())
    return Estimate(fmean(values), min(values), max(values), signed=True) if values else None


def _changed(size: Size, field: str) -> str | None:
    """What the size sets a field of every recipe to."""
    return next(
        (value for name, _, value in (one.partition("=") for one in size.changes) if name == field), None
    )
