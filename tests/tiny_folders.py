"""Folders with what a command reads, and tokenizers that write something around a text."""

import json
from pathlib import Path
from typing import Any

from tokenizers.processors import TemplateProcessing

from lengthwise.checkpoints.resolve import quiet_transformers
from lengthwise.testing import save_tiny_model, tiny_text, tiny_tokenizer


def saved(model: Any, folder: Path, **options: Any) -> Path:
    """A model folder with the tokenizer of the tests."""
    with quiet_transformers():
        model.save_pretrained(folder, **options)
        tiny_tokenizer().save_pretrained(folder)
    return folder


def writing(template: str, bos: str = "<|begin|>") -> Any:
    """The tokenizer of the tests with a BOS, which writes a text so: "<|begin|> $A <|end|>"."""
    tokenizer = tiny_tokenizer(bos_token=bos)
    special = [(bos, tokenizer.bos_token_id), ("<|end|>", tokenizer.eos_token_id)]
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single=template, special_tokens=special)
    return tokenizer


def texts_in(folder: Path, count: int, words: int, *, seed: int = 0) -> Path:
    """A folder with so many texts of so many words, from seeds that count up."""
    folder.mkdir(exist_ok=True)
    for index in range(count):
        (folder / f"{index}.txt").write_text(tiny_text(words, seed=seed + index))
    return folder


def filled(folder: Path, *, texts: int, words: int, **settings: Any) -> Path:
    """A folder with a tiny model `model` of these settings, and with texts of so many words in `text`."""
    save_tiny_model(folder / "model", **settings)
    texts_in(folder / "text", texts, words)
    return folder


def rewritten(folder: Path, name: str = "config.json", **changed: Any) -> str:
    """The folder, with other values in one of its files."""
    file = folder / name
    file.write_text(json.dumps(json.loads(file.read_text()) | changed))
    return str(folder)
