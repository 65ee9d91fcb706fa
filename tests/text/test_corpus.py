import pytest

from lengthwise.errors import UsageError
from lengthwise.text import Corpus
from lengthwise.text.corpus import COPIES, EMPTY


def documents(count: int) -> dict[str, str]:
    return {f"row:{index}": f"text {index}" for index in range(count)}


def ids(corpus: Corpus) -> set[str]:
    return set(corpus.documents)


def test_split_is_a_partition_of_about_a_tenth():
    train, test = (ids(Corpus.of("c", documents(2000), split=split)) for split in ("train", "test"))
    assert not train & test
    assert len(train | test) == 2000
    assert 140 <= len(test) <= 260


def test_a_document_stays_on_its_side_when_others_come():
    small = ids(Corpus.of("c", documents(500), split="test"))
    large = ids(Corpus.of("c", documents(2000), split="test"))
    assert small == large & ids(Corpus.of("c", documents(500), split="all"))


def test_every_pair_of_documents_is_split_in_two():
    for index in range(60):
        pair = {f"a{index}": "x", f"b{index}": "y"}
        assert len(ids(Corpus.of("c", pair, split="test"))) == 1, index
        assert len(ids(Corpus.of("c", pair, split="train"))) == 1, index


def test_a_single_document_is_used_as_given():
    corpus = Corpus.of("c", documents(1), split="test")
    assert ids(corpus) == {"row:0"}
    assert "as given" in corpus.split_rule


def test_empty_documents_are_left_out_and_nothing_is_an_error():
    corpus = Corpus.of("c", documents(1) | {"blank": " \n"}, split="all")
    assert ids(corpus) == {"row:0"}
    with pytest.raises(UsageError):
        Corpus.of("c", {"blank": " \n"}, split="all")


def test_fingerprint_sees_ids_texts_and_borders():
    def fingerprint(*pairs: tuple[str, str]) -> str:
        return Corpus.of("c", dict(pairs), split="all").fingerprint

    base = fingerprint(("a", "xy"), ("b", "z"))
    assert base == fingerprint(("a", "xy"), ("b", "z"))
    others = [
        fingerprint(("a", "x"), ("b", "yz")),
        fingerprint(("ax", "y"), ("b", "z")),
        fingerprint(("b", "z"), ("a", "xy")),
        fingerprint(("a", "xy")),
    ]
    assert base not in others


@pytest.mark.parametrize("copy", ["one", "one\n", " \n one \n\n"])
def test_copies_of_a_document_are_one(copy: str):
    """Intervals take documents to be independent."""
    corpus = Corpus.of("texts", {"a": "one", "b": "two", "c": copy, "d": " "}, split="all")
    assert list(corpus.documents) == ["a", "b"]
    assert list(corpus.without({copy}).documents) == ["b"]
    assert corpus.left_out == {EMPTY: 1, COPIES: 1}
