from collections.abc import Sequence

import pytest

from lengthwise.evaluation.evaluate import Evaluation
from lengthwise.evaluation.prompts import prompt_notes
from lengthwise.results import Row


def of(scores: Sequence[Sequence[float]]) -> Row:
    """The row over all depths for scores by sample and depth."""
    records = [
        {
            "document": f"s{sample}", "task": "needle_single", "version": 2, "length": 512, "depth": float(depth),
            "bucket": None, "cut": 0, "score": score,
        }
        for sample, by_depth in enumerate(scores)
        for depth, score in enumerate(by_depth)
    ]  # fmt: skip
    evaluation = Evaluation(tasks=("needle_single",), lengths=(512,))
    rows = evaluation.rows(evaluation.statistics(records), records)
    [row] = [row for row in rows if row.depth is None]
    return row


def test_a_sample_with_all_its_depths_is_one_unit() -> None:
    row = of([[1, 1], [0, 0], [1, 1], [0, 1]])
    assert row.value == pytest.approx(5 / 8)
    assert (row.n, row.documents) == (8, 4)
    # The standard error of the mean of 1, 0, 1 and 1/2, up to the bootstrap's own noise.
    assert row.stderr == pytest.approx(0.479 / 2, rel=0.05)


def test_all_right_or_all_wrong_has_the_exact_binomial_interval() -> None:
    wrong, right = of([[0], [0], [0], [0], [0]]), of([[1], [1], [1], [1], [1]])
    # Clopper and Pearson, 0 of 5: 1 - 0.025^(1/5).
    assert (wrong.ci_low, wrong.ci_high) == (0, pytest.approx(0.5218, abs=1e-4))
    assert (right.ci_low, right.ci_high) == (pytest.approx(0.4782, abs=1e-4), 1)


def test_samples_that_agree_between_leave_nothing_to_make_an_interval_from() -> None:
    row = of([[1, 0], [0, 1], [1, 0]])
    assert (row.value, row.ci_low, row.ci_high, row.stderr) == (0.5, None, None, None)


@pytest.mark.parametrize("loss", [0.0, 0.5, 1.0])
def test_losses_that_agree_are_no_binomial_share(loss: float) -> None:
    """A model that is sure of each right answer has a loss of exactly 0."""
    records = [
        {
            "document": f"s{sample}", "task": "chains_0", "version": 2, "length": 512, "depth": None,
            "bucket": None, "cut": 0, "score": 1.0, "probability": 1.0, "gold_loss": loss, "chance": 0.25,
        }
        for sample in range(5)
    ]  # fmt: skip
    evaluation = Evaluation(tasks=("chains_0",), lengths=(512,), mode="likelihood")
    rows = {row.metric: row for row in evaluation.rows(evaluation.statistics(records), records)}
    row = rows["gold_loss"]
    assert (row.value, row.ci_low, row.ci_high, row.stderr) == (loss, None, None, None)
    assert rows["accuracy"].ci_low == pytest.approx(0.4782, abs=1e-4)


def test_rounding_is_no_interval() -> None:
    # Each sample's mean is 0.3, and sums of ten of them differ in their last bits with the order.
    row = of([[0.1, 0.5], [0.2, 0.4], [0.3, 0.3], [0.25, 0.35]] * 3)
    assert row.value == pytest.approx(0.3)
    assert (row.ci_low, row.ci_high, row.stderr) == (None, None, None)


def effective(by_length: dict[int, Sequence[float]]) -> Row | None:
    """The effective length of a task with these scores of its samples; guessing is right in a quarter."""
    records = [
        {
            "document": f"s{sample}", "task": "chains_0", "version": 1, "length": length, "depth": None,
            "bucket": None, "cut": 0, "score": score, "probability": score, "gold_loss": 0.0, "chance": 0.25,
        }
        for length, scores in by_length.items()
        for sample, score in enumerate(scores)
    ]  # fmt: skip
    evaluation = Evaluation(tasks=("chains_0",), lengths=tuple(by_length), mode="likelihood")
    rows = evaluation.rows(evaluation.statistics(records), records)
    return next((row for row in rows if row.metric == "effective_length"), None)


def test_the_effective_length_ends_where_less_than_85_per_cent_are_kept() -> None:
    full, nine, eight = [1.0] * 10, [0.0] + [1.0] * 9, [0.0] * 2 + [1.0] * 8
    row = effective({256: full, 512: nine, 1024: eight, 2048: nine})
    assert (row.value, row.unit, row.n, row.documents, row.at_least) == (512, "tokens", 40, 10, None)
    # Among the resamples of ten samples some keep 85 % throughout, and some lose more at once.
    assert row.ci_low < 512 <= row.ci_high
    kept = effective({256: full, 512: nine})
    assert (kept.value, kept.at_least) == (512, True)


@pytest.mark.parametrize(("right", "samples"), [(20, 29), (40, 53), (40, 58), (60, 74)])
def test_just_85_per_cent_are_kept(right: int, samples: int) -> None:
    """17 is 85 % of 20, and the product of rounded shares may lie above it."""
    short, long = ([1.0] * kept + [0.0] * (samples - kept) for kept in (right, right * 17 // 20))
    assert effective({256: short, 512: long}).value == 512
    assert effective({256: short, 512: [0.0, *long[1:]]}).value == 256


def test_an_interrupted_run_has_no_interval_of_the_effective_length() -> None:
    """Of twelve samples two have been asked at the longer length: a tenth of the resamples have none of them."""
    row = effective({256: [1.0] * 12, 512: [1.0] * 2})
    assert (row.value, row.ci_low, row.ci_high) == (512, None, None)


def test_no_effective_length_of_guesses() -> None:
    assert effective({256: [1.0, 0.0, 0.0, 0.0] * 3, 512: [1.0, 0.0, 0.0, 0.0] * 3}) is None
    assert effective({256: [1.0] * 12}) is None


def test_notes_say_what_was_cut_and_how_far_answers_are_from_their_depths() -> None:
    facts = [
        {"cut": 0, "depth": 50.0, "reached": 0.47},
        {"cut": 10, "depth": None, "reached": 0.0},
        {"cut": 20, "depth": 100.0, "reached": 0.99},
    ]
    cut, off = prompt_notes({"x": facts, "y": [{"cut": 0}]}, "middle", 60)
    assert all(part in cut for part in ("2 of 3", "60 tokens", "15 tokens"))
    assert "3 points" in off
