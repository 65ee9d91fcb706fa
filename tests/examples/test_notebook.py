"""The cells of the notebook run as they are, and say what it shows.

`jupyter nbconvert --execute --inplace docs/use/notebook.ipynb` makes its outputs, less those of progress bars.
"""

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

NOTEBOOK = Path(__file__).parents[2] / "docs" / "use" / "notebook.ipynb"
pytestmark = [pytest.mark.real, pytest.mark.slow]


def shown(cell: dict[str, Any], kind: str = "text/html") -> str:
    """What a cell kept."""
    [output] = cell["outputs"]
    return "".join(output["data"].get(kind, ""))


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
            if isinstance(value, Figure):
                assert shown(cell, "image/png").startswith("iVBOR")
                assert value._repr_png_().startswith(b"\x89PNG")
            if hasattr(value, "rows"):
                # Processors round otherwise, so the numbers may differ by a digit.
                [now, then] = (
                    re.sub(r"[\d.]+", "0", html.partition("</b>")[0])
                    for html in (value._repr_html_(), shown(cell))
                )
                assert now == then
