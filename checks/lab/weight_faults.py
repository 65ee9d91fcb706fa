"""Faults of weights, and of what is done to logits."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from checks.lab.caches import rounded
from checks.lab.sides import UNSEEN, Pair, Says, Side, changed, predicts


def _matrices(model: Any) -> list[Any]:
    """The weights of all linear layers but the head."""
    layers = [each for each in model.model.modules() if isinstance(each, torch.nn.Linear)]
    return [each.weight for each in layers]


def noise(size: float, seed: int = 0) -> Side:
    """A side whose weights have noise of this size, as a share of each matrix's own."""

    def change(model: Any) -> None:
        generator = torch.Generator().manual_seed(seed)
        for weight in _matrices(model):
            drawn = torch.randn(weight.shape, generator=generator).to(weight)
            weight += size * weight.std() * drawn

    return changed(change)


def in_bits(bits: int) -> Side:
    """A side whose weights are rounded, by row."""

    def change(model: Any) -> None:
        for weight in _matrices(model):
            weight.copy_(rounded(weight, bits))

    return changed(change)


def adapter(size: float, of: Side | None = None) -> Side:
    """A side with an adapter of rank 2 in its values and queries, of this size."""

    def change(model: Any) -> None:
        generator = torch.Generator().manual_seed(1)
        for layer in model.model.layers:
            for each in (layer.self_attn.q_proj, layer.self_attn.v_proj):
                weight = each.weight
                up, down = (torch.randn((n, 2), generator=generator) for n in weight.shape)
                weight += (size * weight.std() / math.sqrt(2) * (up @ down.T)).to(weight)

    return changed(change, of)


def layers(*order: int) -> Side:
    """A side whose first layers stand in this order, or are missing."""

    def change(model: Any) -> None:
        old = list(model.model.layers)
        kept = [old[index] for index in order] + old[max(order) + 1 :]
        model.model.layers = torch.nn.ModuleList(kept)
        model.config.num_hidden_layers = len(kept)
        for index, each in enumerate(kept):
            each.self_attn.layer_idx = index

    return changed(change)


def other_seed() -> Side:
    """A side of other random weights."""

    def change(model: Any) -> None:
        generator = torch.Generator().manual_seed(2)
        for weight in _matrices(model):
            weight.copy_((weight.std() * torch.randn(weight.shape, generator=generator)).to(weight))

    return changed(change)


def free_rows(count: int, logit: float) -> Callable[[Tensor, Tensor], Tensor]:
    """A vocabulary that is padded with rows that were never trained: the mean logit plus `logit`."""

    def how(ids: Tensor, logits: Tensor) -> Tensor:
        top = logits.logsumexp(dim=-1, keepdim=True) + logit
        return torch.cat([logits, top.expand(*top.shape[:-1], count)], dim=-1)

    return how


def bias(token: int, nats: float) -> Callable[[Tensor, Tensor], Tensor]:
    """One token is likelier everywhere."""

    def how(ids: Tensor, logits: Tensor) -> Tensor:
        return logits + nats * torch.nn.functional.one_hot(torch.tensor(token), logits.shape[-1])

    return how


def rows_swapped(head: bool, one: int, other: int) -> Side:
    """A side of which two tokens have each other's row, in the head or in the embedding."""

    def change(model: Any) -> None:
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
        weight = model.lm_head.weight if head else model.model.embed_tokens.weight
        weight[[one, other]] = weight[[other, one]]

    return changed(change)


def _one_head_off(layer: int, head: int) -> Side:
    def change(model: Any) -> None:
        attention = model.model.layers[layer].self_attn
        attention.o_proj.weight[:, head * attention.head_dim : (head + 1) * attention.head_dim] = 0

    return changed(change)


def stored_as(dtype: torch.dtype) -> Side:
    """A side whose weights were kept in another number format."""

    def change(model: Any) -> None:
        for weight in _matrices(model):
            weight.copy_(weight.to(dtype).to(weight.dtype))

    return changed(change)


def _final_norm(size: float) -> Side:
    def change(model: Any) -> None:
        model.model.norm.weight.mul_(size)

    return changed(change)


def _untied(size: float) -> Callable[[Tensor, Tensor], Tensor]:
    """Another head: noise of the logits that is the same for a token wherever it is."""

    def how(ids: Tensor, logits: Tensor) -> Tensor:
        generator = torch.Generator().manual_seed(3)
        return logits + size * torch.randn(logits.shape[-1], generator=generator)

    return how


NEVER = ("cache", "bos", "window")
EVERYWHERE = ("all positions", "growing")
FEW = Says(("some tokens",), words=("output head",), never=(*NEVER, "precision"))
_HALF: dict[str, Any] = {"dtype": "bfloat16", "windows": 4}


