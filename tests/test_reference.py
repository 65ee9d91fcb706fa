"""The committed pages of the reference are what the code gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.reference.generated import pages
from tools.reference.words import default_words, plain, type_words

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
PAGES = pages()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_the_code_gives(name):
    assert (FOLDER / name).read_text(encoding="utf-8") == PAGES[name], "make reference"


def test_a_page_of_the_api_is_written_for_every_package_that_is_listed():
    assert {path.name for path in (FOLDER / "api").iterdir()} == {
        name.removeprefix("api/") for name in PAGES if name.startswith("api/")
    }


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        ("int | None", "`int` or null"),
        ("Literal['a', 'b']", "`a`, `b`"),
        ("tuple[int, ...]", "list of `int`"),
        ("tuple[int, int] | None", "pair of `int` or null"),
        ("Annotated[float, Gt(0)]", "`float`"),
        ("dict[str, Any]", "mapping"),
        ("Kind", "`x`, `y`"),
    ],
)
def test_a_type_in_words(annotation, words):
    assert type_words(annotation, {"Kind": ("x", "y")}) == words


def test_a_default_is_written_as_in_yaml():
    assert list(map(default_words, [None, "None", "True", "(0.9, 0.999)", "'a'"])) == [
        "required", "`null`", "`true`", "`[0.9, 0.999]`", "`a`",
    ]  # fmt: skip


def test_prose_is_escaped_and_code_is_not():
    assert plain("a * b < `c * d`") == r"a \* b \< `c * d`"
