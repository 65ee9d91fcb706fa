"""The bridge as a study: smoke runs of its quick parts, and verdicts on made-up numbers."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from lengthwise.errors import UsageError
from lengthwise.results import Row
from lengthwise.studies.kept_tables import (
    CLAIMS,
    SPARSITY,
    keep_tables,
    kept_table,
    kept_tables,
    sparsity_index,
)
from lengthwise.studies.sparsity import bridge_needle, bridge_planted, bridge_planted_cells
from lengthwise.studies.sparsity.bridge import SPARSE, Token, planted_jeffreys, share_touched
from lengthwise.studies.sparsity.bridge_page import REAL, SMALL
from lengthwise.studies.sparsity.bridge_text import in_every_seed
from lengthwise.studies.sparsity.influence_page import TOO_FEW


def verdicts(claims, numbers):
    return [found[1] for claim in claims if (found := claim.verdict(numbers)) is not None]


@pytest.mark.parametrize("part", [bridge_planted.PLANTED, bridge_needle.NEEDLE], ids=["planted", "needle"])
def test_a_smoke_run_decides_nothing_and_is_read_again(part, tmp_path):
    folder = tmp_path / "run" / part.folder
    made = part.run(folder, part.scales["smoke"], resume=False, overwrite=False)
    again = part.run(folder, part.scales["smoke"], resume=True, overwrite=False)
    assert again.rows == made.rows
    keep_tables("sparsity-bridge", tmp_path / "run", tmp_path)
    [verdicts] = [table for table in kept_tables("sparsity-bridge", tmp_path) if table.caption == CLAIMS]
    assert {row[4] for row in verdicts.rows} <= {
        "says nothing: not trained",
        "not decided: fewer than 8 documents",
    }
    index = sparsity_index(tmp_path)
    assert len(index.rows) == len(SPARSITY) - 1 + len(verdicts.rows)
    assert [row[-1] for row in index.rows].count("not run") == len(SPARSITY) - 1


def test_a_study_without_a_finished_part_keeps_nothing(tmp_path):
    with pytest.raises(UsageError):
        keep_tables("sparsity-bridge", tmp_path, tmp_path)
    with pytest.raises(UsageError):
        kept_table("sparsity-bridge", 0, tmp_path)


class TestPlanted:
    scale = bridge_planted_cells.SCALES["default"]

    def numbers(self, *, aligned_touched=0.6, aligned_untouched=0.06, untouched=0.06, found=0.99, half=0.01):
        entropy = 0.056
        rows = {}
        for cell in bridge_planted_cells.CELLS:
            for k in self.scale.ks:
                best = planted_jeffreys(share_touched(24, 12, k, cell.width(self.scale)), 0.01)
                for arm in bridge_planted_cells.OBJECTIVES:
                    aligned = arm == bridge_planted_cells.ALIGNED
                    touched = aligned_touched if aligned else entropy
                    values = {
                        "jeffreys": best * 1.02,
                        "loss_touched": touched,
                        "loss_untouched": aligned_untouched if aligned else untouched,
                        "found": found,
                    }
                    for metric, value in values.items():
                        rows[cell.key, arm, k, metric, None] = Row(
                            model="m",
                            task=f"noisy parity, k = {k}",
                            metric=metric,
                            value=value,
                            arm=arm,
                            bucket=cell.key,
                            ci_low=value - half,
                            ci_high=value + half,
                        )
        return rows

    def test_models_that_do_as_the_best_predictions(self):
        assert verdicts(bridge_planted.claims_of(self.scale), self.numbers()) == ["holds"] * 6

    def test_models_that_forget_nothing_and_look_elsewhere(self):
        found = verdicts(bridge_planted.claims_of(self.scale), self.numbers(aligned_touched=0.1, found=0.5))
        assert found == [*["holds"] * 2, "does not hold", "holds", *["does not hold"] * 2]

    def test_alignment_that_costs_on_untouched_samples_too(self):
        found = verdicts(bridge_planted.claims_of(self.scale), self.numbers(aligned_untouched=0.3))
        assert found == [*["holds"] * 2, "does not hold", *["holds"] * 3]

    def test_intervals_that_reach_over_the_limits_decide_nothing(self):
        found = verdicts(bridge_planted.claims_of(self.scale), self.numbers(half=0.6))
        assert found == ["not decided"] * 6

    def test_disagreement_that_falls_with_k(self):
        numbers = self.numbers()
        for (law, arm, k, metric, distance), row in numbers.items():
            if metric == "jeffreys":
                turned = row.value if law == "local" else 2 - row.value
                numbers[law, arm, k, metric, distance] = replace(
                    row, value=turned, ci_low=turned - 0.01, ci_high=turned + 0.01
                )
        assert verdicts(bridge_planted.claims_of(self.scale), numbers)[1] == "does not hold"

    def test_two_seeds_decide_nothing(self):
        numbers = {place: replace(row, ci_low=None, ci_high=None) for place, row in self.numbers().items()}
        assert verdicts(bridge_planted.claims_of(self.scale), numbers) == ["not decided"] * 6

    def test_models_that_were_not_trained_decide_nothing(self):
        found = verdicts(bridge_planted.claims_of(self.scale), self.numbers(untouched=0.3))
        assert found == ["says nothing: not trained"] * 6


def needle_row(metric, distance, low, high, documents=8):
    return Row(
        model="m",
        task="needle",
        metric=metric,
        documents=documents,
        value=(low + high) / 2,
        distance=distance,
        ci_low=low,
        ci_high=high,
    )


def test_verdicts_on_a_needle():
    scale = replace(bridge_needle.SCALES["default"], distances=(32, 96, 480))

    def numbers(near, alone, documents=8):
        rows = [needle_row("jeffreys", 32, 0.0, near, documents)]
        for distance in (96, 480):
            rows += [
                needle_row("jeffreys", distance, 3.0, 4.0),
                needle_row("recovered_alone", distance, *alone),
                needle_row("recovered_sentence", distance, 0.85, 0.9),
            ]
        return {(row.distance, row.metric, None): row for row in rows}

    claims = bridge_needle.claims_of(scale)
    assert verdicts(claims, numbers(0.1, (0.1, 0.2))) == ["holds", "does not hold", "holds"]
    assert verdicts(claims, numbers(3.5, (0.7, 0.9))) == ["not decided", "not decided", "holds"]
    few = verdicts(claims, numbers(0.1, (0.1, 0.2), documents=7))
    assert few == ["not decided: fewer than 8 documents", "does not hold", "holds"]
    contrary = {
        key: replace(row, ci_low=5.0, ci_high=6.0) if key[0] == 32 else row
        for key, row in numbers(0.1, (0.1, 0.2)).items()
    }
    assert verdicts(claims, contrary)[0] == "does not hold"


@pytest.mark.parametrize("bridge", [SMALL, REAL], ids=["small", "real"])
def test_every_arm_of_a_claim_is_in_the_study(bridge):
    names = [arm.name for arm in bridge.experiment.arms]
    assert {bridge.control, *bridge.aligned, *bridge.others} == set(names) - {bridge.start}


def test_what_training_forgets_and_what_other_forms_spare():
    """The aligned arm loses 1 on far and sparse tokens, the others nothing."""
    arms = {}
    for arm in SMALL.experiment.arms:
        for seed in [None] if arm.changes is None else (0, 1):
            lost = arm.name == SMALL.aligned[0]
            arms[arm.name, seed] = [
                Token(f"d{doc}", f"w{doc}", place, long + lost * (place == 41), 5.0, 1.0, needed)
                for doc in range(9)
                for place, long, needed in ((40, 5.0, None), (41, 1.0 + doc / 10, 2.0), (42, 1.0, math.inf))
            ]
    rows = SMALL.rows(arms, 0.5, "m")
    found = verdicts(SMALL.claims(), rows)
    assert found == ["yes", "no", "no", "no", "yes", "yes"]
    [value] = {
        row.value
        for row in rows
        if (row.arm, row.reference, row.metric, row.bucket)
        == (SMALL.others[0], SMALL.aligned[0], "forgotten", SPARSE)
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
