"""Errors for users: what is wrong (with the value seen), what was expected, what fixes it.

Every error a user can cause is a `LengthwiseError`; the command line prints it without a traceback and
exits with its `exit_code`. Any other exception is a bug and keeps its traceback. `EXIT_CODES` has all codes.
"""

from __future__ import annotations

import difflib
import traceback
from collections.abc import Collection, Iterable
from numbers import Integral
from typing import Any

THRESHOLD_CROSSED = 4
UNDECIDED = 5
TERMINATED = 143
EXIT_CODES = {
    0: "Done.",
    1: "The run failed.",
    2: "Wrong usage or configuration.",
    3: "Something needed is missing: a model, data, an optional package.",
    THRESHOLD_CROSSED: "A measured value crossed the threshold given with `--fail-above` or `--fail-use`.",
    UNDECIDED: "A threshold could not be decided: the difference is within rounding, the loss of use may be noise "
    "between documents, A has no clear benefit that B could lose, or a side differs from itself.",
    130: "Stopped with Ctrl-C; finished samples are kept.",
    TERMINATED: "Stopped with SIGTERM; finished samples are kept.",
}
"""Every exit code of the command, with what it says."""


class LengthwiseError(Exception):
    """The run failed (exit code 1).

    Args:
        problem: what is wrong, with the value seen.
        expected: what was expected, or the nearest valid name. Optional.
        fix: the command, key or change that fixes it. Optional.
    """

    exit_code = 1

    def __init__(self, problem: str, *, expected: str | None = None, fix: str | None = None) -> None:
        self.problem = problem
        self.expected = expected
        self.fix = fix
        lines = [problem]
        if expected:
            lines.append(expected if expected.startswith("did you mean") else f"expected: {expected}")
        if fix:
            lines.append(f"fix: {fix}")
        super().__init__("\n".join(lines))

    def __reduce__(self) -> Any:
        # Some errors take other arguments than their message; all come back from another process.
        return type(self).__new__, (type(self), *self.args), self.__dict__


class UsageError(LengthwiseError, ValueError):
    """Wrong usage or configuration (exit code 2)."""

    exit_code = 2


class MissingError(LengthwiseError):
    """Something needed is missing: a model, data, an optional package (exit code 3)."""

    exit_code = 3


class Interrupted(LengthwiseError):
    """Stopped with Ctrl-C (exit code 130) or SIGTERM (143); finished samples are kept.

    `partial` holds their results.
    """

    exit_code = 130

    def __init__(self, problem: str, *, partial: Any = None, fix: str | None = None) -> None:
        super().__init__(problem, fix=fix)
        self.partial = partial


def require(holds: bool, problem: str, expected: str) -> None:
    """Raise UsageError unless `holds`."""
    if not holds:
        raise UsageError(problem, expected=expected)


def require_integer(
    name: str, value: Any, *, low: int, high: int | None = None, unit: str = "tokens"
) -> None:
    """Raise UsageError unless a value is an integer in low .. high; True is no number."""
    limits = f"an integer of at least {low}" if high is None else f"an integer in {low} .. {high}"
    integer = isinstance(value, Integral) and not isinstance(value, bool)
    in_range = integer and low <= int(value) and (high is None or int(value) <= high)
    require(in_range, f"{name} is {shown(value)}", f"{limits} ({unit})")


def require_kind(name: str, value: Any, kind: Any, expected: str) -> None:
    """Raise UsageError unless a value is of a type, or of one of several; True is no number."""
    holds = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
    require(holds, f"{name} is {shown(value)}", expected)


def reason(error: BaseException) -> str:
    """The first line of a library's error, with the next ones while it ends in a colon or comma; cut where long."""
    said = ""
    for line in filter(None, map(str.strip, str(error).splitlines())):
        said = f"{said} {line}".strip()
        if not said.endswith((":", ",")):
            break
    if said and isinstance(error, LookupError):
        # A missing key or index says nothing alone.
        said = f"{type(error).__name__}: {said}"
    return (said or type(error).__name__)[:300]


def is_bug(error: BaseException) -> bool:
    """Whether this package raised it, and not as a sentence for the user."""
    *_, (innermost, _) = traceback.walk_tb(error.__traceback__)
    package = __name__.partition(".")[0] + "."
    return not isinstance(error, LengthwiseError) and innermost.f_globals["__name__"].startswith(package)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out. By name: torch may not be loaded, and is not worth loading for this."""
    return type(error).__name__ in ("MemoryError", "OutOfMemoryError") or "DefaultCPUAllocator" in str(error)


def nearest(name: object, valid: Iterable[Any]) -> str:
    """The valid name or value that is closest to `name`, as a question, or a list of all.

    >>> nearest("alhpa", ["alpha", "length"])
    "did you mean 'alpha'?"
    >>> nearest("zzz", ["alpha", "length"])
    'one of: alpha, length'
    """
    names = {str(each): each for each in sorted(valid)}
    close = difflib.get_close_matches(str(name), names, n=1)
    return f"did you mean {names[close[0]]!r}?" if close else "one of: " + (", ".join(names) or "nothing")


def require_known(name: object, valid: Collection[Any], problem: str, *, fix: str | None = None) -> None:
    """Raise UsageError unless `name` is valid. Its message is the `problem`, the name, and the nearest valid name."""
    if name not in valid:
        raise UsageError(f"{problem} {name!r}", expected=nearest(name, valid), fix=fix)


def shown(value: object) -> str:
    """A value in an error message, cut where it is long."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        # An integer of more than 4300 digits, or a value inside of itself.
        return f"a {type(value).__name__} that is too long to show"
    return text if len(text) <= 200 else f"{text[:200]}... ({len(text)} characters)"
