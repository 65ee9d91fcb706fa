"""Copy a string.

>>> COPY.answer("abca")
'abca'
"""

from __future__ import annotations

from lengthwise.synthetic.tasks.symbols import SymbolTask, any_of


def copy(question: str) -> str:
    """The string itself."""
    return question


COPY = SymbolTask("copy", "the string itself", "abcdefgh", any_of("abcdefgh"), copy, None, "growing")
