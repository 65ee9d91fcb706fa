"""The study's tables and sentences say what its rows say."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from lengthwise.report.tables import Cell, Table
from lengthwise.report.writers import to_markdown
from lengthwise.results import Results, Row
from lengthwise_studies.tiny_books import EXPERIMENT, NUMBERS, PLAIN, START, YARN, reading, sections

ARMS = [arm.name for arm in EXPERIMENT.arms if arm.changes is not None]
_CHANGE = {"SCE 0.1": 0.05, "entropy 0.1": 0.06, "Jeffreys 10": -0.04, YARN: -0.8, START: 0.1}


def _results(seeds: int) -> Results:
    """Rows in which each arm changes every number by one amount, and seed s adds s hundredths."""
    rows = []
    for column, (arm, change) in product(NUMBERS, {PLAIN: 0.0, **_CHANGE}.items()):
        for seed in [None] if arm in (START, YARN) else range(seeds):
            where = {"length": column.times, "distance": column.distance, "task": column.task}
            rows.append(
                Row(
                    model="m",
                    metric=column.metric,
                    value=3 + change + (seed or 0) / 100,
                    arm=arm,
                    seed=seed,
                    **where,
                )
            )
        if arm != PLAIN:
            rows += [
                Row(
                    model="m",
                    metric=column.metric,
                    value=change + seed / 100,
                    ci_low=change - 0.01,
                    ci_high=change + 0.01,
                    arm=arm,
                    seed=seed,
                    reference=PLAIN,
                    **where,
                )
                for seed in range(seeds)
            ]
    return Results(kind="tiny-books", model_name="m", config={}, rows=rows, notes=["a note"])


def _tables(seeds: int) -> list[Table]:
    [section] = sections(_results(seeds), Path())
    return list(section.tables)


def _by_arm(table: Table) -> dict[str, list[Cell]]:
    return {name: [row[at] for row in table.rows] for at, name in enumerate(table.columns) if at}


def test_values_are_means_over_seeds():
    by_arm = _by_arm(_tables(3)[0])
    assert list(by_arm) == [START, *ARMS, YARN]
    assert by_arm[PLAIN][0] == "3.010"
    assert by_arm["Jeffreys 10"][2] == "2.970"
    assert by_arm[YARN][2] == "2.200"


def test_one_seed_has_intervals_and_several_a_spread():
    one = _by_arm(_tables(1)[1])
    assert one["SCE 0.1"][0].text == "+0.050 [+0.040, +0.060]"
    three = _by_arm(_tables(3)[1])
    assert three["SCE 0.1"][0] == "+0.060 ± 0.010"
    assert PLAIN not in three


def test_sentences_are_made_from_the_rows():
    sce, jeffreys, yarn = reading(_results(1))
    for said, numbers in ((sce, ("+0.050", "0.010")), (jeffreys, ("-0.040",)), (yarn, ("-0.800",))):
        assert all(number in said for number in numbers)


@pytest.mark.parametrize("seeds", [1, 2])
def test_the_section_has_tables_pictures_and_notes(seeds, tmp_path):
    [section] = sections(_results(seeds), tmp_path)
    assert len(section.tables) == 2
    assert len(section.figures) == 4
    assert section.notes == ["a note"]
    assert all("|" in to_markdown(table) for table in section.tables)
