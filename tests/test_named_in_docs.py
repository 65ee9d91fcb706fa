"""Pages name the test that holds a claim; the test has to be there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "dev").rglob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
FILE = re.compile(r"`((?:studies/)?tests/[\w/]+\.py)")
NAMED = re.compile(r"`([\w/]+\.py)?::(?:\w+::)?(test_\w+)`")
TESTS = {
    str(path): path.read_text()
    for folder in ("tests", "studies/tests")
    for path in (ROOT / folder).rglob("test_*.py")
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_named_tests_are_there(page: Path):
    text = page.read_text()
    assert [name for name in FILE.findall(text) if not (ROOT / name).is_file()] == []
    # In a table of one file's tests the file is named above it.
    gone = [
        (file, name)
        for file, name in NAMED.findall(text)
        if not any(
            path.endswith(f"/{file}" if file else "") and f"def {name}(" in own for path, own in TESTS.items()
        )
    ]
    assert gone == []
