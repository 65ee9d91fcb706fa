"""Tokens grouped by what they need: what is forgotten, ranks, and verdicts on made-up numbers."""

import math
from functools import partial

import pytest

from lengthwise.results import Row
from lengthwise_studies.claims import FAILS, HOLDS, judge
from lengthwise_studies.sparsity.bridge import (
    ALIGNED,
    DENSE,
    NO_GAIN,
    OTHERS,
    SPARSE,
    TRAINED,
    bridge_rows,
    claims,
    forgotten,
    group_of,
    in_every_seed,
)
from lengthwise_studies.sparsity.influence import TOO_FEW, Token, tokens_of


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
        tokens_of({name: record(name, shift) for name in "abc"}, [1, 2]) for shift in (0, 0.1, 0.5)
    )
    assert [group_of(token, 1.0) for token in start[:4]] == [NO_GAIN, SPARSE, DENSE, None]
    assert [token.needed for token in start[:4]] == [None, 2, math.inf, None]
    rows = forgotten(arm, control, start, 1.0, model="m", arm="arm")
    found = {(row.metric, row.bucket): row.value for row in rows}
    assert found == {
        ("forgotten", NO_GAIN): pytest.approx(0.4),
        ("forgotten", SPARSE): pytest.approx(1.2),
        ("forgotten", DENSE): 0,
        ("forgotten_more", None): pytest.approx(0.8),
    }


def test_what_training_forgets_and_what_other_forms_spare():
    """The aligned arm loses 1 on far and sparse tokens, the others nothing."""

    def tokens(lost: int) -> list[Token]:
        return [
            Token(f"d{doc}", f"w{doc}", place, long + lost * (place == 41), 5.0, needed)
            for doc in range(9)
            for place, long, needed in ((40, 5.0, None), (41, 1.0 + doc / 10, 2.0), (42, 1.0, math.inf))
        ]

    trained = {(arm.name, seed): tokens(arm.name == ALIGNED[0]) for arm in TRAINED for seed in (0, 1)}
    rows = bridge_rows(tokens(0), trained, 0.5, "m")
    found = [one.verdict for one in judge(claims(), rows)]
    assert found == [HOLDS, FAILS, FAILS, FAILS, HOLDS, HOLDS]
    [value] = {
        row.value
        for row in rows
        if (row.arm, row.reference, row.metric, row.bucket) == (OTHERS[0], ALIGNED[0], "forgotten", SPARSE)
    }
    assert value == pytest.approx(-1)


def test_a_seed_without_an_interval_decides_nothing():
    def row(low, high, documents=9):
        at = {"model": "m", "task": "bridge", "metric": "forgotten", "arm": "a", "reference": "b"}
        return Row(**at, value=1.0, ci_low=low, ci_high=high, documents=documents)

    decide = partial(in_every_seed, "a", "b", "forgotten", None, 1)
    assert decide([]) is None
    assert decide([row(0.5, 1.5), row(None, None)])[1] == TOO_FEW
    assert decide([row(0.5, 1.5), row(0.5, 1.5, documents=7)])[1] == TOO_FEW
    assert decide([row(0.5, 1.5), row(-0.5, 1.5)])[1] == "not decided"
