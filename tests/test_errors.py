from __future__ import annotations

from lengthwise.errors import LengthwiseError, nearest


def test_an_error_says_problem_expectation_and_fix() -> None:
    assert str(LengthwiseError("it broke")) == "it broke"
    whole = LengthwiseError("length is 0", expected="1 or more", fix="--length 8")
    assert str(whole) == "length is 0\nexpected: 1 or more\nfix: --length 8"
    guess = LengthwiseError("unknown key 'alhpa'", expected=nearest("alhpa", ["alpha"]))
    assert str(guess) == "unknown key 'alhpa'\ndid you mean 'alpha'?"
    assert nearest("zzz", ["b", "a"]) == "one of: a, b"
