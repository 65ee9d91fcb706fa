"""The headers of requests to an endpoint, whose values come from the environment and go nowhere else."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from lengthwise.errors import MissingError, UsageError, require

KEYS = ("LENGTHWISE_API_KEY", "OPENAI_API_KEY")
"""Environment variables of the key, the first that is set."""


def headers_of(assignments: Sequence[str]) -> dict[str, str]:
    """The headers NAME=ENV, and the key of the environment where none of them is Authorization.

    UsageError for a header or a key that no request can have; MissingError for a variable that is not set.
    """
    keys = ((name, key) for name in KEYS if (key := os.environ.get(name, "").strip()))
    given = [_header(assignment) for assignment in assignments]
    names = {name.lower() for name, _ in given}
    require(len(names) == len(given), "--header gives one name twice", "each name once, in any case")
    found = dict(given)
    if (key := next(keys, None)) and "authorization" not in names:
        found["Authorization"] = f"Bearer {_sent(*key)}"
    return found


def _header(assignment: str) -> tuple[str, str]:
    """Name and value of a header that the command line gives as NAME=ENV."""
    name, _, variable = assignment.partition("=")
    own = name.lower() in ("content-length", "transfer-encoding")
    if own or not re.fullmatch(r"[A-Za-z0-9-]+", name) or not variable:
        raise UsageError(
            f"--header is {name!r}", expected="NAME=ENV, as in api-key=AZURE_KEY (results record it)"
        )
    if not (value := os.environ.get(variable, "").strip()):
        # It may be the secret itself, by mistake.
        raise MissingError(
            f"the environment variable of --header {name} is not set", fix=f"--header {name}=ENV, and set ENV"
        )
    return name, _sent(f"--header {name}", value)


def _sent(name: str, value: str) -> str:
    """A value that a header can have; of another one the HTTP library's errors would show the secret."""
    require(
        value.isascii() and value.isprintable(),
        f"the value of {name} has a character that no header can have",
        "letters, digits and signs of ASCII on one line",
    )
    return value
