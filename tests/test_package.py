"""What a release must agree on; `make release` builds and tries it."""

import re
import tomllib
from pathlib import Path

import yaml

import lengthwise
from checks.compat.__main__ import VERSIONS

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
STUDIES = tomllib.loads((ROOT / "studies" / "pyproject.toml").read_text())


def test_one_version_everywhere() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    version = lengthwise.__version__
    assert version == PROJECT["project"]["version"] == STUDIES["project"]["version"] == citation["version"]
    assert STUDIES["project"]["dependencies"] == [f"lengthwise[all]=={version}"]
    assert f"## {version}\n" in (ROOT / "CHANGELOG.md").read_text()


def test_the_same_pythons_everywhere() -> None:
    """The classifiers of both packages, what `make check-compat` tries, and CI, which does nothing but `.ci/run`."""
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    job = workflow["jobs"]["test"]
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]
    pythons = job["strategy"]["matrix"]["python"]
    assert pythons == [name.removeprefix("python") for name in VERSIONS if name.startswith("python")]
    for project in (PROJECT["project"], STUDIES["project"]):
        named = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
        assert named == pythons
        assert project["requires-python"] == f">={pythons[0]}"


def test_every_data_file_is_declared() -> None:
    package = ROOT / "src" / "lengthwise"
    declared = {
        path
        for glob in PROJECT["tool"]["setuptools"]["package-data"]["lengthwise"]
        for path in package.glob(glob)
    }
    files = {path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert {path for path in files if path.suffix != ".py"} == declared


def test_every_target_that_is_named_is_in_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = {*re.findall(r"^([a-z]+):", makefile, flags=re.MULTILINE), "check-NAME"}
    targets |= {f"check-{program.parent.name}" for program in (ROOT / "checks").glob("*/__main__.py")}
    files = [*ROOT.glob("*.md"), *ROOT.glob(".ci/*")]
    for folder in ("bench", "checks", "dev", "docs", "examples", "src", "studies", "tests", "tools"):
        files += [path for path in (ROOT / folder).rglob("*") if path.suffix in (".md", ".py", ".sh", ".yml")]
    # In backticks, or at the beginning of a line as in a block or a script.
    named = r"(?:`|^ *)make (?:[A-Z]+=\S+ )*([a-z][\w-]*)(?:`|  |$| [A-Z]+=)"
    found = [
        (path, target)
        for path in files
        for target in re.findall(named, path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    ]
    assert len(found) > 50
    assert [(path, target) for path, target in found if target not in targets] == []


def test_what_make_check_compat_runs_is_there() -> None:
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


def test_no_public_name_is_that_of_a_module_beside_it() -> None:
    """Once the module is imported, the package's name is the module: `evaluation.likelihoods` worked once."""
    stubs = [*(ROOT / "src").rglob("__init__.pyi")]
    assert stubs
    for stub in stubs:
        beside = {path.stem for path in stub.parent.iterdir() if path.suffix in ("", ".py")}
        assert not beside & {*re.findall(r" import \w+ as (\w+)$", stub.read_text(), flags=re.MULTILINE)}
