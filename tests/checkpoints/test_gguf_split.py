"""Text is split by the rule that a GGUF file names, before tokens are merged."""

from pathlib import Path

import pytest

from lengthwise.subjects import load
from lengthwise.testing import tiny_tokenizer
from tests.checkpoints.test_gguf_settings import made
from tests.gguf_files import write_gguf

GPT2 = ["x", "Ġ", "Ġ55", "Ċ", "Ċ", "6"]
ALONE = ["x", "ĠĠ", "5", "5", "ĊĊ", "6"]
"""As llama.cpp splits, and the tokenizers of these models: blanks before a digit stay together."""


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(
    ("rule", "wanted"),
    [
        *((rule, GPT2) for rule in ("gpt-2", "mpt", "olmo", "jais")),
        *((rule, ALONE) for rule in ("smollm", "starcoder", "refact", "command-r")),
    ],
)
def test_blanks_before_digits(rule: str, wanted: list[str], tmp_path: Path) -> None:
    more = {"tokenizer.ggml.pre": rule}
    tokenizer = load(
        str(write_gguf(tmp_path / "made.gguf", made("llama"), tiny_tokenizer(), more=more))
    ).tokenizer
    pieces = tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str("x  55\n\n6")
    assert [piece for piece, _ in pieces] == wanted
