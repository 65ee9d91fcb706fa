from __future__ import annotations

import pytest

from lengthwise.errors import (
    Interrupted,
    LengthwiseError,
    MissingError,
    UsageError,
    nearest,
)


def test_an_error_says_problem_expectation_and_fix() -> None:
    assert str(LengthwiseError("it broke")) == "it broke"
    whole = LengthwiseError("length is 0", expected="1 or more", fix="--length 8")
    assert str(whole) == "length is 0\nexpected: 1 or more\nfix: --length 8"
    guess = LengthwiseError("unknown key 'alhpa'", expected=nearest("alhpa", ["alpha"]))
    assert str(guess) == "unknown key 'alhpa'\ndid you mean 'alpha'?"


def test_nearest_lists_all_names_when_none_is_near() -> None:
    assert nearest("zzz", ["b", "a"]) == "one of: a, b"


@pytest.mark.parametrize(
    ("kind", "code"),
    [(LengthwiseError, 1), (UsageError, 2), (MissingError, 3), (Interrupted, 130)],
)
def test_exit_codes(kind: type[LengthwiseError], code: int) -> None:
    error = kind("problem")
    assert error.exit_code == code
    assert isinstance(error, LengthwiseError)


def test_a_usage_error_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="problem"):
        raise UsageError("problem")


def test_an_interruption_carries_what_was_finished() -> None:
    assert Interrupted("stopped", partial=[1]).partial == [1]
