from __future__ import annotations

import pytest

from lengthwise.errors import UsageError
from lengthwise.measure import Misalignment, Perplexity, paired_difference
from lengthwise.measure.runner import run as measure

SETTINGS = {"lengths": [16], "windows": 8}


def measured(model, text, **settings):
    return measure(Misalignment(**settings), model, text)


def test_difference_of_two_models(model, other_model, documents):
    a, b = (measured(m, documents, **SETTINGS) for m in (model, other_model))
    values = {(r.metric, r.length, r.context, r.context_other, r.position): r.value for r in b.rows}
    for mine, row in zip(a.rows, paired_difference(a, b), strict=True):
        assert (row.model, row.reference, row.n) == ("tiny", "other", mine.n)
        theirs = values[row.metric, row.length, row.context, row.context_other, row.position]
        assert row.value == pytest.approx(mine.value - theirs, abs=1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"windows": 5}, "windows: 8 and 5"),
        ({"seed": 1}, "seed: 0 and 1"),
        ({"lengths": [32]}, "lengths"),
        ({"estimator": "paper"}, "estimator"),
    ],
)
def test_other_settings_are_refused(model, documents, change, message):
    a = measured(model, documents, **SETTINGS)
    b = measured(model, documents, **{**SETTINGS, **change})
    with pytest.raises(UsageError, match=message):
        paired_difference(a, b)


def test_other_tokens_are_refused(model, documents, make_documents):
    a = measured(model, documents, **SETTINGS)
    b = measured(model, make_documents([900, 700, 800, 600], seed=5), **SETTINGS)
    with pytest.raises(UsageError, match=r"not of the same items"):
        paired_difference(a, b)


def test_an_unfinished_measurement_is_refused(model, documents):
    a = measured(model, documents, **SETTINGS)
    b = measured(model, documents, **SETTINGS)
    b.records = dict(list(b.records.items())[:-2])
    with pytest.raises(UsageError, match="only one has misalignment/lattice3/L16/w0006 and 1 more"):
        paired_difference(a, b)


def test_two_kinds_of_measurement_are_refused(model, documents):
    a = measured(model, documents, **SETTINGS)
    b = measure(Perplexity(lengths=[16], segments=8), model, documents)
    with pytest.raises(UsageError, match="other settings"):
        paired_difference(a, b)


def test_a_single_document_gives_no_interval_and_says_why(model, make_documents):
    found = measured(model, make_documents([500]), **SETTINGS)
    assert all(row.ci_low is None and row.stderr is None for row in found.rows)
    assert any("one of them" in note for note in found.notes)
