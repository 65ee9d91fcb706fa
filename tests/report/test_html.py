import re
from html.parser import HTMLParser
from importlib.resources import files
from typing import Any

import pytest

from lengthwise.report.figures import loss_by_length, loss_by_position
from lengthwise.report.html import GENERATOR, Section, prose, render_page
from lengthwise.report.tables import MOST_COLUMNS, Table
from tests.report import made_rows as made


class Parsed(HTMLParser):
    """Text, tags and ids of a page; complains about tags that are not closed."""

    VOID = frozenset({"meta", "br", "path", "use", "link", "img", "hr", "input", "rect"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert not self._open, self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.fixture(scope="module")
def picture() -> Any:
    return loss_by_length(made.perplexity_rows())


@pytest.fixture(scope="module")
def page(picture: Any) -> str:
    table = Table(columns=("a", "b"), rows=[("x", 1)], caption="A table")
    sections = [
        Section(title="One & only", paragraphs=["Text with `code` and <b>.", "More."], tables=[table]),
        Section(title="Two", figures=[picture], notes=["a limit"]),
        Section(title="Three", details=[Table(columns=("c",), rows=[("folded",)], caption="All of it")]),
    ]
    provenance = {"Where it comes from": {"model": {"name": "m"}, "lengths": [1, 2], "adapter": None}}
    return render_page("Title <x>", "The lead.", sections, provenance, notices=["Mind this."], partial=True)


def test_it_is_well_formed_and_says_everything(page: str) -> None:
    parsed = Parsed(page)
    text = " ".join(" ".join(parsed.text).split())
    for expected in (
        "Title <x> partial",
        "The lead.",
        "Mind this.",
        "One & only",
        "Text with code and <b>.",
        "A table",
        "a limit",
        "folded",
        "model.name m",
        "lengths 1, 2",
        "adapter none",
    ):
        assert expected in text, expected
    assert "<title>Title &lt;x&gt; (partial)</title>" in page
    assert GENERATOR in page


def test_it_needs_nothing_from_outside(page: str) -> None:
    parsed = Parsed(page)
    assert not [tag for tag, _ in parsed.tags if tag in ("link", "img", "iframe", "object", "embed", "base")]
    assert not [attributes for _, attributes in parsed.tags if "src" in attributes]
    targets = [value for _, attributes in parsed.tags for key, value in attributes.items() if "href" in key]
    assert targets
    assert all(target and target.startswith("#") for target in targets)
    assert not re.search(r"@import|url\((?!#)", page)
    # Names of XML namespaces are no addresses to fetch.
    addresses = set(re.findall(r"https?://[^\"'\s<>]+", page))
    assert addresses <= {"http://www.w3.org/1999/xlink", "http://www.w3.org/2000/svg"}
    assert "default-src 'none'" in page


def test_ids_are_unique_and_links_lead_somewhere(page: str) -> None:
    parsed = Parsed(page)
    ids = [attributes["id"] for _, attributes in parsed.tags if attributes.get("id")]
    assert len(ids) == len(set(ids))
    links = {str(attributes["href"]) for tag, attributes in parsed.tags if tag == "a"}
    assert links == {"#section-1", "#section-2", "#section-3"}
    assert links <= {f"#{each}" for each in ids}


def test_letters_stand_once_and_each_picture_keeps_its_own(picture: Any) -> None:
    """What every use shows, in order, is in the page what it is in the pictures as files."""
    other: Any = loss_by_position(made.perplexity_rows())
    pictures = [picture, other]
    page = render_page("T", "a", [Section(title="S", figures=pictures)])
    files = [svg for picture in pictures for svg in (picture.svg, picture.narrow)]
    assert shapes_used(page, page) == [shape for svg in files for shape in shapes_used(svg, svg)]
    assert len(page) < 0.6 * sum(map(len, files))
    letters = re.findall(r'<path id="letter-\d+" d="([^"]+)"', page)
    assert 20 < len(letters) == len(set(letters))


def shapes_used(svg: str, home: str) -> list[str]:
    """The outlines behind every use, to a hundredth of a point; a space has none."""
    shapes = dict(re.findall(r'<path id="([^"]+)" d="([^"]+)"', home))
    used = (
        " ".join(shapes.get(name, "").split()) for name in re.findall(r'<use (?:xlink:)?href="#([^"]+)"', svg)
    )
    return [re.sub(r"(\.\d\d)\d+", r"\1", shape) for shape in used]


def test_one_section_needs_no_list_of_links() -> None:
    whole = render_page("T", ["a", "b"], [Section(title="S")])
    assert "<nav" not in whole
    assert "(partial)" not in whole


def test_prose_escapes_and_sets_code() -> None:
    assert prose("a < b, `x<y`") == "a &lt; b, <code>x&lt;y</code>"
    option = '<span class="option">{}</span>'.format
    assert (
        prose("`m --kv-cache 0.2 --out runs/a`")
        == f"<code>m {option('--kv-cache 0.2')} {option('--out')} runs/a</code>"
    )


def test_as_many_columns_of_text_as_a_table_has_fit_into_the_width_of_a_page() -> None:
    style = (files("lengthwise") / "report/page.css").read_text()
    (page,) = re.findall(r"main, footer { max-width: (\d+)rem", style)
    (column,) = re.findall(r"td.long { min-width: (\d+)rem", style)
    assert MOST_COLUMNS * int(column) <= int(page)
