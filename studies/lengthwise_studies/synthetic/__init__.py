"""Small Transformers on small tasks: does what they learn on short sequences hold on long ones?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from lengthwise.errors import UsageError, nearest

T = TypeVar("T")


def named(table: Mapping[str, T], name: str, what: str) -> T:
    """The entry of that name in a table of `what`.

    Raises:
        UsageError: there is none.
    """
    if name not in table:
        raise UsageError(f"there is no {what} {name!r}", expected=nearest(name, table))
    return table[name]
