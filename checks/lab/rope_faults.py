"""Faults of positions: another rope, other positions, other frequencies."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from checks.lab.sides import UNSEEN, Pair, Says, Side, changed, configured, reads

YARN = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4, "original_max_position_embeddings": 128}
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "rope_theta": 1e4, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 128,
}  # fmt: skip
LINEAR = {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4}
PLAIN = {"rope_type": "default", "rope_theta": 1e4}


def rope(parameters: dict[str, Any], **more: Any) -> Side:
    """A side with this rope; of a base whose rope has another base, with that one."""

    def of_base(base: Any) -> dict[str, Any]:
        theta = base.model.config.rope_parameters["rope_theta"] / 1e4
        scaled = parameters | {"rope_theta": parameters["rope_theta"] * theta}
        if (original := "original_max_position_embeddings") in parameters:
            scaled[original] = parameters[original] * base.scale
        return scaled

    reach = more.pop("reach", 512)
    return configured(
        rope_parameters=of_base, max_position_embeddings=lambda base: reach * base.scale, **more
    )


def by_length(factor: float = 4.0, reach: int = 128) -> Side:
    """A side whose rope is that of the length of its input, where that is beyond `reach` tokens."""
    return rope({"rope_type": "dynamic", "factor": factor, "rope_theta": 1e4}, reach=reach)


def at(positions: Callable[[Tensor], Tensor]) -> Side:
    """A side that reads at other positions: those of the tokens [T] -> positions [T], of the small model.

    A model that is `scale` times as long has every step at as many times the place, and as many times as wide.
    """

    def side(base: Any) -> Any:
        def how(read: Any, ids: Tensor) -> Tensor:
            places = torch.arange(ids.shape[1])
            small = places // base.scale
            moved = places + base.scale * (positions(small) - small)
            return read(ids, position_ids=moved.expand(ids.shape))

        return reads(how)(base)

    return side


def frequencies(how: Callable[[Tensor], Tensor]) -> Side:
    """A side with other frequencies of its rope."""

    def change(model: Any) -> None:
        module = model.model.rotary_emb
        for name in ("inv_freq", "original_inv_freq"):
            setattr(module, name, how(getattr(module, name)))

    return changed(change)


def in_layer(index: int, how: Callable[[Tensor], Tensor]) -> Side:
    """A side with other frequencies of the rope in one layer alone."""

    def change(model: Any) -> None:
        attention, own = model.model.layers[index].self_attn, copy.deepcopy(model.model.rotary_emb)
        own.inv_freq = how(own.inv_freq.float())
        plain = attention.forward

        def forward(hidden_states: Tensor, position_embeddings: Any = None, **more: Any) -> Any:
            places = torch.arange(hidden_states.shape[1])[None]
            return plain(hidden_states, position_embeddings=own(hidden_states, places), **more)

        attention.forward = forward

    return changed(change)


def another_base(ratio: float) -> Callable[[Tensor], Tensor]:
    """Frequencies of a rope with another base, which is `ratio` times as large."""

    def how(each: Tensor) -> Tensor:
        return each * ratio ** -(torch.arange(len(each)) / len(each))

    return how


def _attention_scaled(ratio: float) -> Side:
    def change(model: Any) -> None:
        for layer in model.model.layers:
            layer.self_attn.scaling *= ratio

    return changed(change)


def _no_attention_factor(model: Any) -> None:
    model.model.rotary_emb.attention_scaling = 1.0


def _differs(what: str, b: Side, a: Side | None = None, **more: Any) -> Pair:
    """It differs at all positions or more and more; a cause may not be named that the data do not tell."""
    says = Says(("all positions", "growing", "from a place"), never=("cache", "bos"))
    return Pair(what, says, b, **({} if a is None else {"a": a}), **more)


def _from(what: str, place: int, b: Side, **more: Any) -> Pair:
    says = Says(("from a place", "growing"), place=place, never=("cache", "bos", "precision"))
    return Pair(what, says, b, **more)


_HALF: dict[str, Any] = {"dtype": "bfloat16", "windows": 4}
LENGTH = Says(
    ("all positions", "from a place", "growing", "first tokens"),
    words=("length",),
    never=("cache", "bos", "precision"),
)
"""Each side repeats itself, and one predicts the same otherwise where more follows."""
PAIRS = (
    _differs("base 1,000,000 for 10,000", rope(PLAIN | {"rope_theta": 1e6})),
    _differs("base 15,000 for 10,000", rope(PLAIN | {"rope_theta": 1.5e4})),
    _differs("base 15,000 for 10,000, bfloat16", rope(PLAIN | {"rope_theta": 1.5e4}), **_HALF),
    _differs("YaRN dropped", rope(PLAIN), rope(YARN)),
    _differs("YaRN x2 for x4", rope(YARN | {"factor": 2.0}), rope(YARN)),
    _differs(
        "YaRN with another original length",
        rope(YARN | {"original_max_position_embeddings": 256}),
        rope(YARN),
    ),
    _differs("YaRN without its attention factor", changed(_no_attention_factor, rope(YARN)), rope(YARN)),
    _differs("YaRN dropped, bfloat16", rope(PLAIN), rope(YARN), **_HALF),
    _differs("linear x4 dropped", rope(PLAIN), rope(LINEAR)),
    _differs(
        "linear x2 for x4, windows of 256", rope(LINEAR | {"factor": 2.0}), rope(LINEAR), lengths=(256,)
    ),
    _differs("llama3 dropped", rope(PLAIN), rope(LLAMA3)),
    _differs("llama3 x4 for x8", rope(LLAMA3 | {"factor": 4.0}), rope(LLAMA3)),
    Pair(
        "a rope that depends on the length of the input",
        LENGTH,
        by_length(),
        lengths=(96, 512),
    ),
    Pair("a rope that depends on the length of the input, one length", LENGTH, by_length(reach=256)),
    Pair("a rope that depends on the length of the input, bfloat16", LENGTH, by_length(reach=256), **_HALF),
    Pair("the rope of one side alone depends on the length", LENGTH, lambda base: base.model, a=by_length()),
    _differs("ropes that depend on the length, x2 for x4", by_length(2.0), by_length()),
    _differs("base 9,900 for 10,000", rope(PLAIN | {"rope_theta": 9900.0})),
    _differs("base 2 % larger in one layer", in_layer(1, another_base(1.02))),
    _differs(
        "base twice as large in one layer, bfloat16", in_layer(0, another_base(2.0)), larger=UNSEEN, **_HALF
    ),
    _differs("linear x1.02 too much", rope(LINEAR | {"factor": 4.08}), rope(LINEAR)),
    _differs("attention scaled by 1.05", _attention_scaled(1.05)),
    _differs("attention scaled by 1.05, bfloat16", _attention_scaled(1.05), larger=UNSEEN, **_HALF),
    _from("positions jump back by 64 at token 320", 320, at(lambda p: p - 64 * (p >= 320))),
    _from("positions run twice as fast from 200 to 264", 200, at(lambda p: p + (p - 200).clamp(0, 64))),
    _from("positions jump by 1 at token 256", 256, at(lambda p: p + (p >= 256))),
    _from("positions jump by 1 at token 100", 100, at(lambda p: p + (p >= 100))),
    _from("positions jump by 512 at token 300", 300, at(lambda p: p + 512 * (p >= 300))),
    _from("positions jump by 512 at token 352, bfloat16", 352, at(lambda p: p + 512 * (p >= 352)), **_HALF),
    _from("positions begin again at token 256", 256, at(lambda p: p % 256)),
    _from("positions begin again at token 400, bfloat16", 400, at(lambda p: p % 400), **_HALF),
    _from("positions stop at token 384", 384, at(lambda p: p.clamp(max=384))),
    _differs("every second position is skipped", at(lambda p: 2 * p)),
    _differs("frequencies in bfloat16", frequencies(lambda each: each.bfloat16().float())),
    _differs("frequencies off by 1 %", frequencies(lambda each: each * 1.01)),
    _differs(
        "rope on half of the dimensions",
        frequencies(lambda each: torch.cat([each[: len(each) // 2], 0 * each[len(each) // 2 :]])),
    ),
    _differs("no rope, bfloat16", frequencies(lambda each: 0 * each), **_HALF),
)
