"""Links, anchors and pictures of the documentation lead somewhere."""

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from tools.site_check import loads_from_elsewhere

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("dev/*.md")), *sorted(DOCS.rglob("*.md"))]


@cache
def prose(page: Path) -> str:
    """The page without code."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", lambda code: "`" + re.sub(r"[\[\]]", "", code[0].strip("`")) + "`", text)


@cache
def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as code hosts and `mkdocs.yml` make them."""
    seen: Counter[str] = Counter()
    for heading in re.findall(r"^#+ (.+)$", prose(page), flags=re.MULTILINE):
        words = re.sub(r"\]\([^)]*\)", "", heading).lower()
        seen[re.sub(r"[^\w\- ]", "", words).replace(" ", "-")] += 1
    # A second heading of the same words would get a number, and each renderer counts otherwise.
    return {anchor for anchor, times in seen.items() if times == 1}


def links(page: Path) -> list[tuple[str, str]]:
    """Words and target of every link and picture."""
    return re.findall(r"\[([^\]]*)\]\(([^)\s]+)\)", prose(page))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading(page):
    dead = []
    for _, target in links(page):
        path, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", path):
            continue
        other = (page.parent / path).resolve() if path else page
        if not other.exists() or (anchor and anchor not in anchors(other)):
            dead.append(target)
    assert dead == []


def test_no_sentence_begins_a_list():
    """A line of a sentence that begins with `256. ` would be the item of a list, whose number is not shown."""
    items = [(page.name, line) for page in PAGES for line in accidental_items(prose(page))]
    assert items == []
    assert list(accidental_items("- it has 40 of\n  256. The rate\n")) == ["  256. The rate"]
    assert list(accidental_items("1. one\n   more\n2. two\n3. three\n")) == []


def accidental_items(text: str) -> Iterator[str]:
    """Lines that begin with a number and a dot, as deep as the sentence before them."""
    for before, line in pairwise(text.splitlines()):
        before = before.replace("- ", "  ", 1) if re.match(" *- ", before) else before
        number = re.match(r"( *)\d+[.)] ", line)
        if number and re.match(number[1] + r"(?!\d+[.)] )\S", before):
            yield line


def test_bold_ends_in_the_paragraph_in_which_it_begins():
    """A renderer shows the stars of one that does not."""
    open_ended = [(page.name, part) for page in PAGES for part in with_open_bold(prose(page))]
    assert open_ended == []
    assert list(with_open_bold("**one** and\n**two\n\n`2**3` | **three**\n")) == ["**one** and\n**two"]


def with_open_bold(text: str) -> Iterator[str]:
    for part in re.split(r"\n\s*\n|(?<=\|)\n", text):
        if re.sub(r"`[^`\n]*`", "", part).count("**") % 2:
            yield part


def test_every_picture_says_what_it_shows():
    without = [(page.name, path) for page in PAGES for alt, path in pictures(page) if len(alt) < 10]
    assert without == []


def pictures(page: Path) -> list[tuple[str, str]]:
    """Alternative text and file of every picture, of one that a phone is given instead too."""
    found = re.findall(r"!\[([^\]]*)\]\(([^)\s]+)\)", prose(page))
    return found + [(found[0][0], path) for path in re.findall(r'srcset="([^"]+)"', prose(page))]


def test_the_navigation_has_every_page():
    listed = re.findall(
        r"([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    assert sorted(listed) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


def test_a_table_has_six_columns_at_most():
    """More do not fit beside the contents of a page."""
    wide = [page.name for page in PAGES for head in re.findall(r"^\|(.+)\|\n\|[-:| ]+\|$", prose(page), re.MULTILINE)
            if head.count("|") > 5]  # fmt: skip
    assert wide == []


def test_no_picture_is_left_over():
    shown = {(page.parent / path).resolve() for page in PAGES for _, path in pictures(page)}
    assert set((DOCS / "figures").iterdir()) <= shown


def test_what_a_built_page_loads_from_elsewhere_is_found(tmp_path):
    own = '<script src="a.js"></script><a href="https://elsewhere.org">read</a>'
    (tmp_path / "own.html").write_text(own)
    assert list(loads_from_elsewhere(tmp_path)) == []
    (tmp_path / "other.html").write_text(own + '<link rel="stylesheet" href="//fonts.org/x.css">')
    (tmp_path / "x.css").write_text("@font-face {src: url(https://fonts.org/x.woff)}")
    assert len(list(loads_from_elsewhere(tmp_path))) == 2
