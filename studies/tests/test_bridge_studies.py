"""The bridge as a study: verdicts on made-up numbers."""

from __future__ import annotations

import math

import pytest

from lengthwise.errors import UsageError
from lengthwise.results import Row
from lengthwise_studies.sparsity.bridge import SPARSE, Token
from lengthwise_studies.sparsity.bridge_page import REAL
from lengthwise_studies.sparsity.bridge_text import in_every_seed
from lengthwise_studies.sparsity.influence_page import TOO_FEW
from tools.docs.kept_tables import (
    keep_tables,
    kept_table,
)


def verdicts(claims, numbers):
    return [found[1] for claim in claims if (found := claim.verdict(numbers)) is not None]


def test_a_study_without_a_finished_part_keeps_nothing(tmp_path):
    with pytest.raises(UsageError):
        keep_tables("sparsity-bridge-real", tmp_path, tmp_path)
    with pytest.raises(UsageError):
        kept_table("sparsity-bridge-real", 0, tmp_path)


def test_every_arm_of_a_claim_is_in_the_study():
    names = [arm.name for arm in REAL.experiment.arms]
    assert {REAL.control, *REAL.aligned, *REAL.others} == set(names) - {REAL.start}


def test_what_training_forgets_and_what_other_forms_spare():
    """The aligned arm loses 1 on far and sparse tokens, the others nothing."""
    arms = {}
    for arm in REAL.experiment.arms:
        for seed in [None] if arm.changes is None else (0, 1):
            lost = arm.name == REAL.aligned[0]
            arms[arm.name, seed] = [
                Token(f"d{doc}", f"w{doc}", place, long + lost * (place == 41), 5.0, 1.0, needed)
                for doc in range(9)
                for place, long, needed in ((40, 5.0, None), (41, 1.0 + doc / 10, 2.0), (42, 1.0, math.inf))
            ]
    rows = REAL.rows(arms, 0.5, "m")
    found = verdicts(REAL.claims(), rows)
    assert found == ["yes", "no", "no", "no", "yes", "yes"]
    [value] = {
        row.value
        for row in rows
        if (row.arm, row.reference, row.metric, row.bucket)
        == (REAL.others[0], REAL.aligned[0], "forgotten", SPARSE)
    }
    assert value == pytest.approx(-1)


def test_a_seed_without_an_interval_decides_nothing():
    def row(seed, low, high, documents=9):
        return Row(
            model="m",
            task="bridge",
            metric="forgotten",
            value=1.0,
            arm="a",
            reference="b",
            seed=seed,
            ci_low=low,
            ci_high=high,
            documents=documents,
        )

    judge = in_every_seed("a", "b", "forgotten", None, higher=True)
    assert judge([]) is None
    assert judge([row(0, 0.5, 1.5), row(1, None, None)])[1] == TOO_FEW
    assert judge([row(0, 0.5, 1.5), row(1, 0.5, 1.5, documents=7)])[1] == TOO_FEW
    assert judge([row(0, 0.5, 1.5), row(1, -0.5, 1.5)])[1] == "not decided"
