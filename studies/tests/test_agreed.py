"""Verdicts over several tables: trainings of one setting are pooled, and one number has one verdict."""

from dataclasses import replace

import pytest

from lengthwise.results import Results
from lengthwise_studies.claims import EXCLUDED, OPPOSITE
from lengthwise_studies.paper.agreed import TableRun, judge_runs, number_of, pooled
from lengthwise_studies.paper.all_tables import TABLES
from lengthwise_studies.paper.paper_table import PaperTable
from lengthwise_studies.paper.sizes import LAPTOP, Size
from studies.tests.made import by_seed

ONCE, AGAIN = [0.015, 0.019, 0.016], [0.001, 0.019, 0.016]
"""Differences at 2T by seed. Seed 0 was trained again, and the others were not."""


def run(
    name: str, values: list[float], arm: str = "SCE 0.1", size: Size = LAPTOP, variant: str = ""
) -> TableRun:
    table = TABLES[name]
    setting = table.settings[0]
    pair = {"arm": setting.arm(arm), "reference": setting.arm("plain CE")}
    rows = by_seed(values, stderr=0.002, documents=7, length=2 * size.trained, **pair)
    results = Results(kind=name, model_name="m", config={"size": size.to_dict()}, rows=rows)
    return TableRun(table=table, variant=variant, results=results)


def values(results: Results | None) -> list[float | None]:
    assert results is not None
    return [row.value for row in results.rows]


def test_trainings_of_one_setting_are_averaged_seed_by_seed():
    """Tables 2 and 4 and `when` have one setting under three names; Table 3 has others."""
    found = pooled([run("table2", ONCE), run("table4", ONCE), run("when", AGAIN), run("table3", AGAIN)])
    for one in found[:3]:
        assert values(one) == pytest.approx([0.008, 0.019, 0.016])
    assert values(found[3]) == AGAIN


@pytest.mark.parametrize(
    "other",
    [
        # Another rate, other weights of the term, other steps, equal time, and other windows of the loss.
        run("table4", AGAIN, size=replace(LAPTOP, changes=("optimizer.learning_rate=1e-3",))),
        run("table4", AGAIN, arm="SCE 0.3"),
        run("table4", AGAIN, size=replace(LAPTOP, steps=76)),
        run("table9", AGAIN),
        run("table4", AGAIN, size=replace(LAPTOP, lengths=(1, 2))),
    ],
)
def test_other_settings_are_not_pooled(other):
    assert [values(one) for one in pooled([run("table2", ONCE), other])] == [ONCE, AGAIN]


def _of(table: PaperTable, says: str, judged):
    [found] = [one for one in judged if one.claim.says == says]
    return found


def test_a_number_of_several_tables_has_the_verdict_of_the_strictest():
    """Alone in Table 2 the difference is opposite; among the twelve tests of Table 4 it is not decided there."""
    values, others = [0.015, 0.019, 0.016], ("SCE 0.3", "SCE 0.5", "SCE 1")
    table2, table4 = run("table2", values), run("table4", values)
    assert table2.results is not None
    assert table4.results is not None
    more = [run("table4", [1.0, -1.0, 0.5], arm=arm).results for arm in others]
    rows = [row for one in more if one is not None for row in one.rows]
    table4 = replace(table4, results=replace(table4.results, rows=[*table4.results.rows, *rows]))
    says = "books: the term lowers the perplexity", "alpha 0.1 lowers the perplexity after 200 steps"
    alone = [
        _of(one.table, name, one.judged(one.results))
        for one, name in zip((table2, table4), says, strict=True)
    ]
    both = [
        _of(one.table, name, judged)
        for one, name, judged in zip((table2, table4), says, judge_runs([table2, table4]), strict=True)
    ]
    assert alone[0].p < alone[1].p
    assert {one.p for one in both} == {alone[1].p}
    assert len({one.verdict for one in both}) == len({one.detectable for one in both}) == 1
    assert number_of(table2, both[0].claim) == number_of(table4, both[1].claim)


def test_a_verdict_that_turns_when_trained_again_is_none():
    """0.015, 0.019, 0.016 are opposite by themselves. With a second training of seed 0 they are not."""
    says = "books: the term lowers the perplexity"
    [alone] = judge_runs([run("table2", ONCE)])
    assert _of(TABLES["table2"], says, alone).verdict == OPPOSITE
    judged, _ = judge_runs([run("table2", ONCE), run("when", [-0.02, 0.019, 0.016])])
    found = _of(TABLES["table2"], says, judged)
    assert found.verdict == EXCLUDED
    assert found.found.ours.value == pytest.approx((-0.0025 + 0.019 + 0.016) / 3)


def test_a_table_without_a_run_is_judged_as_not_run():
    [judged] = judge_runs([TableRun(table=TABLES["table6"])])
    assert {one.verdict for one in judged} == {"not run"}
