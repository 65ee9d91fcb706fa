"""What pages name is there: tests, files, modules, commands with their options, names to import.

Targets of make are in test_package.py.
"""

import ast
import importlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from cyclopts import CycloptsError

from lengthwise.cli.main import VERBS, command_line, one_by_one, options_of
from lengthwise.errors import LengthwiseError

ROOT = Path(__file__).parents[1]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "dev").rglob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "studies").glob("*.md")),
]
GUIDES = {path for path in PAGES if path.parent.name == "extending"}
"""They name what the reader is about to add."""
FILE = re.compile(r"^(?:\w[\w.-]*/)+[\w.-]+\.(?:py|sh|md|yml|toml|txt|json|ipynb)(?=$|::| )")
HOMES = ("", "src", "src/lengthwise", "studies/lengthwise_studies", "tests")
NAMED = re.compile(r"`([\w/]+\.py)?::(?:\w+::)?(test_\w+)`")
RUN = re.compile(r"-m ((?:lengthwise_studies|checks|tools)\.[\w.]+)")
CALL = re.compile(r"^(?:torchrun .*-m |[A-Z_]+=\S+ )?lengthwise ([a-z]+)(?: (.*))?$")
OTHERS = {
    "--max-logprobs",
    "--gpu-memory-utilization",
    "--max-num-batched-tokens",
    "--force",
    "--include_path",
}
"""Options of vLLM, git and lm-eval that stand alone."""
TESTS = {
    str(path): path.read_text()
    for folder in ("tests", "studies/tests")
    for path in (ROOT / folder).rglob("test_*.py")
}


def blocks(text: str, languages: str) -> Iterator[str]:
    yield from re.findall(rf"^```(?:{languages})\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def spans(text: str) -> list[str]:
    """`code` within sentences and tables."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return [" ".join(span.split()) for span in re.findall(r"(?<!`)`([^`]+)`(?!`)", prose)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_named_tests_and_files_are_there(page: Path):
    text = page.read_text()
    # In a table of one file's tests the file is named above it.
    gone = [
        (file, name)
        for file, name in NAMED.findall(text)
        if not any(
            path.endswith(f"/{file}" if file else "") and f"def {name}(" in own for path, own in TESTS.items()
        )
    ]
    named = [found[0] for span in spans(text) if (found := FILE.search(span)) and "NAME" not in span]
    gone += [name for name in named if not any((ROOT / home / name).exists() for home in HOMES)]
    for module in RUN.findall(text):
        path = ROOT / ("studies" if module.startswith("lengthwise") else "") / module.replace(".", "/")
        gone += [module] * (not path.with_suffix(".py").exists() and not (path / "__main__.py").exists())
    assert gone == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_are_those_of_the_command_line(page: Path):
    """Every command of a block is taken word by word, without being run; a span has options of its verb."""
    text, wrong = page.read_text(), []
    lines = [
        line for block in blocks(text, "bash|text") for line in re.sub(r"\\\n\s*", " ", block).splitlines()
    ]
    for line in lines if page.name != "cli.md" else ():
        found = CALL.match(line)
        if found and not (page in GUIDES and found[1] not in VERBS):
            words = shlex.split(f"{found[1]} {found[2] or ''}", comments=True)
            try:
                command_line(words[:1]).parse_args(one_by_one(words), exit_on_error=False, print_error=False)
            except (CycloptsError, LengthwiseError) as error:
                wrong.append((line, str(error)))
    every = set().union(*map(options_of, VERBS)) | {"--help", "--version"} | OTHERS
    for span in spans(text):
        found = CALL.match(span)
        options = (
            set(re.findall(r"(?<![\w-])--[a-z][\w-]+", span)) if found or span.startswith("--") else set()
        )
        if extra := options - (every if not found or found[1] not in VERBS else options_of(found[1])):
            wrong.append((span, str(extra)))
    assert wrong == []


def test_what_pages_import_is_there():
    gone = []
    for page in set(PAGES) - GUIDES:
        trees = (ast.walk(ast.parse(block)) for block in blocks(page.read_text(), "python"))
        gone += [
            (page.name, node.module, alias.name)
            for tree in trees
            for node in tree
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lengthwise")
            for alias in node.names
            if not hasattr(importlib.import_module(node.module or ""), alias.name)
        ]
    assert gone == []
