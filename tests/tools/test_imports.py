"""Planted imports against the order of the packages are found, wherever they are written."""

import shutil
from pathlib import Path

import pytest

from tools.imports import FLOORS, SOURCES, faults, modules

ROOT = Path(__file__).parents[2]
EDGE = "from lengthwise.report import tables"
PLANTED = {
    "evaluation uses report": ("evaluation/needle.py", EDGE, "evaluation is not above report"),
    "report uses subjects": (
        "report/html.py",
        "from lengthwise.subjects import load",
        "report never imports subjects",
    ),
    "one floor": (
        "training/views.py",
        "from lengthwise.evaluation import Evaluation",
        "training is not above evaluation",
    ),
    "in a function": ("measure/perplexity.py", f"def f():\n    {EDGE}", "measure is not above report"),
    "for types": (
        "measure/perplexity.py",
        f"from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    {EDGE}",
        "measure is not above report",
    ),
    "by its text": (
        "measure/perplexity.py",
        'import importlib\nimportlib.import_module("lengthwise.report.tables")',
        "measure is not above report",
    ),
    "a name of the whole package": ("subjects/plan.py", "from lengthwise import train", "above all"),
    "a relative one": ("subjects/plan.py", "from ..report import tables", "relative"),
    "a stub": (
        "measure/__init__.pyi",
        "from lengthwise.report.html import Section",
        "measure is not above report",
    ),
    "the studies": ("catalogue.py", "import lengthwise_studies.store", "the studies use the package"),
    "a package without a place": ("serving.py", "import lengthwise.errors", "serving has no place"),
    "a circle": ("alignment/geometry.py", "import lengthwise.alignment.objective", "in a circle"),
}


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    for path in [*modules(ROOT / SOURCES).values(), *(ROOT / SOURCES).rglob("*.pyi")]:
        copy = tmp_path / path.relative_to(ROOT / SOURCES)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    return tmp_path


def test_the_order_holds(sources: Path) -> None:
    assert faults(sources) == []


@pytest.mark.parametrize("case", PLANTED)
def test_a_planted_import_is_found(sources: Path, case: str) -> None:
    file, line, fault = PLANTED[case]
    path = sources / "lengthwise" / file
    path.write_text((path.read_text() if path.exists() else "") + f"\n\n{line}\n")
    [found] = faults(sources)
    assert fault in found


def test_every_place_in_the_order_is_there() -> None:
    there = {name.split(".")[1] for name in modules(ROOT / SOURCES) if "." in name}
    assert sorted(there) == sorted(name for floor in FLOORS for name in floor)
