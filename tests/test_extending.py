"""The guides of docs/extending, followed literally: a copy of the project gets their blocks and runs their lines."""

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig

from lengthwise.results import read_results

ROOT = Path(__file__).parent.parent
GUIDES = ("rope-method", "divergence", "evaluation-family", "measurement", "study")
PAGES = "\n".join((ROOT / f"docs/extending/{name}.md").read_text() for name in GUIDES)
BLOCKS = re.findall(r"^```(python|bash)\n(.*?)^```$", PAGES, re.DOTALL | re.MULTILINE)
COMMANDS = [line for kind, block in BLOCKS if kind == "bash" for line in block.splitlines()]


def apply(block: str, root: Path) -> None:
    """A new file, an entry at the end of a table, or a line at the end of the imports."""
    head, _, body = block.partition("\n")
    matched = re.fullmatch(r"# (\S+?)(?:, in (\w+)|, (with the imports))?", head)
    assert matched is not None, head
    path, table, imports = root / matched[1], matched[2], matched[3]
    if not (table or imports):
        assert not path.exists(), path
        path.write_text(body)
        return
    lines = path.read_text().splitlines()
    if imports:
        place = (
            max(i for i, line in enumerate(lines) if line.startswith("from lengthwise") and line < body) + 1
        )
        indent = ""
    else:
        [start] = [index for index, line in enumerate(lines) if re.match(rf"{table}\b.* = .*[\[{{(]$", line)]
        end = next(index for index in range(start + 1, len(lines)) if re.fullmatch(r"[\])}]+", lines[index]))
        # Of an entry in brackets within brackets, the innermost.
        place = next(i + 1 for i in range(end, start, -1) if not re.fullmatch(r" *[\])}]+", lines[i]))
        indent = " " * (len(lines[place]) - len(lines[place].lstrip()) + 4)
    lines[place:place] = textwrap.indent(body, indent).splitlines()
    path.write_text("\n".join(lines) + "\n")


def test_every_guide_is_followed() -> None:
    assert {f"{name}.md" for name in GUIDES} | {"index.md"} == {
        path.name for path in (ROOT / "docs/extending").iterdir()
    }


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("extending") / "lengthwise"
    leave_out = shutil.ignore_patterns("__pycache__", "golden", "chaos", "results")
    for folder in ("src", "studies", "tests"):
        shutil.copytree(ROOT / folder, root / folder, ignore=leave_out)
    for file in ("pyproject.toml", "conftest.py"):
        shutil.copy(ROOT / file, root)
    for kind, block in BLOCKS:
        if kind == "python":
            apply(block, root)
    return root


@pytest.fixture(scope="module")
def outcomes(repository: Path) -> dict[str, dict[str, Any]]:
    """What each command did."""
    folder = repository.parent
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(str(repository / folder) for folder in ("src", "studies")),
        # Plugins would be imported before the warnings of pytest about it are.
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "LENGTHWISE_CACHE": str(folder / "cache"),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    program = [sys.executable, "tests/extending_commands.py", str(folder / "model"), str(folder / "text.txt")]
    done = subprocess.run(
        [*program, *COMMANDS], cwd=repository, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    for command, outcome in zip(COMMANDS, found, strict=True):
        assert outcome["code"] == 0, (command, outcome, done.stdout, done.stderr)
    return dict(zip(COMMANDS, found, strict=True))


def test_the_tests_of_every_example_are_run_and_pass(outcomes: dict[str, dict[str, Any]]) -> None:
    tests = [outcome["tests"] for command, outcome in outcomes.items() if command.startswith("pytest")]
    assert len(tests) == 5
    assert all(list(each) == ["passed"] for each in tests), tests
    # The battery; every gradient with every head.
    assert tests[0]["passed"] >= 8
    assert tests[1]["passed"] >= 30


def test_each_thing_works_from_the_command_line(repository, outcomes):
    config = AutoConfig.from_pretrained(repository / "extended")
    assert config.rope_parameters["rope_type"] == "lengthwise_whole_turns"
    assert "forward_kl" in outcomes["lengthwise ls methods"]["out"]
    assert "title_first_sentence" in outcomes["lengthwise ls tasks"]["out"]
    title = read_results(repository / "title" / "results.json")
    assert {row.metric for row in title.rows} >= {"accuracy", "chance"}
    order = read_results(repository / "order" / "results.json")
    assert [row.metric for row in order.rows] == ["cost", "loss"]
    assert order.rows[0].n == 4 * 16
    again = "lengthwise order smollm2-135m --length 64 --windows 4 --out order"
    assert outcomes[f"{again} --resume"]["out"] == outcomes[again]["out"]
    # Its own display, of which the task alone is known.
    page = (repository / "order" / "report.html").read_text()
    assert "Word order" in page
    assert "0 if its order does not matter" in page
    assert (repository / "sharpness" / "report.html").is_file()
