"""Faults of a part: a head, a layer, the last tokens of a window, what is seen from a place on or on side A."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from checks.lab import caches
from checks.lab.cache_faults import through
from checks.lab.mask_faults import knows
from checks.lab.pattern_faults import noisy
from checks.lab.sides import EQUAL, Base, Pair, Says, Side, changed, predicts


class OldHead(caches.Sound):
    """The values of the first head are 0, but for the last 64 tokens."""

    def update(self, key_states: Any, value_states: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        keys, values = (each.clone() for each in super().update(key_states, value_states, *args, **kwargs))
        values[:, 0, : max(0, keys.shape[-2] - key_states.shape[-2] - 64)] = 0
        return keys, values


class SwapsBlocks(caches.Sound):
    """The values of two blocks of 32 tokens are read back in each other's place, as by a wrong table of pages."""

    def update(self, key_states: Any, value_states: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        keys, values = (each.clone() for each in super().update(key_states, value_states, *args, **kwargs))
        if keys.shape[-2] - key_states.shape[-2] >= 128:
            values[:, :, 64:128] = values[:, :, 64:128].roll(32, dims=2)
        return keys, values


def state(layer: int, how: Callable[[Tensor], Tensor]) -> Side:
    """A side of which one layer gives another state: `how` changes it in place, [B, T, d]."""

    def change(model: Any) -> None:
        def hook(_module: Any, _inputs: Any, output: Any) -> Any:
            hidden = (output[0] if isinstance(output, tuple) else output).clone()
            how(hidden)
            return (hidden, *output[1:]) if isinstance(output, tuple) else hidden

        model.model.layers[layer].register_forward_hook(hook)

    return changed(change)


def head(layer: int, index: int, how: Callable[[Tensor], Tensor]) -> Side:
    """A side of which one head of attention gives something else: `how` changes it in place, [B, T, d]."""

    def change(model: Any) -> None:
        attention = model.model.layers[layer].self_attn
        own = slice(index * attention.head_dim, (index + 1) * attention.head_dim)

        def hook(_module: Any, inputs: tuple[Tensor]) -> tuple[Tensor]:
            found = inputs[0].clone()
            how(found[..., own])
            return (found,)

        attention.o_proj.register_forward_pre_hook(hook)

    return changed(change)


class _Wavers(torch.nn.Module):
    """Adds noise of its own generator, which no state of torch's shows, as kernels that add in any order do."""

    def __init__(self, plain: torch.nn.Module, size: float) -> None:
        super().__init__()
        self.plain, self.size, self.calls = plain, size, 0

    def forward(self, states: Tensor) -> Tensor:
        found = self.plain(states)
        if found.shape[1] < 100:
            return found
        self.calls += 1
        drawn = torch.randn(found.shape, generator=torch.Generator().manual_seed(self.calls))
        return found + self.size * found.std() * drawn.to(found)


def wavers(size: float) -> Side:
    """A side whose second layer wavers in long texts alone."""

    def change(model: Any) -> None:
        mlp = model.model.layers[1].mlp
        mlp.down_proj = _Wavers(mlp.down_proj, size)

    return changed(change)


def knows_at(nats: float, where: Callable[[Tensor], Tensor]) -> Side:
    """A side that knows the next token at some positions."""

    def how(ids: Tensor, logits: Tensor) -> Tensor:
        found, rows = logits.clone(), torch.arange(ids.shape[1] - 1)
        size = (nats * where(rows)).to(found).expand(len(ids), -1)[..., None]
        found[:, :-1].scatter_add_(2, ids[:, 1:, None], size)
        return found

    return predicts(how)


def _last(tokens: int, factor: float) -> Callable[[Tensor], Tensor]:
    return lambda hidden: hidden[:, -tokens:].mul_(factor)


def _ends(ids: Tensor, logits: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(9)
    drawn = torch.randn(logits[:, -32:].shape, generator=generator)
    return torch.cat([logits[:, :-32], logits[:, -32:] + 0.5 * drawn], dim=1)


def _place(what: str, place: int, b: Side, *words: str, sign: str | None = None, **more: Any) -> Pair:
    says = Says(("from a place", "growing"), sign, place, words=words, never=("bos", "precision"))
    return Pair(what, says, b, **more)


def _plain(base: Base) -> Any:
    return base.model


def _off(hidden: Tensor) -> Tensor:
    return hidden[:, 200:].zero_()


SEES = "sees what it predicts"
EVERYWHERE = Says(("all positions", "growing"), never=("cache", "bos"))
SHORT: dict[str, Any] = {"lengths": (256,)}
HALF: dict[str, Any] = {**SHORT, "dtype": "bfloat16"}
PAIRS = (
    _place("old values of one head are 0", 128, through(OldHead), "cache"),
    _place("two blocks of a cache are swapped, float16", 128, through(SwapsBlocks), "cache", dtype="float16"),
    _place("one head is off from token 200 on", 200, head(1, 1, _off), "a kernel that fails", **SHORT),
    _place(
        "one head is off from token 200 on, bfloat16", 200, head(1, 1, _off), "a kernel that fails", **HALF
    ),
    _place("the last 3 tokens in one layer", 253, state(1, _last(3, 1.2)), "a kernel that fails", **SHORT),
    _place("the last 3 tokens in one layer, bfloat16", 253, state(1, _last(3, 1.2)), "a kernel", **HALF),
    Pair("one head gives 1 % more", EVERYWHERE, head(2, 0, lambda each: each.mul_(1.01)), **SHORT),
    Pair("one layer gives 0.1 % more", EVERYWHERE, state(1, lambda each: each.mul_(1.001)), **SHORT),
    _place("B knows the next token from 100 on", 100, knows_at(1.0, lambda p: p >= 100), SEES, sign="better"),
    _place(
        "A knows the next token from 100 on",
        100,
        _plain,
        "A sees what it predicts",
        sign="worse",
        a=knows_at(1.0, lambda p: p >= 100),
    ),
    Pair(
        "A knows the next token: 1 nat",
        Says(EVERYWHERE.pattern, "worse", words=("A sees what it predicts",)),
        _plain,
        a=knows(1.0),
        **SHORT,
    ),
    Pair(
        "A knows the next token: 0.1 nats",
        Says(EVERYWHERE.pattern, "worse", words=("A sees what it predicts",)),
        _plain,
        a=knows(0.1),
        **SHORT,
    ),
    Pair(
        "B knows every tenth token, bfloat16",
        Says(("some tokens", "all positions"), "better", words=(SEES,)),
        knows_at(2.0, lambda p: p % 10 == 7),
        **HALF,
    ),
    Pair(
        "one side wavers by more than it rounds, float16",
        Says(("unstable",), words=("Side B",)),
        wavers(0.03),
        larger=Says(("unstable",), words=("each time",), refused=True),
        **{**SHORT, "dtype": "float16"},
    ),
    Pair("one side wavers by less than it rounds, bfloat16", EQUAL, wavers(0.003), **HALF),
    Pair(
        "one side wavers in float32",
        Says(("unstable",), words=("each time",), refused=True),
        wavers(0.03),
        **SHORT,
    ),
    Pair(
        "noise that is as large as the tolerance, at two lengths",
        Says(("equal", *EVERYWHERE.pattern), never=("in windows of", "moves")),
        noisy(lambda p: 0.00013 + 0 * p),
        lengths=(128, 256),
    ),
    Pair(
        "the last 32 tokens of every window, at two lengths",
        Says(("from a place",), words=("moves with the length", "the last tokens")),
        predicts(_ends),
        lengths=(128, 256),
    ),
)
