from __future__ import annotations

import pytest

from lengthwise.results import Results, Row
from lengthwise.studies.far_context import EXPERIMENT, FAR_CONTEXT, FORMS, claims, verdicts
from lengthwise.studies.training_forms import CONTROL, HALF

LENGTHS = {"eval": {"lengths": [2048, 7000]}, "perplexity": {"lengths": [1024, 2048]}}


def results(far: float, cost: float, near: float) -> Results:
    """Three seeds around these differences from the control, over a hundred documents."""
    rows = [
        Row(
            model="m",
            task=task,
            metric=metric,
            value=value * (1 + 0.01 * seed),
            stderr=0.001,
            documents=100,
            length=length,
            arm=HALF,
            reference=CONTROL,
            seed=seed,
        )
        for seed in range(3)
        for task, metric, length, value in (
            ("needle_multi_key", "accuracy", 7000, far),
            ("needle_multi_key", "accuracy", 2048, near),
            ("perplexity", "loss", 1024, cost),
        )
    ]
    return Results(
        kind="far-context", model_name="m", config={"measures": LENGTHS, "arms": {HALF: {}}}, rows=rows
    )


@pytest.mark.parametrize(
    ("differences", "expected"),
    [
        ((0.2, 0.004, 0.0), ["reproduced"] * 3),
        ((-0.2, 0.03, -0.2), ["opposite"] * 3),
        ((0.0, 0.01, -0.05), ["not distinguishable from noise"] * 3),
        # A gain contradicts neither the allowed cost nor the allowed loss.
        ((0.2, -0.03, 0.2), ["reproduced"] * 3),
    ],
)
def test_the_form_is_judged_by_its_three_claims(differences: tuple[float, float, float], expected: list[str]):
    table = verdicts(results(*differences))
    assert [row[table.columns.index("verdict")] for row in table.rows] == expected
    # No paper says anything of this form.
    assert "paper" not in table.columns


def test_claims_compare_the_form_with_its_control_and_every_scale_has_three_seeds():
    arms = {arm.name for arm in EXPERIMENT.arms}
    found = results(0, 0, 0)
    assert [(claim.arm, claim.against) for claim in claims(found)] == [(HALF, CONTROL)] * 3
    found.config["arms"] = {name: {} for name in arms}
    judged = claims(found)
    assert [(claim.arm, claim.against) for claim in judged] == [
        (form, CONTROL) for form in FORMS for _ in range(3)
    ]
    assert {*FORMS, CONTROL} < arms
    assert {scale.seeds for scale in FAR_CONTEXT.parts[0].scales.values()} == {3}