def _everywhere(what: str, b: Side, sign: str | None = None, **more: Any) -> Pair:
    return Pair(what, Says(EVERYWHERE, sign, never=NEVER), b, **more)


def _logits(what: str, how: Callable[[Tensor, Tensor], Tensor], sign: str | None = None, **more: Any) -> Pair:
    return _everywhere(what, predicts(how), sign, **more)


PAIRS = (
    _everywhere("weights of another seed", other_seed(), "worse"),
    _everywhere("noise of 30 %", noise(0.3), "worse"),
    _everywhere("noise of 2 %", noise(0.02)),
    _everywhere("noise of 0.1 %", noise(0.001)),
    _everywhere("noise of 10 %, bfloat16, windows of 256", noise(0.1), lengths=(256,), **_HALF),
    _everywhere("two layers are swapped", layers(0, 2, 1), "worse"),
    _everywhere("a layer is missing, bfloat16", layers(0, 2), "worse", **_HALF),
    _everywhere("weights in 8 bits", in_bits(8)),
    _everywhere("weights in 4 bits", in_bits(4)),
    _everywhere("weights in 4 bits, bfloat16", in_bits(4), **_HALF),
    _everywhere("weights in 3 bits, windows of 256", in_bits(3), "worse", lengths=(256,)),
    _everywhere("an adapter that was not loaded", lambda base: base.model, a=adapter(0.1)),
    _everywhere("a small adapter that was not loaded", lambda base: base.model, a=adapter(0.01)),
    _everywhere("an adapter that is scaled twice", adapter(0.2), a=adapter(0.1), windows=4),
    _everywhere("an adapter that was not loaded, bfloat16", lambda base: base.model, a=adapter(0.2), **_HALF),
    _everywhere("the last norm is 5 % too large", _final_norm(1.05)),
    _logits("a bias of the head, one token", bias(260, 2.0)),
    _logits("a bias of the head, one token, bfloat16", bias(300, 6.0), "worse", **_HALF),
    _logits("a bias of the head, one token less likely", bias(300, -2.0), larger=FEW),
    _logits("a bias of the head, one token, 1 nat, bfloat16", bias(260, 1.0), **_HALF),
    Pair("two rows of the head are swapped", FEW, rows_swapped(True, 260, 300)),
    Pair(
        "two rows of the head are swapped, bfloat16",
        FEW,
        rows_swapped(True, 261, 400),
        larger=UNSEEN,
        **_HALF,
    ),
    _everywhere("two rows of the embedding are swapped", rows_swapped(False, 260, 300)),
    _everywhere("one head of attention is off", _one_head_off(1, 2)),
    _everywhere(
        "one head of attention is off, bfloat16",
        _one_head_off(2, 0),
        larger=Says((*EVERYWHERE, "first tokens"), words=("other weights",), never=("cache", "window")),
        **_HALF,
    ),
    _everywhere("weights that were kept in bfloat16", stored_as(torch.bfloat16)),
    _everywhere("weights that were kept in FP8", stored_as(torch.float8_e4m3fn)),
    _logits("another head", _untied(0.3), "worse"),
    _logits("another head, a little", _untied(0.02)),
    _logits("vocabulary padded with free rows: .009", free_rows(64, math.log(0.009 / 64)), "worse"),
    _logits(
        "vocabulary padded with free rows: .009, bfloat16",
        free_rows(64, math.log(0.009 / 64)),
        "worse",
        **_HALF,
    ),
    _logits("vocabulary padded with free rows: .1", free_rows(8, math.log(0.1 / 8)), "worse"),
    _logits("temperature 0.9", lambda _, logits: logits / 0.9),
    _logits("temperature 1.1", lambda _, logits: logits / 1.1),
    _logits("temperature 1.05, bfloat16", lambda _, logits: logits / 1.05, **_HALF),
    _logits("temperature 1.01", lambda _, logits: logits / 1.01),
    _logits("logits capped at 30", lambda _, logits: 30 * (logits / 30).tanh()),
    _logits("logits capped at 10, bfloat16", lambda _, logits: 10 * (logits / 10).tanh(), **_HALF),
    _logits("all tokens but the 50 likeliest share 1 %", lambda _, logits: top(logits, 50)),
)


def top(logits: Tensor, count: int, rest: float = 0.01) -> Tensor:
    """Only the likeliest tokens have probability, but for `rest`, which all share."""
    least = logits.topk(count, dim=-1).values[..., -1:]
    kept = logits.masked_fill(logits < least, -math.inf).softmax(-1)
    return ((1 - rest) * kept + rest / logits.shape[-1]).log()
