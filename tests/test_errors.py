import pickle

from lengthwise.checkpoints.head import NonFiniteLogits
from lengthwise.errors import EXIT_CODES, Interrupted, LengthwiseError, nearest
from lengthwise.evaluation.task import DoesNotFit
from lengthwise.subjects.answers import Refused
from lengthwise.text.local_files import _Unreadable


def test_an_error_says_problem_expectation_and_fix() -> None:
    assert str(LengthwiseError("it broke")) == "it broke"
    whole = LengthwiseError("length is 0", expected="1 or more", fix="--lengths 8")
    assert str(whole) == "length is 0\nexpected: 1 or more\nfix: --lengths 8"
    guess = LengthwiseError("unknown key 'alhpa'", expected=nearest("alhpa", ["alpha"]))
    assert str(guess) == "unknown key 'alhpa'\ndid you mean 'alpha'?"
    assert nearest("zzz", ["b", "a"]) == "one of: a, b"


def test_every_error_has_an_exit_code_that_the_table_explains() -> None:
    assert {kind.exit_code for kind in kinds(LengthwiseError)} <= set(EXIT_CODES)


def test_every_error_comes_back_from_another_process() -> None:
    for error in (
        LengthwiseError("it broke", expected="not that", fix="mend it"),
        DoesNotFit(8, {"needle": 9}, "--lengths {}"),
        _Unreadable("file", "cannot be read"),
        NonFiniteLogits(1),
        Refused("no", status=404),
        Interrupted("stopped"),
    ):
        back = pickle.loads(pickle.dumps(error))
        assert (type(back), str(back), vars(back)) == (type(error), str(error), vars(error))


def kinds(kind: type[LengthwiseError]) -> list[type[LengthwiseError]]:
    return [kind, *(one for below in kind.__subclasses__() for one in kinds(below))]
