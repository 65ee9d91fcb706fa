from lengthwise.errors import EXIT_CODES, LengthwiseError, nearest


def test_an_error_says_problem_expectation_and_fix() -> None:
    assert str(LengthwiseError("it broke")) == "it broke"
    whole = LengthwiseError("length is 0", expected="1 or more", fix="--lengths 8")
    assert str(whole) == "length is 0\nexpected: 1 or more\nfix: --lengths 8"
    guess = LengthwiseError("unknown key 'alhpa'", expected=nearest("alhpa", ["alpha"]))
    assert str(guess) == "unknown key 'alhpa'\ndid you mean 'alpha'?"
    assert nearest("zzz", ["b", "a"]) == "one of: a, b"


def test_every_error_has_an_exit_code_that_the_table_explains() -> None:
    def kinds(kind: type[LengthwiseError]) -> list[type[LengthwiseError]]:
        return [kind, *(one for below in kind.__subclasses__() for one in kinds(below))]

    assert {kind.exit_code for kind in kinds(LengthwiseError)} <= set(EXIT_CODES)
