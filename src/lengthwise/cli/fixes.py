"""What an error tells to do, without options that the verb at hand does not have.

The library does not know which verb calls it: a folder that cannot be resumed says `--overwrite`, which `card` lacks.
"""

from __future__ import annotations

import re
from collections.abc import Set

_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
_ELSEWHERE = re.compile(r"`[^`]*`|(lengthwise|torchrun|hf|vLLM:?) [^,;)]*")
"""Whole commands and other programs, whose options are their own."""
_BETWEEN = re.compile(r"; |, (?:or )?| or (?=another |choose |start |--)")


def options_in(text: str) -> set[str]:
    """The options that a text tells to give to the verb at hand."""
    return {*_OPTION.findall(_ELSEWHERE.sub("", text))}


def fitting(fix: str, own: Set[str]) -> str | None:
    """The parts of `fix` that name no option but the verb's `own`; None if none is left.

    >>> fitting("restore them, or --overwrite, or another --out", {"--out"})
    'restore them or another --out'
    """
    if options_in(fix) <= own:
        return fix
    kept = [part for part in _BETWEEN.split(fix) if options_in(part) <= own]
    last = " or " if " or " in fix else ", "
    return last.join([", ".join(kept[:-1]), kept[-1]] if len(kept) > 1 else kept) or None
