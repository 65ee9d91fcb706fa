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


def plant(sources: Path, file: str, line: str) -> None:
    path = sources / "lengthwise" / file
    path.write_text((path.read_text() if path.exists() else "") + f"\n\n{line}\n")


def test_planted_imports_are_found_each_in_its_place(sources: Path) -> None:
    for file, line, _ in PLANTED.values():
        plant(sources, file, line)
    found = [fault for fault in faults(sources) if "in a circle" not in fault]
    assert len(found) == len(PLANTED)
    for case, (file, _, fault) in PLANTED.items():
        module = file.partition(".")[0].replace("/", ".").removesuffix(".__init__")
        own = [each for each in found if each.startswith(f"lengthwise.{module} imports ") and fault in each]
        alike = [other for other in PLANTED.values() if (other[0], other[2]) == (file, fault)]
        assert len(own) == len(alike), case


def test_a_planted_circle_is_found(sources: Path) -> None:
    plant(sources, "alignment/geometry.py", "import lengthwise.alignment.objective")
    [found] = faults(sources)
    assert "in a circle" in found


def test_every_place_in_the_order_is_there() -> None:
    there = {name.split(".")[1] for name in modules(ROOT / SOURCES) if "." in name}
    assert sorted(there) == sorted(name for floor in FLOORS for name in floor)
