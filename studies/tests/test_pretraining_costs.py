"""What the term costs by pretraining: made-up rows of the kept form, and the starts that the study trains."""

from lengthwise.report.tables import Estimate
from lengthwise.results import Results
from lengthwise_studies.paper.methods import ENTROPY, PLAIN, SCE
from lengthwise_studies.paper.pretraining import PRETRAINED, SOURCES, TIMES, cost_table
from lengthwise_studies.paper.sizes import LAPTOP
from studies.tests.made import by_seed


def _run(steps: int, sce: list[float], entropy: float) -> Results:
    """Differences of a setting at 1T, which grow by 1 with every multiple of T; seed s has the s-th of `sce`."""
    table, setting = SOURCES[steps]
    rows = [
        row
        for arm, values in ((SCE, sce), (ENTROPY, [entropy] * len(sce)))
        for times in TIMES
        for row in by_seed(
            [value + times - 1 for value in values],
            length=times * LAPTOP.trained,
            arm=setting.arm(arm),
            reference=setting.arm(PLAIN),
        )
    ]
    config = {"size": LAPTOP.to_dict()}
    return Results(kind=table, model_name="tiny-books", config=config, rows=rows, notes=[], provenance={})


def test_the_costs_of_each_start_beside_each_other():
    longer = PRETRAINED[2800]
    both = {"when": _run(700, [0.25, 0.5, 0.75], 0.125), longer.name: _run(2800, [-0.5, 0.5], 0.25)}
    table = cost_table(both)
    found = dict(zip(table.columns, zip(*table.rows, strict=True), strict=True))
    # `when` has no rows of 300 steps here, 7,000 steps were not run.
    assert list(found) == ["", "700 steps", "2,800 steps"]
    seeds, *cells = found["700 steps"]
    assert seeds == 3
    assert [(one.value, one.low, one.high) for one in cells if isinstance(one, Estimate)] == [
        *((0.5 + more, 0.25 + more, 0.75 + more) for more in (0, 1, 3)),
        *((0.125 + more, 0.125 + more, 0.125 + more) for more in (0, 1, 3)),
    ]
    assert found["2,800 steps"][0] == 2
    assert found["2,800 steps"][1] == Estimate(0.0, -0.5, 0.5, signed=True)


def test_every_arm_of_a_table_starts_from_its_own_pretrainings():
    for steps, table in PRETRAINED.items():
        experiment, scale = table.experiment(table.sizes["laptop"])
        starts = [scale.start(seed, arm) for arm in experiment.arms for seed in range(3)]
        assert [start.name for start in starts if not isinstance(start, str)] == 4 * [
            f"tiny-books-{steps}-seed{seed}" for seed in range(3)
        ]
