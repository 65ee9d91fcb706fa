"""Faults of tokenizers, and of what is put before a text."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from tokenizers import Tokenizer, normalizers
from tokenizers.processors import TemplateProcessing
from torch import Tensor

from checks.lab.sides import Base, Pair, Says, Side, loaded, reads
from lengthwise.subjects import LoadedModel


def tokenizes(change: Callable[[Any], None]) -> Side:
    """A side with another tokenizer."""

    def side(base: Base) -> LoadedModel:
        model = loaded(base.model.model, base.model, head=base.model.head)
        model.tokenizer = copy.deepcopy(base.model.tokenizer)
        change(model.tokenizer)
        return model

    return side


def adds(token: int, *, bos: bool = True, at_end: bool = False) -> Callable[[Any], None]:
    """It puts a token before every text, or after it, and calls it BOS or not."""

    def change(tokenizer: Any) -> None:
        name = tokenizer.convert_ids_to_tokens(token)
        single = f"$A {name}" if at_end else f"{name} $A"
        post = TemplateProcessing(single=single, special_tokens=[(name, token)])
        tokenizer.backend_tokenizer.post_processor = post
        tokenizer.bos_token = name if bos else None

    return change


def _normalizes(normalizer: Any) -> Callable[[Any], None]:
    def change(tokenizer: Any) -> None:
        tokenizer.backend_tokenizer.normalizer = normalizer

    return change


def _only_named(tokenizer: Any) -> None:
    """It has a BOS, and does not add it."""
    tokenizer.bos_token = tokenizer.convert_ids_to_tokens(0)


def _without_a_merge(index: int) -> Callable[[Any], None]:
    """It lacks one of the merges that it was trained with."""

    def change(tokenizer: Any) -> None:
        told = json.loads(tokenizer.backend_tokenizer.to_str())
        told["model"]["merges"].pop(index)
        tokenizer._tokenizer = Tokenizer.from_str(json.dumps(told))

    return change


def _swapped(one: int, other: int) -> Callable[[Any], None]:
    """Two tokens have each other's id."""

    def change(tokenizer: Any) -> None:
        told = json.loads(tokenizer.backend_tokenizer.to_str())
        ids: dict[str, int] = told["model"]["vocab"]
        names = {index: name for name, index in ids.items()}
        ids[names[one]], ids[names[other]] = other, one
        tokenizer._tokenizer = Tokenizer.from_str(json.dumps(told))

    return change


def before(*tokens: int) -> Side:
    """A side that reads these tokens before every text, as a server with a chat template does."""

    def how(read: Any, ids: Tensor) -> Tensor:
        added = torch.tensor(tokens).expand(len(ids), -1)
        return read(torch.cat([added, ids], dim=1))[:, len(tokens) :]

    return reads(how)


def _first(token: int) -> Side:
    """A side that reads this token in place of the first."""

    def how(read: Any, ids: Tensor) -> Tensor:
        return read(torch.cat([torch.full_like(ids[:, :1], token), ids[:, 1:]], dim=1))

    return reads(how)


DIFFERS = ("first tokens", "all positions", "growing", "from a place")
BOS = Says(DIFFERS, words=("bos",), never=("cache", "window"), refused=True)
"""Where one tokenizer alone adds a token, each side must be read as its tokenizer says, or the pair refused."""
OTHER_TEXT = Says(DIFFERS, words=("tokenizer",), refused=True)
PREFIX = Says(("first tokens", "all positions"), never=("cache", "window", "precision"))
_HALF: dict[str, Any] = {"dtype": "bfloat16", "windows": 4}


_PLANTED = (
    Pair("B's tokenizer adds BOS", BOS, tokenizes(adds(0))),
    Pair("A's tokenizer adds BOS", BOS, lambda base: base.model, a=tokenizes(adds(0))),
    Pair("B's tokenizer adds another BOS", BOS, tokenizes(adds(7)), a=tokenizes(adds(0))),
    Pair("B's tokenizer adds BOS, bfloat16", BOS, tokenizes(adds(0)), **_HALF),
    Pair("B's tokenizer adds a token that it does not call BOS", OTHER_TEXT, tokenizes(adds(0, bos=False))),
    Pair("B's tokenizer writes lower case", OTHER_TEXT, tokenizes(_normalizes(normalizers.Lowercase()))),
    Pair("B's tokenizer adds a space", OTHER_TEXT, tokenizes(_normalizes(normalizers.Prepend(" ")))),
    Pair("B's tokenizer joins spaces", OTHER_TEXT, tokenizes(_normalizes(normalizers.Replace("\n", " ")))),
    Pair(
        "B's tokenizer writes curly quotes", OTHER_TEXT, tokenizes(_normalizes(normalizers.Replace("'", "’")))
    ),
    Pair("B's tokenizer lacks a merge", OTHER_TEXT, tokenizes(_without_a_merge(200))),
    Pair("B's tokenizer has two ids swapped", OTHER_TEXT, tokenizes(_swapped(300, 301))),
    Pair("B's tokenizer adds a token at the end", OTHER_TEXT, tokenizes(adds(0, bos=False, at_end=True))),
    Pair("BOS twice", PREFIX, before(0, 0), a=before(0)),
    Pair("a token before every text", PREFIX, before(0)),
    Pair(
        "a token before every text, bfloat16",
        Says(("first tokens", "all positions"), never=("cache", "window")),
        before(0),
        **_HALF,
    ),
    Pair("a chat template of 5 tokens before every text", PREFIX, before(0, 40, 50, 60, 0), windows=4),
    Pair("the first token is another", PREFIX, _first(0)),
    Pair(
        "the first token is another, windows of 256, bfloat16",
        # Late tokens look back at it, and a cache could do that too.
        replace(PREFIX, never=("precision",)),
        _first(9),
        lengths=(256,),
        **_HALF,
    ),
)
PAIRS = tuple(replace(pair, raw=True) for pair in _PLANTED)
"""What is planted, and what must be found."""
