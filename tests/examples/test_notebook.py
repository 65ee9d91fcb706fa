"""The cells of the notebook run as they are, and say what it shows."""

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[2] / "docs" / "use" / "notebook.ipynb"
pytestmark = [pytest.mark.real, pytest.mark.slow]


def shown(cell: dict[str, Any]) -> str:
    """The HTML that a cell kept, or its text."""
    [output] = cell["outputs"] or [{"data": {}}]
    return "".join(output["data"].get("text/html", output["data"].get("text/plain", "")))


def test_every_cell_runs_and_gives_what_is_shown() -> None:
    names: dict[str, Any] = {}
    for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            tree = ast.parse("".join(cell["source"]))
            value: Any = None
            last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, NOTEBOOK.name, "exec"), names)
            if isinstance(last, ast.Expr):
                value = eval(compile(ast.Expression(last.value), NOTEBOOK.name, "eval"), names)
            if hasattr(value, "rows"):
                # Processors round otherwise, so the numbers may differ by a digit.
                [now, then] = (
                    re.sub(r"[\d.]+", "0", html.partition("</b>")[0])
                    for html in (value._repr_html_(), shown(cell))
                )
                assert now == then
