"""How much sharper a term with an entropy makes a model: the best inverse temperature, measured and predicted."""

from __future__ import annotations

from lengthwise.report.tables import Cell, Table
from lengthwise.results import Results
from lengthwise.training import read_recipe
from lengthwise_studies.arms import Arm
from lengthwise_studies.paired_claims import range_of
from lengthwise_studies.paper.all_tables import TABLES
from lengthwise_studies.paper.methods import Adjustment
from lengthwise_studies.paper.sizes import Size, inverse_temperature


def temperatures_table(results: Results) -> Table:
    """Best inverse temperature of plain CE and of every arm with SCE or the entropy control, beside 1 - 2 alpha.

    A calibrated model settles at the inverse temperature 1/(1 - 2 alpha) (`Objective.sharpening_limit`), which a
    factor of 1 - 2 alpha takes back. From alpha = 1/2 on there is no such factor: nothing holds the model.
    """
    size = Size.of(results.config["size"])
    shown = [inverse_temperature(times) for times in size.lengths]
    rows: list[list[Cell]] = []
    for setting in TABLES[results.kind].settings:
        for arm in setting.at(size):
            alpha = _alpha(setting.adjustment, arm)
            if alpha is None:
                continue
            name = setting.arm(arm.name)
            says = "1" if alpha == 0 else f"{1 - 2 * alpha:.1f}" if alpha < 0.5 else "none"
            rows.append([name, says, *(range_of(results.rows, one, size.trained, name) for one in shown)])
    return Table(
        columns=["", "1 - 2 alpha", *(one.heading for one in shown)],
        rows=rows,
        notes=["After all steps. Means over pretrainings; in brackets the lowest and the highest."],
    )


def _alpha(adjustment: Adjustment, arm: Arm) -> float | None:
    """The weight of the entropy in an arm's loss; 0 for plain CE, None for other arms."""
    # Arms that differ in their windows as well are told apart by more than divergence and weight.
    if arm.changes is None or len(arm.changes) > 2:
        return None
    objective = read_recipe(adjustment.recipe, arm.changes).objective
    return objective.alpha if objective.divergence in ("sce", "entropy") else None
