"""What the API pages show of an attribute: `Annotated[int, ...]` is `int`, and `field(default=0, ...)` is `0`.

The rest is for the command line and the checks.
"""

from __future__ import annotations

from typing import Any

import griffe


class PlainTypes(griffe.Extension):
    """Found by mkdocstrings in this file."""

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
        """Keep the first part of `Annotated`, and the default of `field`."""
        kind = attr.annotation
        if isinstance(kind, griffe.ExprSubscript) and kind.canonical_path == "typing.Annotated":
            parts = kind.slice
            attr.annotation = parts.elements[0] if isinstance(parts, griffe.ExprTuple) else parts
        value = attr.value
        if isinstance(value, griffe.ExprCall) and value.canonical_path == "dataclasses.field":
            given = {
                each.name: each.value for each in value.arguments if isinstance(each, griffe.ExprKeyword)
            }
            attr.value = given.get("default")
