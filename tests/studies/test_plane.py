"""The plane: what is placed where, what counts, and what is said of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import lengthwise.studies.section3.plane as plane
from lengthwise.errors import Interrupted
from lengthwise.results import read_results
from lengthwise.studies.section3.exactness import Exactness
from lengthwise.studies.section3.plane import (
    ENCODINGS,
    TASKS,
    TRAIN_LENGTH,
    Correlation,
    Placed,
    above_chance,
    associations,
    place,
    rank_correlation,
)
from lengthwise.studies.section3.plane_page import correlation_text, plane_picture, verdict
from lengthwise.studies.study_table import produce


def _outcome(fit: float, beyond: float, *, chance: float = 0.0) -> Exactness:
    lengths = list(range(1, 2 * TRAIN_LENGTH + 1))
    by_length = [fit if length <= TRAIN_LENGTH else beyond for length in lengths]
    return Exactness(
        train_loss=[0.1] * 3,
        lengths=lengths,
        exact=[by_length] * 3,
        symbols=None,
        chance=[chance] * len(lengths),
        seconds=1.0,
    )


def _placed(task: str, hierarchy: str | None, outside: float, beyond: float, *, fit: float = 1.0) -> Placed:
    return Placed(
        task=task,
        hierarchy=hierarchy,
        outside=outside,
        shift=0.1,
        encoding="none",
        fit=[fit] * 3,
        beyond=[beyond] * 3,
        symbols=0.5,
        chance=0.5,
    )


def test_ranks_share_ties_and_correlations_are_spearmans():
    # Ranks 1.5, 4, 1.5, 3 against 1, 2, 3, 4.
    tied = rank_correlation([10.0, 30.0, 10.0, 20.0], [1.0, 2.0, 3.0, 4.0]).value
    assert tied == pytest.approx(np.corrcoef([1.5, 4, 1.5, 3], [1, 2, 3, 4])[0, 1])
    x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert rank_correlation(x, [value**3 for value in x]).value == pytest.approx(1)
    # Sum of squared rank differences 4 + 1 + 1 + 0 + 0 + 0: rho = 1 - 6 * 6 / (6 * 35).
    found = rank_correlation(x, [3.0, 1.0, 2.0, 4.0, 5.0, 6.0])
    assert found.value == pytest.approx(1 - 36 / 210)
    assert found.value is not None
    assert found.low is not None
    assert found.high is not None
    assert -1 <= found.low < found.value < found.high <= 1
    assert found == rank_correlation(x, [3.0, 1.0, 2.0, 4.0, 5.0, 6.0]), "the same every time"


def test_correlations_that_are_undefined_say_so():
    assert rank_correlation([], []) == Correlation(None, None, None, 0)
    assert rank_correlation([1, 1, 1, 1, 1], [1, 2, 3, 4, 5]).value is None
    few = rank_correlation([1, 2, 3, 4], [1, 2, 3, 4])
    assert few.value == pytest.approx(1)
    assert (few.low, few.high, few.n) == (None, None, 4)
    # One differing pair: constant in (5/6)^6 = 33 % of the resamples.
    assert rank_correlation([0, 0, 0, 0, 0, 1], [1, 2, 3, 4, 5, 6]).low is None
    assert correlation_text(few) == "1.00 (no interval), n = 4"
    assert correlation_text(Correlation(None, None, None, 3)) == "undefined, n = 3"
    assert correlation_text(Correlation(-0.5, -0.8, 0.1, 9)) == "-0.50 [-0.80, 0.10], n = 9"


def test_generalization_counts_from_chance():
    assert above_chance(0.75, 0.5) == 0.5
    assert above_chance(0.4, 0.5) == 0
    assert above_chance(1.0, 0.0) == 1
    [one] = place({("parity", "none"): _outcome(1.0, 0.75, chance=0.5)})
    assert one.generalization == 0.5
    assert one.fit == [1.0] * 3
    assert (one.hierarchy, one.outside, one.support) == ("regular", 0.0, "unchanged")


def test_an_encoding_that_fits_comes_before_one_that_is_lucky():
    found = {("copy", "none"): _outcome(0.95, 0.1), ("copy", "alibi"): _outcome(0.5, 0.3)}
    assert place(found)[0].encoding == "none"
    found["copy", "alibi"] = _outcome(0.92, 0.3)
    [one] = place(found)
    assert (one.encoding, one.generalization, one.hierarchy) == ("alibi", pytest.approx(0.3), None)


def test_only_what_fits_counts_and_only_what_has_a_class_is_ranked_by_it():
    placed = [
        _placed("parity", "regular", 0, 0.0, fit=0.2),
        _placed("even-pairs", "regular", 0, 0.9),
        _placed("reverse", "context-free", 1, 0.2),
        _placed("mean", None, 0, 1.0),
        _placed("copy", None, 1, 0.1),
        _placed("sort", None, 1, 0.3),
    ]
    counted = {(one.of, one.tasks): one.correlation.n for one in associations(placed)}
    assert counted["generalization and support left", "that fit"] == 5
    assert counted["generalization and class", "that fit, with a class"] == 2
    assert counted["generalization and support left", "all"] == 6
    assert counted["generalization and support left", "that fit, strings"] == 4, "the mean is a number"
    support = associations(placed)[0].correlation
    assert support.value is not None
    assert support.value < -0.8


def test_the_verdict_follows_the_counts():
    both = [_placed("mean", None, 0, 1.0), _placed("copy", None, 1, 0.1)]
    said = " ".join(verdict(both, associations(both)))
    assert "an unchanged support is enough in every task that fits" in said
    assert "a grown one went with failure in every task that fits" in said
    numbers = [*both, _placed("sum", None, 0.15, 0.83)]
    assert "to 0.02: mean 1.00, 1.00 inside; sum 0.83, 0.85 inside" in " ".join(
        verdict(numbers, associations(numbers))
    )
    against = [*both, _placed("parity", "regular", 0, 0.0), _placed("sort", None, 1, 0.95)]
    said = " ".join(verdict(against, associations(against)))
    assert "an unchanged support is not enough, and a grown one does not prevent" in said
    unfit = [replace(one, fit=[0.1] * 3) for one in against]
    assert verdict(unfit, associations(unfit))[0].startswith("0 of 4 tasks fit")


def test_the_picture_tells_learned_from_not_learned():
    drawn = plane_picture([_placed("mean", None, 0, 1.0), _placed("copy", None, 1, 0.1, fit=0.3)])
    assert "mean: 1.00; copy: not learned" in drawn.alt
    assert "0: chance" in drawn.caption or "above chance" in drawn.caption


def test_the_plane_as_a_whole_goes_on_after_a_stop(tmp_path, monkeypatch):
    original, calls = plane.exactness, []

    def stopping(*pair, **options):
        calls.append(pair)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return original(*pair, **options)

    monkeypatch.setattr(plane, "exactness", stopping)
    with pytest.raises(Interrupted):
        produce("plane", tmp_path / "run", scale="smoke", steps=1)
    produced = produce("plane", tmp_path / "run", scale="smoke", steps=1, resume=True)
    assert len(calls) == len(TASKS) * len(ENCODINGS) + 1, "four, the one that was stopped, and the rest"
    assert [len(table.rows) for table in produced.tables] == [len(TASKS), 10]
    assert {path.name for path in (tmp_path / "run" / "figures").iterdir()} == {
        "plane.svg",
        "plane-tasks.svg",
        "tables.md",
    }
    results = read_results(tmp_path / "run" / "results.json")
    trained = [(row.task, row.arm) for row in results.select(metric="exact_in_range")]
    assert trained == [(task, encoding) for task in TASKS for encoding in ENCODINGS]
    [outside] = results.select(task="length", metric="answers_outside_support")
    assert outside.value == 1
    correlations = results.select(metric="rank_correlation")
    assert len(correlations) == 10
    assert all(row.n is not None for row in correlations)
    again = produce("plane", tmp_path / "run", scale="smoke", steps=1, resume=True)
    assert again.tables == produced.tables
