"""The fields of `results.json` and its JSON schema, from the dataclasses that it is written from."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from pydantic import TypeAdapter

from lengthwise import runs
from lengthwise.results import PLACE, SCHEMA_VERSION, Results, Row
from tools.reference.declared import Field, fields_of
from tools.reference.words import code, plain, table, type_words

_INTRODUCTION = """\
# Results

Every measurement, training run and study writes a run folder, and every run folder holds a `results.json`.
[results.schema.json](results.schema.json) is its JSON schema, `lengthwise.read_results(path)` reads it, and a reader
refuses other versions. The version is {version}. Undefined numbers are `null`, never NaN. A row leaves out fields
that do not apply.
"""


def page() -> str:
    """The page, in Markdown."""
    columns = ["field", "meaning", "type"]
    place = ", ".join(map(code, PLACE))
    return "\n".join(
        [
            _INTRODUCTION.format(version=SCHEMA_VERSION),
            "## Run folder\n",
            table(["file", "what"], _files()),
            "## `results.json`\n",
            table(columns, _rows(fields_of("lengthwise.results.Results"))),
            "## A row\n",
            f"One number with its interval. These fields say which number it is: {place}.\n",
            table(columns, _rows(fields_of("lengthwise.results.Row"))),
        ]
    )


def schema() -> str:
    """The JSON schema."""
    found = TypeAdapter(Results).json_schema()
    # Older versions of pydantic leave out what a class says of itself.
    for part, kind in ((found, Results), (found["$defs"]["Row"], Row)):
        part.setdefault("description", kind.__doc__)
    return json.dumps(found, indent=2) + "\n"


def _files() -> list[tuple[str, str]]:
    """The files of a run folder, as the docstring of `lengthwise.runs` lists them."""
    found = re.findall(r"^(\S+(?: \S+)*) {2,}(.+)$", runs.__doc__ or "", flags=re.MULTILINE)
    return [(code(name), plain(what)) for name, what in found]


def _rows(fields: Sequence[Field]) -> list[tuple[str, str, str]]:
    kinds = {"list[Row]": "list of [rows](#a-row)"}
    return [
        (code(field.name), plain(field.meaning), kinds.get(field.annotation) or type_words(field.annotation))
        for field in fields
    ]
