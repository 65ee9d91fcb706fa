"""The table of the small study says what its rows say."""

from dataclasses import replace
from itertools import product
from pathlib import Path

from lengthwise.report.tables import Cell, Estimate
from lengthwise.results import Results
from lengthwise_studies.tiny_books import NUMBERS, PLAIN, START, YARN, sections
from studies.tests.made import by_seed

_CHANGE = {"SCE 0.1": 0.05, "entropy 0.1": 0.06, "Jeffreys 10": -0.04, YARN: -0.8, START: 0.1}


def _results(seeds: int) -> Results:
    """Rows in which each arm changes every number by one amount, and seed s adds s hundredths."""
    rows = []
    for column, (arm, change) in product(NUMBERS, {PLAIN: 0.0, **_CHANGE}.items()):
        of = {"task": column.task, "metric": column.metric, "arm": arm}
        of |= {"length": column.times, "distance": column.distance}
        own = by_seed([3 + change + seed / 100 for seed in range(seeds)], **of)
        rows += [replace(own[0], seed=None)] if arm in (START, YARN) else own
        if arm != PLAIN:
            changes, ends = [change + seed / 100 for seed in range(seeds)], (change - 0.01, change + 0.01)
            rows += by_seed(changes, reference=PLAIN, ci_low=ends[0], ci_high=ends[1], **of)
    return Results(kind="tiny-books", model_name="m", config={}, rows=rows, notes=["a note"])


def _by_arm(seeds: int) -> dict[str, list[Cell]]:
    [section] = sections(_results(seeds), Path())
    [table] = section.tables
    assert len(section.figures) == 1
    assert section.notes == ["a note"]
    return {name: [row[at] for row in table.rows] for at, name in enumerate(table.columns) if at}


def test_values_are_means_over_seeds_and_differences_have_a_spread():
    by_arm = _by_arm(3)
    assert list(by_arm) == [PLAIN, "SCE 0.1", "entropy 0.1", "Jeffreys 10", YARN, START]
    assert by_arm[PLAIN][0] == "3.010"
    assert by_arm["SCE 0.1"][0] == "+0.060 ± 0.010"


def test_one_seed_has_intervals():
    cell = _by_arm(1)["SCE 0.1"][0]
    assert isinstance(cell, Estimate)
    assert cell.text == "+0.050 [+0.040, +0.060]"
