"""Reverse a string.

>>> REVERSE.answer("abb")
'bba'
"""

from __future__ import annotations

from lengthwise.synthetic.tasks.symbols import SymbolTask, any_of


def reverse(question: str) -> str:
    """The string from its end."""
    return question[::-1]


REVERSE = SymbolTask("reverse", "a string reversed", "ab", any_of("ab"), reverse, "context-free", "growing")
