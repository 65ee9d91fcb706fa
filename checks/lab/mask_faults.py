"""Faults of masks: what is seen that must not be, and what is not."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import MistralConfig, MistralForCausalLM, Qwen2Config, Qwen2ForCausalLM

from checks.lab.sides import Pair, Says, Side, configured, predicts, reads


def masked(seen: Callable[[Tensor, Tensor], Tensor]) -> Side:
    """A side under another mask: `seen` says of rows [T, 1] and columns [1, T] which attends to which.

    Its places are those of the small model, and scale with it.
    """

    def side(base: Any) -> Any:
        return reads(partial(how, base.scale))(base)

    def how(scale: int, read: Any, ids: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1]) / scale
        allowed = seen(places[:, None], places[None])
        hidden = read(ids[:, :1])
        mask = torch.zeros(allowed.shape, dtype=hidden.dtype).masked_fill(
            ~allowed, torch.finfo(hidden.dtype).min
        )
        return read(ids, attention_mask=mask[None, None].expand(len(ids), 1, -1, -1))

    return side


def window(tokens: int | None) -> Side:
    """A side with a sliding window in all layers."""
    scaled = None if tokens is None else lambda base: tokens * base.scale
    return configured(MistralForCausalLM, MistralConfig, sliding_window=scaled)


def window_in(layers: tuple[int, ...], tokens: int) -> Side:
    """A side with a sliding window in some layers alone."""

    def kinds(base: Any) -> list[str]:
        count = base.model.config.num_hidden_layers
        return ["sliding_attention" if i in layers else "full_attention" for i in range(count)]

    settings: dict[str, Any] = {
        "use_sliding_window": True,
        "sliding_window": lambda base: tokens * base.scale,
    }
    return configured(Qwen2ForCausalLM, Qwen2Config, layer_types=kinds, **settings)


def counted(tokens: int) -> Side:
    """A side that reads padding before the text, as if it were text."""

    def how(read: Any, ids: Tensor) -> Tensor:
        return read(torch.cat([torch.zeros_like(ids[:, :tokens]), ids], dim=1))[:, tokens:]

    return reads(how)


def knows(nats: float) -> Side:
    """A side whose predictions have seen the next token: it is `nats` likelier than it should be."""

    def how(ids: Tensor, logits: Tensor) -> Tensor:
        changed = logits.clone()
        following = ids[:, 1:, None]
        changed[:, :-1].scatter_add_(2, following, torch.full_like(following, nats, dtype=logits.dtype))
        return changed

    return predicts(how)


NEVER = ("cache", "bos")
ANYWHERE = Says(("all positions", "growing", "from a place"), never=NEVER)
FUTURE = Says(
    ("all positions",), "better", words=("lower",), never=(*NEVER, "precision does this", "adapter")
)
_HALF: dict[str, Any] = {"dtype": "bfloat16", "windows": 4}


def _from(what: str, place: int, b: Side, **more: Any) -> Pair:
    says = Says(("from a place", "growing"), place=place, never=(*NEVER, "precision"))
    return Pair(what, says, b, **more)


def _hides(token: int) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda row, column: (column <= row) & ((column != token) | (row == token))


def _near(what: str, seen: Callable[[Tensor, Tensor], Tensor], **more: Any) -> Pair:
    """Near tokens alone: a beginning may be named, if all positions are, too."""
    return Pair(
        what,
        Says((*ANYWHERE.pattern, "first tokens"), words=("mask",), never=("cache",)),
        masked(seen),
        **more,
    )


def _blocks(tokens: int) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda row, column: (column <= row) & (row // tokens == column // tokens)


PAIRS = (
    Pair("every row sees the next token", ANYWHERE, masked(lambda row, column: column <= row + 1)),
    Pair(
        "rows see the rest of their block of 16",
        ANYWHERE,
        masked(lambda row, column: column // 16 <= row // 16),
        **_HALF,
    ),
    Pair(
        "every row sees the last token",
        Says(
            ("all positions", "growing", "first tokens"), words=("what follows",), never=(*NEVER, "precision")
        ),
        masked(lambda row, column: (column <= row) | (column == 500)),
    ),
    _from(
        "every row from 300 on sees the next token",
        300,
        masked(lambda row, column: column <= row + (row >= 300)),
    ),
    Pair(
        "the first 64 tokens see each other",
        Says(("first tokens",), never=(*NEVER[:1], "precision")),
        masked(lambda row, column: (column <= row) | ((row < 64) & (column < 64))),
    ),
    Pair(
        "no row sees the token before it",
        ANYWHERE,
        masked(lambda row, column: (column <= row) & (column != row - 1)),
    ),
    _near("no row sees the second to last token", lambda row, column: (column <= row) & (column != row - 2)),
    _near("rows see the rest of their block of 4", lambda row, column: column // 4 <= row // 4),
    _near(
        "rows see the rest of their block of 4, bfloat16",
        lambda row, column: column // 4 <= row // 4,
        **_HALF,
    ),
    _from("token 50 is seen by no later row", 50, masked(_hides(50))),
    _from("token 300 is seen by no later row, bfloat16", 300, masked(_hides(300)), **_HALF),
    _from("rows see their block of 128 alone", 128, masked(_blocks(128))),
    _from("rows see their block of 160 alone, bfloat16", 160, masked(_blocks(160)), **_HALF),
    _from("a window of 448 in one layer, bfloat16", 448, window_in((1,), 448), **_HALF),
    Pair("the next token is known: 2 nats", FUTURE, knows(2.0)),
    Pair("the next token is known: 6 nats", FUTURE, knows(6.0), lengths=(256,)),
    Pair("the next token is known: 0.2 nats, bfloat16", FUTURE, knows(0.2), **_HALF),
    Pair(
        "the first token is masked",
        Says(("first tokens", "all positions", "growing")),
        masked(lambda row, column: (column <= row) & ((column > 0) | (row == 0))),
    ),
    Pair("no row sees itself", ANYWHERE, masked(lambda row, column: (column < row) | (row + column == 0))),
    Pair("8 tokens of padding are counted", Says(("all positions", "first tokens", "growing")), counted(8)),
    Pair(
        "64 tokens of padding are counted",
        Says(("all positions", "first tokens", "growing")),
        counted(64),
        **_HALF,
    ),
    _from("a window of 129 for 128", 128, window(129), a=window(128)),
    _from("a window of 129 for 128, bfloat16", 128, window(129), a=window(128), dtype="bfloat16", windows=6),
    _from("a window of 199 for 200, bfloat16", 199, window(199), a=window(200), dtype="bfloat16", windows=6),
    _from("a window of 300 for 301", 300, window(300), a=window(301)),
    _from("a window of 192 for none", 192, window(192), a=window(None)),
    _from("a window of 320 for none, bfloat16", 320, window(320), a=window(None), **_HALF),
    _from("a window of 128 in one layer", 128, window_in((1,), 128)),
    _from("a window of 256 in two layers, bfloat16", 256, window_in((0, 3), 256), **_HALF),
    _from(
        "tokens from 256 on see none before",
        256,
        masked(lambda row, column: (column <= row) & ((row < 256) | (column >= 256))),
    ),
    _from(
        "tokens from 400 on see none before, bfloat16",
        400,
        masked(lambda row, column: (column <= row) & ((row < 400) | (column >= 400))),
        **_HALF,
    ),
    _from(
        "tokens from 100 on do not see the first 32",
        100,
        masked(lambda row, column: (column <= row) & ((row < 100) | (column >= 32))),
    ),
)
