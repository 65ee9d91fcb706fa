from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lengthwise.errors import UsageError
from lengthwise.measure.correlation import correlate, correlate_runs
from lengthwise.results import Results, Row


def test_coefficients_by_hand():
    # Ranks of y: 1, 3, 2, 4.5, 4.5.
    found = correlate([1, 2, 3, 4, 5], [2, 9, 4, 10, 10])
    pearson, spearman = found.rows
    assert pearson.n == spearman.n == 5
    assert pearson.value == pytest.approx(np.corrcoef([1, 2, 3, 4, 5], [2, 9, 4, 10, 10])[0, 1])
    assert spearman.value == pytest.approx(np.corrcoef([1, 2, 3, 4, 5], [1, 3, 2, 4.5, 4.5])[0, 1])
    pearson, spearman = correlate([1, 2, 3, 4], [1, 10, 100, 1000]).rows
    assert spearman.value == pytest.approx(1)
    assert pearson.value < 0.9


def test_the_interval_covers():
    covered = {"pearson": 0, "spearman": 0}
    rho, n, repetitions = 0.6, 24, 100
    # Spearman's of a normal pair: 6 / pi asin(rho / 2).
    true = {"pearson": rho, "spearman": 6 / np.pi * np.arcsin(rho / 2)}
    for repetition in range(repetitions):
        x, z = np.random.default_rng(repetition).normal(size=(2, n))
        found = correlate(x, rho * x + np.sqrt(1 - rho**2) * z)
        for row in found.rows:
            covered[row.metric] += row.ci_low <= true[row.metric] <= row.ci_high
    # The percentile interval of a correlation is known to be a little short.
    assert all(count / repetitions > 0.87 for count in covered.values()), covered


@pytest.mark.parametrize(
    ("n", "words"),
    [
        (1, "One model says nothing."),
        (2, "2 models say nothing"),
        (5, "unrelated numbers correlate by 0.88 or more in 5 % of cases; 5 models are too few"),
        (12, "unrelated numbers correlate by 0.58 or more in 5 % of cases; these do by 1.00 (Pearson)"),
    ],
)
def test_what_n_allows_to_say(n: int, words: str):
    x = np.arange(n) + 0.01 * np.cos(np.arange(n))
    assert words in correlate(x, 2 * np.arange(n)).notes[0]


def test_nothing_can_be_said_of_what_chance_gives():
    found = correlate([1, 2, 3, 4, 5, 6], [1, 5, 2, 6, 3, 4])
    assert "nothing can be said" in found.notes[0]
    assert found.rows[0].ci_low < 0 < found.rows[0].ci_high


def test_one_model_that_decides_is_named():
    x = [*range(11), 100]
    found = correlate(x, [5, 2, 7, 1, 8, 3, 6, 0, 9, 4, 5, 90])
    assert found.rows[0].value > 0.9
    assert "Their ranks do by" in found.notes[0]
    assert "ranks" not in correlate(x, x).notes[0]


def test_what_does_not_vary_has_no_correlation():
    found = correlate([0.1, 0.1, 0.1], [1, 2, 3])
    assert [row.value for row in found.rows] == [None, None]
    assert "does not vary" in found.notes[0]
    assert "does not vary" in correlate([1, 2, 3], [4, 4, 4]).notes[0]
    assert "does not vary" in correlate([1, 1, 1], [4, 4, 4]).notes[0]


@pytest.mark.parametrize(
    ("x", "y", "message"), [([1], [1, 2], "1 values of one and 2"), ([1, np.nan], [1, 2], "NaN or infinite")]
)
def test_wrong_values(x, y, message):
    with pytest.raises(UsageError, match=message):
        correlate(x, y)


def rows(model: str, jeffreys: float, accuracy: float | None) -> list[Row]:
    found = [
        Row(model=model, task="misalignment", metric="jeffreys", value=jeffreys, length=1024),
        Row(model=model, task="misalignment", metric="jeffreys", value=9.0, length=2048),
        Row(model=model, task="misalignment", metric="jeffreys", value=7.0, length=1024, position=512),
    ]
    if accuracy is not None:
        found.append(Row(model=model, task="babilong", metric="accuracy", value=accuracy, length=4096))
    return found


def test_runs_of_several_models(tmp_path: Path):
    paths = []
    for name, jeffreys, accuracy in (("a", 0.1, 0.9), ("b", 0.2, 0.7), ("c", 0.4, 0.1), ("d", 1.0, None)):
        results = Results(kind="k", model_name=name, config={}, rows=rows(name, jeffreys, accuracy))
        paths.append(tmp_path / f"{name}.json")
        paths[-1].write_text(results.to_json())
    found = correlate_runs(paths, "misalignment/jeffreys@1024", "accuracy")
    *pairs, pearson, spearman = found.rows
    assert [(row.model, row.value) for row in pairs] == [
        ("a", 0.1), ("a", 0.9), ("b", 0.2), ("b", 0.7), ("c", 0.4), ("c", 0.1)
    ]  # fmt: skip
    assert pearson.n == 3
    assert found.notes[1].endswith(": d.")
    assert spearman.value == pytest.approx(-1)
    with pytest.raises(UsageError, match="'jeffreys' names 2 numbers of a"):
        correlate_runs(paths, "jeffreys", "accuracy")
    with pytest.raises(UsageError, match="names 2 numbers of a") as caught:
        correlate_runs([*paths, paths[0]], "misalignment/jeffreys@1024", "accuracy")
    assert "one run of each model" in str(caught.value.expected)
    with pytest.raises(UsageError, match="no model has both"):
        correlate_runs(paths, "misalignment/jeffries@1024", "accuracy")
    with pytest.raises(UsageError, match="no length after @"):
        correlate_runs(paths, "jeffreys@1k", "accuracy")
