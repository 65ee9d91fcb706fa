"""The bridge: exact numbers on planted tasks, and tokens grouped by what they need."""

from __future__ import annotations

import math

import pytest

from lengthwise.measure.statistics import estimate
from lengthwise_studies.sparsity.bridge import (
    DENSE,
    NO_GAIN,
    SPARSE,
    forgotten,
    group_of,
    rank_correlation_by_document,
    tokens_of,
)


def record(document: str, shift: float) -> dict:
    """Tokens that gain 0, 4 (two kept are enough), 4 (none are) and 4 (not tried)."""
    examined = [
        [40, 1 + shift, 1.0, 0.0],
        [41, 1 + 3 * shift, 5.0, 2.0],
        [42, 1.0, 5.0, 1.0],
        [43, 1.0, 5.0, 3.0],
    ]
    targets = [
        {"position": 41, "losses": {"greedy": [3.0, 1.5]}},
        {"position": 42, "losses": {"greedy": [4.0, 4.0]}},
    ]
    return {"document": document, "examined": examined, "targets": targets}


def test_groups_and_what_is_forgotten():
    start, control, arm = (
        tokens_of({name: record(name, shift) for name in "abc"}, [1, 2], keys="abc")
        for shift in (0, 0.1, 0.5)
    )
    assert [group_of(token, 1.0) for token in start[:4]] == [NO_GAIN, SPARSE, DENSE, None]
    assert [token.needed for token in start[:4]] == [None, 2, math.inf, None]
    assert [token.is_key for token in start[:4]] == [False, True, True, True]
    found = {
        (one.row.metric, one.row.bucket): estimate(one).value
        for one in forgotten(arm, control, start, 1.0, model="m", arm="arm")
    }
    assert found["forgotten", NO_GAIN] == pytest.approx(0.4)
    assert found["forgotten", SPARSE] == pytest.approx(1.2)
    assert found["forgotten", DENSE] == 0
    assert found["forgotten_more", None] == pytest.approx(0.8)


def test_rank_correlation_resamples_documents():
    x = [1.0, 2, 3, 4, 5, 6]
    found = rank_correlation_by_document(x, [value**3 for value in x], list("aabbcc"))
    assert found.value == pytest.approx(1)
    assert found.low == pytest.approx(1)
    assert found.n == 6
    assert rank_correlation_by_document(x, x, list("aabbbb")).low is None
    assert rank_correlation_by_document(x, [1.0] * 6, list("aabbcc")).value is None
