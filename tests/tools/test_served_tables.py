"""What `make served` found, as tables."""

from __future__ import annotations

import pytest

from lengthwise.results import Results, Row
from tools.docs.served_tables import (
    KIND,
    apart,
    comparisons_table,
    verbs_table,
    verdicts_table,
)


def row(metric: str, value: float | None, **more: object) -> Row:
    return Row(model="m", task="ppl", metric=metric, value=value, **more)  # type: ignore[arg-type]


def test_numbers_are_compared_by_place_and_unit():
    own = [
        row("loss", 3.0, length=64),
        row("loss", 4.0, length=128),
        row("used_up_to", 96, unit="tokens"),
        row("undefined", None),
        row("jeffreys", 0.1),
    ]
    served = [
        row("loss", 4.5, length=128),
        row("loss", 2.75, length=64),
        row("used_up_to", 96, unit="tokens"),
        row("undefined", None),
    ]
    nats, tokens, missing = apart("ppl", own, served)
    assert (nats.unit, nats.value, nats.n) == ("nats", 0.5, 3)
    assert (tokens.unit, tokens.value, tokens.n) == ("tokens", 0, 1)
    assert (missing.metric, missing.value) == ("not over HTTP", 1)


def test_a_number_that_one_side_alone_defines_is_no_equality():
    with pytest.raises(AssertionError):
        apart("ppl", [row("loss", None)], [row("loss", 1.0)])


def test_tables():
    def of(metric: str, value: float, **more: object) -> Row:
        return Row(model="m", task="difference", metric=metric, value=value, length=128, arm="A", **more)  # type: ignore[arg-type]

    rows = [
        of("equal_up_to", 96, unit="tokens"),
        of("difference", 0.25, ci_low=0.2, ci_high=0.3),
        of("shift", -2e-7, ci_low=-3e-7, ci_high=0),
        of("largest", 1.5),
        *apart("ppl", [row("loss", 3.0)], [row("loss", 3.00001)]),
    ]
    results = Results(kind=KIND, model_name="m", config={}, rows=rows, notes=["A: It differs: from 96 on."])
    assert comparisons_table(results).rows == [("A", 128, "0.250 [0.200, 0.300]", "-2.0e-07", "1.5", "96")]
    assert verdicts_table(results).rows == [("A", "It differs: from 96 on.")]
    assert verbs_table(results).rows == [("ppl", "1.0e-05 nats (1)", "0")]
