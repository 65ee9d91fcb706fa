"""What an error tells to do, without options that the verb at hand does not have.

The library does not know which verb calls it: a folder that cannot be resumed says `--overwrite`, which `card` lacks.
"""

from __future__ import annotations

import re
from collections.abc import Collection

_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
_ELSEWHERE = re.compile(r"`[^`]*`|(lengthwise|torchrun|hf) [^,;]*")
"""Whole commands, whose options are of their own verb."""
_BETWEEN = re.compile(r"; |, (?:or )?| or (?=another |choose |start |--)")


def options_in(text: str) -> set[str]:
    """The options that a text tells to give to the verb at hand."""
    return {*_OPTION.findall(_ELSEWHERE.sub("", text))}


def fitting(fix: str, own: Collection[str], known: Collection[str]) -> str | None:
    """The parts of `fix` that name no option but the verb's `own`, and those of other programs; None if none is left.

    `known` are the options of all verbs.

    >>> fitting("restore them, or --overwrite, or another --out", {"--out"}, {"--out", "--overwrite"})
    'restore them or another --out'
    """
    foreign = {*known} - {*own}
    if not options_in(fix) & foreign:
        return fix
    kept = [part for part in _BETWEEN.split(fix) if not options_in(part) & foreign]
    last = " or " if " or " in fix else ", "
    return last.join([", ".join(kept[:-1]), kept[-1]] if len(kept) > 1 else kept) or None
