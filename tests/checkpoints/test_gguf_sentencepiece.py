"""A GGUF file with SentencePiece's vocabulary: its ids are those of SentencePiece's algorithm, or it is refused."""

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from lengthwise.errors import UsageError
from lengthwise.subjects import load
from lengthwise.testing import tiny_text, tiny_tokenizer
from tests.checkpoints.test_gguf_settings import made
from tests.gguf_files import write_gguf

pytestmark = pytest.mark.usefixtures("cache")

SPACE = "\u2581"
NORMAL, UNKNOWN, CONTROL, OWN, BYTE = 1, 2, 3, 4, 6
"""llama.cpp's numbers of kinds of tokens."""
MERGES = (
    "th",
    f"{SPACE}th",
    f"{SPACE}the",
    "in",
    "er",
    "an",
    f"{SPACE}a",
    f"{SPACE * 2}",
    "ing",
    "qu",
    "ee",
    "queen",
)
TEXTS = (
    tiny_text(60), "", " ", "  ", " a", "   three before", "inside   three", "after  ", "\n\n new\n lines\t",
    "naïve Zoë — 東京 \U0001f642", "x<=10: 3,456.78", f"a{SPACE}b", "<own>the<own> king",
)  # fmt: skip


def vocabulary() -> dict[str, tuple[float, int]]:
    """Token -> its score and its kind, in the order of their ids."""
    tokens = {"<unk>": (0.0, UNKNOWN), "<s>": (0.0, CONTROL), "</s>": (0.0, CONTROL), "<own>": (0.0, OWN)}
    tokens |= {f"<0x{byte:02X}>": (0.0, BYTE) for byte in range(256)}
    tokens |= {merge: (-float(rank), NORMAL) for rank, merge in enumerate(MERGES)}
    letters = sorted({*SPACE, *"".join(MERGES), *"abcdefghijklmnopqrstuvwxyz.,:0123456789ïë"})
    return tokens | {letter: (-100.0 - rank, NORMAL) for rank, letter in enumerate(letters)}


def ids_of(text: str, *, prefix: bool) -> list[int]:
    """SentencePiece's BPE: of the pairs that are tokens, that of the highest score is merged, the left one first."""
    tokens, found = vocabulary(), list[int]()
    places = {token: place for place, token in enumerate(tokens)}
    for number, part in enumerate(text.split("<own>")):
        found += [places["<own>"]] if number else []
        pieces = [*(SPACE * (prefix and part != "") + part.replace(" ", SPACE))]
        while pairs := [
            (-tokens[both][0], place)
            for place in range(len(pieces) - 1)
            if (both := pieces[place] + pieces[place + 1]) in tokens
        ]:
            _, place = min(pairs)
            pieces[place : place + 2] = ["".join(pieces[place : place + 2])]
        for piece in pieces:
            found += (
                [places[piece]] if piece in places else [places[f"<0x{byte:02X}>"] for byte in piece.encode()]
            )
    return found


def written(path: Path, **more: Any) -> Path:
    tokens = vocabulary()
    keys = {
        "model": "llama", "pre": "default", "merges": None, "tokens": [*tokens],
        "scores": [score for score, _ in tokens.values()], "token_type": [kind for _, kind in tokens.values()],
        "bos_token_id": 1, "eos_token_id": 2, "unknown_token_id": 0, **more,
    }  # fmt: skip
    model = made("llama", vocab_size=len(tokens), pad_token_id=None)
    return write_gguf(
        path, model, tiny_tokenizer(), more={f"tokenizer.ggml.{key}": keys[key] for key in keys}
    )


@pytest.mark.parametrize("bos", [None, True, False])
def test_ids_and_texts(bos: bool | None, tmp_path: Path) -> None:
    loaded = load(str(written(tmp_path / "made.gguf", add_bos_token=bos)))
    for tokenizer in (loaded.tokenizer, AutoTokenizer.from_pretrained(loaded.source)):
        for text in TEXTS:
            ids = tokenizer(text, add_special_tokens=False).input_ids
            assert ids == ids_of(text, prefix=True), text
            assert tokenizer(text).input_ids == [1] * (bos is not False) + ids


def test_without_a_space_before_a_text(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="add_space_prefix"):
        load(str(written(tmp_path / "made.gguf", add_space_prefix=False)))
