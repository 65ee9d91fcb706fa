"""The verdicts on theorem 2: on its own exact numbers, and on numbers with a planted mistake."""

from dataclasses import replace
from typing import Any

import pytest

from lengthwise.results import Results, Row
from lengthwise_studies import theorem2_check as theorem2
from lengthwise_studies.claims import FAILS, HOLDS, judge
from lengthwise_studies.theorem2_claims import CLAIMS, CORRECTED, FULL, LOWER, PRINTED, RANK_ONE, TASKS, UPPER

LENGTHS = (1, 5, 20, 50)
LARGEST = 10.0
"""No table that is judged has a greater entry."""


def _rows() -> list[Row]:
    """The exact rows, without a trained model."""
    found: list[Row] = []
    for task in TASKS:
        tables: dict[str, Any] = {
            CORRECTED: theorem2.ansatz(task, 10),
            RANK_ONE: theorem2.rank_one_minimum(task, 10),
            FULL: theorem2.full_minimum(task, 10),
        }
        row = Row(model="m", task=task, metric="mse", value=None)
        for arm, table in tables.items():
            loss = theorem2.objective(task, table, 10).item()
            found.append(replace(row, metric="train_loss", arm=arm, value=loss))
            found += [
                replace(row, arm=arm, length=at, value=theorem2.error(task, table, at).item())
                for at in LENGTHS
            ]
        for at in LENGTHS:
            low, high = theorem2.growth_bounds(task, LARGEST, at)
            printed = theorem2.printed_error(task, 10, at)
            for arm, value in ((LOWER, low), (UPPER, high), (PRINTED, printed)):
                found.append(replace(row, arm=arm, length=at, value=value))
    return found


def _verdicts(rows: list[Row]) -> dict[str, str]:
    judged = judge(CLAIMS, Results(kind="synth-theory", model_name="m", config={}, rows=rows))
    return {one.claim.says: one.verdict for one in judged}


def test_what_holds_and_what_does_not():
    """The factor 2 of Eq. 20 and the minimiser of the sum are wrong, as `docs` derives; the rest is right."""
    verdicts = _verdicts(_rows())
    assert len(verdicts) == 9
    assert {says for says, verdict in verdicts.items() if verdict != HOLDS} == {
        "the printed error of the sum is that of the paper's own table",
        "the paper's table has the lowest training loss of the sum with head dimension 1",
    }


SUM_AS_PRINTED = "the printed error of the sum is that of the paper's own table"


@pytest.mark.parametrize(
    ("which", "factor", "turned"),
    [
        # Half of what is printed is right for the sum, and wrong for the length.
        (("sum", PRINTED, "mse"), 0.5, {SUM_AS_PRINTED: HOLDS}),
        (("length", PRINTED, "mse"), 0.5, {SUM_AS_PRINTED.replace("sum", "length"): FAILS}),
        # An error above its bound, and a table whose loss is not the lowest.
        (("sum", UPPER, "mse"), 0.1, {"the error of the sum grows as l^2": FAILS}),
        (
            ("length", RANK_ONE, "train_loss"),
            0.9,
            {"the paper's table has the lowest training loss of the length with head dimension 1": FAILS},
        ),
    ],
)
def test_a_planted_mistake_turns_its_own_verdict(
    which: tuple[str, str, str], factor: float, turned: dict[str, str]
):
    before = _verdicts(_rows())
    after = _verdicts(
        [
            replace(row, value=(row.value or 0.0) * factor)
            if (row.task, row.arm, row.metric) == which
            else row
            for row in _rows()
        ]
    )
    assert {name: after[name] for name in before if before[name] != after[name]} == turned
