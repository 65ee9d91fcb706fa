"""Pages name the test that holds a claim; the test has to be there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
FILE = re.compile(r"`((?:studies/)?tests/[\w/]+\.py)")
NAMED = re.compile(r"`((?:studies/)?tests/[\w/]+\.py)?::(?:\w+::)?(test_\w+)`")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_named_tests_are_there(page: Path):
    text, file = page.read_text(), ""
    assert [name for name in FILE.findall(text) if not (ROOT / name).is_file()] == []
    for found in NAMED.finditer(text):
        file = found[1] or file
        # In a table of one file's tests the file is named above it.
        if file:
            assert re.search(rf"def {found[2]}\b", (ROOT / file).read_text()), f"{file}::{found[2]}"
