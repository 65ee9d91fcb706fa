"""The models that pairs are made of: the embedded one with its books, and tiny ones of other architectures."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from checks.lab.sides import Base, loaded
from lengthwise.models import load
from lengthwise.text import load_corpus, tokenize


def base_of(name: str) -> Base:
    """A base by its name, in float32."""
    model = load("tiny-books", dtype="float32")
    if name == "tiny-books":
        return Base(loaded(model.model, model, kept=True))
    raise KeyError(name)


@cache
def text_of(name: str) -> Any:
    """The text that pairs of a base are compared on, in its tokens."""
    return tokenize(load_corpus("books"), load("tiny-books").tokenizer)
