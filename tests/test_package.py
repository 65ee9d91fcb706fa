"""What a release must agree on; `make release` builds and tries it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

import lengthwise

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_one_version_everywhere() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert lengthwise.__version__ == PROJECT["project"]["version"] == citation["version"]
    assert f"Version {lengthwise.__version__} " in (ROOT / "CHANGELOG.md").read_text()


def test_every_data_file_is_declared() -> None:
    package = ROOT / "src" / "lengthwise"
    declared = {
        path
        for glob in PROJECT["tool"]["setuptools"]["package-data"]["lengthwise"]
        for path in package.glob(glob)
    }
    files = {path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert {path for path in files if path.suffix != ".py"} == declared


def test_what_make_compat_runs_is_there() -> None:
    program = (ROOT / "checks" / "compat" / "__main__.py").read_text()
    listed = re.findall(r'"((?:studies/)?tests/[^":]+)', program)
    assert len(listed) > 20
    assert [place for place in listed if not (ROOT / place).exists()] == []


def test_the_page_of_versions_is_about_the_dependencies_and_their_bounds() -> None:
    page = (ROOT / "docs" / "reference" / "compatibility.md").read_text()
    extras = PROJECT["project"]["optional-dependencies"].values()
    asked = [*PROJECT["project"]["dependencies"], *(each for extra in extras for each in extra)]
    bounds = dict(re.findall(r"([\w-]+)(?:\[.*?\])?>=([\d.]+)", "\n".join(asked)))
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("|")
    ]
    tested = {row[0]: dict(re.findall(r"([\w-]+) (\d[\d.]*)", row[3])) for row in rows if len(row) == 5}
    assert tested["lowest"]
    for versions in tested.values():
        assert set(versions) <= set(bounds)
    for name, version in tested["lowest"].items():
        assert version.startswith(bounds[name])
    reasons = [row for row in rows if len(row) == 3 and row[1][:1].isdigit()]
    assert reasons
    for names, lowest, _ in reasons:
        assert [bounds[name] for name in names.split(", ")] == lowest.split(", ")
