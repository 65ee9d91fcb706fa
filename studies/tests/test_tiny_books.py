"""The small study with a seventh of its steps: what the findings say of it has to come out again.

The limits are wide: the range over the six runs of a prototype with all steps, with margin on both sides.
"""

from collections.abc import Callable
from dataclasses import replace
from statistics import fmean

import pytest

from lengthwise.results import Results
from lengthwise_studies import store
from lengthwise_studies.tiny_books import EXPERIMENT, SCALES, START, YARN, measures

pytestmark = [pytest.mark.real, pytest.mark.slow]

Difference = Callable[..., float]


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> Results:
    # Intervals are not asserted, so fewer samples than the study's own will do; nor are recall and the first model.
    taken = {
        name: measure
        for name, measure in measures(windows=24, segments=16, pairs=1).items()
        if name != "recall"
    }
    taken["perplexity"]["lengths"] = [128, 512]
    asserted = replace(EXPERIMENT, arms=tuple(arm for arm in EXPERIMENT.arms if arm.name != START))
    scale = replace(SCALES["default"], measures=taken, steps=20)
    folder = tmp_path_factory.mktemp("study")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(store, "cache_dir", lambda: folder)
        return asserted.run(folder / "run", scale)


@pytest.fixture(scope="module")
def difference(results) -> Difference:
    def of(arm: str, metric: str, **where: int) -> float:
        rows = [
            row
            for row in results.rows
            if row.arm == arm
            and row.metric == metric
            and row.reference is not None
            and row.position is None
            and row.context_other is None
            and all(getattr(row, name) == value for name, value in where.items())
        ]
        assert rows, (arm, metric, where)
        return fmean(row.value for row in rows)

    return of


def _value(results: Results, arm: str, metric: str, length: int) -> float:
    [row] = [
        row
        for row in results.rows
        if (row.arm, row.metric, row.length, row.reference) == (arm, metric, length, None)
        and row.position is None
        and row.context_other is None
    ]
    return row.value


def test_sce_is_nearly_all_entropy(results):
    assert _value(results, "plain CE", "entropy", 128) > 0.95 * _value(results, "plain CE", "sce", 128)


def test_sce_at_the_papers_weight_costs_loss_within_the_training_length(difference):
    assert difference("SCE 0.1", "loss", length=128) > 0.03


def test_sce_does_what_the_entropy_penalty_does(difference):
    for length in (128, 512):
        sce, entropy = (difference(arm, "loss", length=length) for arm in ("SCE 0.1", "entropy 0.1"))
        assert abs(sce - entropy) < 0.01


def test_jeffreys_lowers_the_disagreement_by_half(results):
    plain, aligned = (_value(results, arm, "jeffreys", 128) for arm in ("plain CE", "Jeffreys 10"))
    assert aligned < plain / 2


def test_jeffreys_gains_beyond_the_training_length_and_costs_little_within(difference):
    assert difference("Jeffreys 10", "loss", length=512) < -0.02
    assert difference("Jeffreys 10", "loss", length=128) < 0.015


def test_switching_yarn_on_gains_far_more_than_any_term(difference):
    assert difference(YARN, "loss", length=512) < 5 * difference("Jeffreys 10", "loss", length=512)
