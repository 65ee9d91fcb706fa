"""Ids of a long text, made in pieces, are those of the whole text: for every kind of tokenizer and of text."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from lengthwise.testing import tiny_text, tiny_tokenizer
from lengthwise.text import encoding, tokenize
from lengthwise.text.encoding import in_pieces, skipped_at_a_cut

PROSE = tiny_text(6_000, seed=3)
SAMPLE = [tiny_text(2_000), "東京は大きい。とても。", "Straße naïve кот x<=10;\n\tif 3,456.78"]


def trained(
    model: Any, trainer: Any, normalizer: Any, pre_tokenizer: Any, after: dict[str, Any] | None = None
) -> Any:
    tokenizer = Tokenizer(model)
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.train_from_iterator(SAMPLE, trainer)
    for name, value in (after or {}).items():
        setattr(tokenizer, name, value)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", eos_token="<|end|>")


def bpe(normalizer: Any = None, pre_tokenizer: Any = None, after: dict[str, Any] | None = None) -> Any:
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        special_tokens=["<unk>", "<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    return trained(models.BPE(unk_token="<unk>"), trainer, normalizer, pre_tokenizer, after)


def unigram(pre_tokenizer: Any) -> Any:
    trainer = trainers.UnigramTrainer(
        vocab_size=300, special_tokens=["<unk>", "<|end|>"], unk_token="<unk>", show_progress=False
    )
    return trained(models.Unigram(), trainer, normalizers.NFKC(), pre_tokenizer)


def word_piece() -> Any:
    trainer = trainers.WordPieceTrainer(
        vocab_size=400, special_tokens=["<unk>", "<|end|>"], show_progress=False
    )
    model = models.WordPiece(unk_token="<unk>")
    return trained(model, trainer, normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer())


def sentence_piece(prepend: bool) -> Any:
    """As Llama 2's (with a space before the text) and Gemma's: no words but those of the vocabulary."""
    steps = [normalizers.Prepend("▁")] * prepend + [normalizers.Replace(" ", "▁")]
    return bpe(
        None,
        pre_tokenizers.Metaspace(prepend_scheme="always"),
        {
            "pre_tokenizer": pre_tokenizers.Split(" ", "merged_with_previous"),
            "normalizer": normalizers.Sequence(steps),
        },
    )


SPLIT = pre_tokenizers.Split(
    __import__("tokenizers").Regex(
        r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+(?!\S)|\s+"
    ),
    "isolated",
)
TOKENIZERS: dict[str, tuple[Callable[[], Any], int | None]] = {
    "bytes": (tiny_tokenizer, 0),
    "bytes, with a space before": (lambda: bpe(None, pre_tokenizers.ByteLevel(add_prefix_space=True)), 0),
    "bytes of words of a pattern": (
        lambda: bpe(
            normalizers.NFC(),
            pre_tokenizers.Sequence(
                [SPLIT, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
            ),
        ),
        0,
    ),
    "SentencePiece, with a space before": (lambda: sentence_piece(True), 1),
    "SentencePiece": (lambda: sentence_piece(False), 0),
    "WordPiece": (word_piece, 0),
    "Unigram": (lambda: unigram(pre_tokenizers.Metaspace()), 0),
    "Unigram of the whole text": (lambda: unigram(pre_tokenizers.Metaspace(split=False)), None),
    "tokens of several words": (
        lambda: bpe(None, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)),
        None,
    ),
}


def mixed(seed: int) -> str:
    """Everything in turn, at places that differ with the seed."""
    rng = random.Random(seed)
    parts = [
        PROSE[:9_000],
        "a" * 5_000,
        "東京は大きい。とても、大きい。" * 200,
        " " * 3_000 + "word",
        "\n\n\t if (x<=10): 3,456.78 " * 150,
        "<|end|> the king <|end|>. " * 150,
        "naïve e\u0301te\u0301 🙂👩‍👩‍👧 Straße " * 150,
    ]
    return " the river ".join(part[rng.randrange(40) :] for part in rng.sample(parts, len(parts)))


TEXTS: dict[str, str] = {
    "prose": PROSE,
    "prose that begins with a space": " " + PROSE,
    "a word without an end": "a" * 40_000,
    "no spaces": "東京は大きい。とても、大きい" * 2_000,
    "mixed": mixed(0),
    "mixed otherwise": mixed(1),
    "short": "the king",
}


@pytest.fixture
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"PIECE": 2_000, "_BEYOND": 300, "_AGREE": 8, "_AT_END": 24}
    for name, value in small.items():
        monkeypatch.setattr(encoding, name, value)
    for name in ("LONG", "_LARGE"):
        monkeypatch.setattr(f"lengthwise.text.tokens.{name}", 4_000)


@pytest.mark.usefixtures("_small_pieces")
@pytest.mark.parametrize("name", TOKENIZERS)
def test_pieces_are_the_whole(name: str):
    make, skip = TOKENIZERS[name]
    tokenizer = make()
    assert skipped_at_a_cut(tokenizer) == skip
    for kind, text in TEXTS.items():
        whole = tokenizer(text, add_special_tokens=False, verbose=False).input_ids
        [document] = tokenize([text], tokenizer)
        assert document.ids.tolist() == whole, kind


@pytest.mark.usefixtures("_small_pieces")
@pytest.mark.parametrize("name", [name for name, (_, skip) in TOKENIZERS.items() if skip is not None])
def test_prose_is_read_in_pieces(name: str):
    tokenizer = TOKENIZERS[name][0]()
    longest = list[int]()

    def encode(texts: Any) -> Any:
        longest.extend(map(len, texts))
        return tokenizer(list(texts), add_special_tokens=False, verbose=False).encodings

    read = list(in_pieces(PROSE, encode, TOKENIZERS[name][1] or 0))
    assert sum(characters for _, characters in read) == len(PROSE)
    assert len(read) >= len(PROSE) // 2_100
    assert max(longest) < 2_600


@pytest.mark.usefixtures("_small_pieces")
def test_a_bar_moves_while_a_long_text_is_read(monkeypatch: pytest.MonkeyPatch):
    moved = list[int]()

    class Bar:
        def __enter__(self) -> Bar:
            return self

        def __exit__(self, *_: object) -> None: ...

        def update(self, count: int) -> None:
            moved.append(count)

    monkeypatch.setattr("lengthwise.text.tokens.progress", lambda *_, **__: Bar())
    tokenize([PROSE], tiny_tokenizer())
    assert len(moved) > 5
    assert sum(moved) == len(PROSE)
