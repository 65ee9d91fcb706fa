"""What the API pages show of an attribute: `Annotated[int, ...]` is `int`, and `field(default=0, ...)` is `0`.

The rest is for the command line and the checks.
"""

from __future__ import annotations

from typing import Any

import griffe


class PlainTypes(griffe.Extension):
    """Found by mkdocstrings in this file."""

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
        """Keep what `Annotated` is about, and the default of `field`."""
        attr.annotation = _plain(attr.annotation)
        value = attr.value
        if isinstance(value, griffe.ExprCall) and value.canonical_path == "dataclasses.field":
            given = {
                each.name: each.value for each in value.arguments if isinstance(each, griffe.ExprKeyword)
            }
            attr.value = given.get("default")


def _plain(kind: Any) -> Any:
    """An annotation without `Annotated`, also inside of it."""
    if isinstance(kind, griffe.ExprSubscript):
        if kind.canonical_path == "typing.Annotated":
            return _plain(kind.slice.elements[0] if isinstance(kind.slice, griffe.ExprTuple) else kind.slice)
        kind.slice = _plain(kind.slice)
    elif isinstance(kind, griffe.ExprTuple):
        kind.elements = [_plain(each) for each in kind.elements]
    elif isinstance(kind, griffe.ExprBinOp):
        kind.left, kind.right = _plain(kind.left), _plain(kind.right)
    return kind
