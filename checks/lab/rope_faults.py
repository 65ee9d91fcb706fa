"""Faults of positions: another rope, other positions, other frequencies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from checks.lab.sides import Pair, Says, Side, changed, configured, reads

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

    return configured(rope_parameters=of_base, max_position_embeddings=lambda base: 512 * base.scale, **more)


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
        Says(
            ("all positions", "from a place", "growing"), place=128, words=("length",), never=("cache", "bos")
        ),
        configured(
            rope_parameters={"rope_type": "dynamic", "factor": 4.0, "rope_theta": 1e4},
            max_position_embeddings=lambda base: 128 * base.scale,
        ),
        lengths=(96, 512),
    ),
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
