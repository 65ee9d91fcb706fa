"""What `make check-served` compares."""

import pytest

from lengthwise.results import Row
from tools.docs.served_tables import apart


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
