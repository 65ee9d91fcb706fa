import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lengthwise.errors import UsageError
from lengthwise.testing import tiny_text, tiny_tokenizer
from lengthwise.text import Corpus, tokenize, tokenizer_fingerprint


@pytest.fixture
def corpus() -> Corpus:
    documents = {f"doc{index}": tiny_text(50 + index, seed=index) for index in range(20)}
    return Corpus.of("tiny", documents, split="all", split_rule="all documents")


def entries(cache: Path) -> list[Path]:
    return sorted((cache / "tokens").glob("*/ids.npy"))


def test_ids_are_the_tokenizers_own_without_specials(corpus: Corpus, cache: Path):
    tokenizer = tiny_tokenizer(bos_token="<s>")
    tokens = tokenize(corpus, tokenizer)
    assert [document.id for document in tokens] == list(corpus.documents)
    for text, token_document in zip(corpus.documents.values(), tokens, strict=True):
        expected = tokenizer(text, add_special_tokens=False).input_ids
        assert token_document.ids.tolist() == expected
        assert token_document.ids.dtype == np.int32
        assert tokenizer.decode(token_document.ids.tolist()) == text
    assert tokens.total_tokens == sum(len(document.ids) for document in tokens)
    assert tokens.longest == max(len(document.ids) for document in tokens)


def test_second_time_comes_from_the_cache(corpus: Corpus, cache: Path, tokenizer, monkeypatch):
    first = tokenize(corpus, tokenizer)
    monkeypatch.setattr("lengthwise.text.tokens.encode", lambda *_: pytest.fail("tokenised again"))
    second = tokenize(corpus, tokenizer)
    assert len(entries(cache)) == 1
    for one, two in zip(first, second, strict=True):
        assert one.id == two.id
        np.testing.assert_array_equal(one.ids, two.ids)


def test_processes_share_the_memory_of_cached_tokens(corpus: Corpus, cache: Path, tokenizer):
    tokenize(corpus, tokenizer)
    owners = set()
    for document in tokenize(corpus, tokenizer):
        owner = document.ids
        while isinstance(owner, np.ndarray) and not isinstance(owner, np.memmap):
            owner = owner.base
        owners.add(owner if owner is None else owner.filename)
    assert owners == {entries(cache)[0].resolve()}


def test_cache_is_keyed_by_text_and_tokenizer(corpus: Corpus, cache: Path, tokenizer):
    tokenize(corpus, tokenizer)
    other_text = Corpus.of(
        "tiny", dict(list(corpus.documents.items())[1:]), split="all", split_rule="all documents"
    )
    assert len(tokenize(other_text, tokenizer)) == 19
    other_tokenizer = tiny_tokenizer(vocab_size=300)
    smaller = tokenize(corpus, other_tokenizer)
    assert smaller[0].ids.tolist() == other_tokenizer(corpus.documents["doc0"]).input_ids
    assert len(entries(cache)) == 3


def test_a_cache_that_cannot_be_written_is_done_without(corpus, tmp_path, tokenizer, monkeypatch, caplog):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("LENGTHWISE_CACHE", str(tmp_path / "file"))
    with caplog.at_level(logging.WARNING):
        assert len(tokenize(corpus, tokenizer)) == 20
    assert "not kept" in caplog.text


def test_long_texts_raise_no_warning_about_the_maximum(corpus: Corpus, cache: Path, caplog):
    tokenizer = tiny_tokenizer()
    tokenizer.model_max_length = 16
    transformers_logger = logging.getLogger("transformers")
    transformers_logger.addHandler(caplog.handler)
    try:
        tokens = tokenize(corpus, tokenizer)
        assert tokens.longest > 16
        assert not caplog.records
    finally:
        transformers_logger.removeHandler(caplog.handler)


def test_fingerprint_ignores_padding_and_truncation():
    plain, set_up = tiny_tokenizer(), tiny_tokenizer()
    set_up.pad_token = set_up.eos_token
    set_up(["a", "longer text"], padding=True, truncation=True, max_length=4)
    assert tokenizer_fingerprint(plain) == tokenizer_fingerprint(set_up)
    assert tokenizer_fingerprint(plain) != tokenizer_fingerprint(tiny_tokenizer(vocab_size=300))


def in_python(folder: Path, merges: str, **settings: Any) -> Any:
    """A tokenizer that has no backend."""
    from transformers import CTRLTokenizer

    folder.mkdir()
    words = [*"thekingqu", *(f"{letter}@@" for letter in "thekingqu"), "th@@", "the", "he", "<unk>"]
    (folder / "vocab.json").write_text(json.dumps({word: number for number, word in enumerate(words)}))
    (folder / "merges.txt").write_text(f"#version\n{merges}\n")
    return CTRLTokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"), **settings)


def splitting() -> Any:
    tokenizer = tiny_tokenizer()
    tokenizer.split_special_tokens = True
    return tokenizer


OTHER_IDS = {
    "special tokens": lambda folder: (tiny_tokenizer(), splitting()),
    "special tokens in Python": lambda folder: (
        in_python(folder / "a", "t h"),
        in_python(folder / "b", "t h", split_special_tokens=True),
    ),
    "merges in Python": lambda folder: (in_python(folder / "a", "t h"), in_python(folder / "b", "h e</w>")),
}


@pytest.mark.parametrize("what", OTHER_IDS)
def test_two_tokenizers_that_give_other_ids_share_no_cache(what: str, tmp_path: Path, cache: Path):
    one, other = OTHER_IDS[what](tmp_path)
    text = Corpus.of("c", {"a": "the king <unk> <|end|> the queen"}, split="all")
    right = [tokenize(text, own, cache=False)[0].ids.tolist() for own in (one, other)]
    assert right[0] != right[1]
    assert [tokenize(text, own)[0].ids.tolist() for own in (one, other)] == right
    with pytest.raises(UsageError, match="another tokenizer"):
        tokenize(tokenize(text, one), other)


def test_a_copy_of_a_tokenizer_in_python_has_the_same_fingerprint(tmp_path: Path):
    one, copy = in_python(tmp_path / "a", "t h"), in_python(tmp_path / "b", "t h")
    copy.chat_template, copy.model_max_length = "{{ messages }}", 9
    copy.save_pretrained(tmp_path / "c")
    kept = [tokenizer_fingerprint(each) for each in (one, copy, type(copy).from_pretrained(tmp_path / "c"))]
    assert len({*kept}) == 1
