"""The committed pages of the reference are what the code gives."""

from pathlib import Path

import pytest

from tools.reference.generated import pages

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
PAGES = pages()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_the_code_gives(name):
    assert (FOLDER / name).read_text(encoding="utf-8") == PAGES[name], "make tables"


def test_a_page_of_the_api_is_written_for_every_package_that_is_listed():
    assert {path.name for path in (FOLDER / "api").iterdir()} == {
        name.removeprefix("api/") for name in PAGES if name.startswith("api/")
    }
