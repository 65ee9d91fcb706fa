"""Folders with what a command reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lengthwise.checkpoints.resolve import quiet_transformers
from lengthwise.testing import save_tiny_model, tiny_text, tiny_tokenizer


def saved(model: Any, folder: Path, **options: Any) -> Path:
    """A model folder with the tokenizer of the tests."""
    with quiet_transformers():
        model.save_pretrained(folder, **options)
        tiny_tokenizer().save_pretrained(folder)
    return folder


def filled(folder: Path, *, texts: int, words: int, **settings: Any) -> Path:
    """A folder with a tiny model `model` of these settings, and with texts of so many words in `text`."""
    save_tiny_model(folder / "model", **settings)
    (folder / "text").mkdir()
    for index in range(texts):
        (folder / "text" / f"{index}.txt").write_text(tiny_text(words, seed=index))
    return folder
