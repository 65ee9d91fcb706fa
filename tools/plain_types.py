"""Types in the API pages without what only the command line and the checks read: `Annotated[int, ...]` is `int`."""

from __future__ import annotations

from typing import Any

import griffe


class PlainTypes(griffe.Extension):
    """Found by mkdocstrings in this file."""

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
        """Keep the first part of `Annotated`."""
        kind = attr.annotation
        if isinstance(kind, griffe.ExprSubscript) and kind.canonical_path == "typing.Annotated":
            parts = kind.slice
            attr.annotation = parts.elements[0] if isinstance(parts, griffe.ExprTuple) else parts
