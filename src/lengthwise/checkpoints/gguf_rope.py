"""Rope as a GGUF file has it, in keys and in tensors that divide frequencies, as transformers' `rope_parameters`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from lengthwise.checkpoints.position_limits import LENGTH, ropes
from lengthwise.positions.rope import Rope, llama3, plain_frequencies

DIVISORS = _FREQS, _SHORT, _LONG = (
    "rope_freqs.weight",
    "rope_factors_short.weight",
    "rope_factors_long.weight",
)
"""The tensors; no module has them."""


def rope_settings(
    keys: Mapping[str, Any], divisors: Mapping[str, Tensor], config: Any, width: int, lost: list[str]
) -> dict[str, Any]:
    """`rope_parameters` and what a configuration repeats of them; what it cannot say is added to `lost`.

    `keys` are without the architecture, `divisors` tensors that divide frequencies; `config` is what transformers
    made of the file, `width` is d, of a head.
    """
    by_layer = ropes(config)
    # llama.cpp scales the layers without a window alone.
    own = by_layer.get("full_attention", by_layer.get(None))
    if own is None:
        scaled = [key for key in keys if key in ("rope.scaling.factor", "rope.scale_linear")]
        lost += [*divisors, *scaled]
        return {}
    sections = [each for each in keys.get("rope.dimension_sections", ()) if each]
    if sections and sections != own.get("mrope_section"):
        lost.append(f"rope.dimension_sections = {sections}")
    theta = keys.get("rope.freq_base", own["rope_theta"])
    rotated = int(width * own.get("partial_rotary_factor", 1.0))
    made = {key: value for key, value in own.items() if key.startswith(("mrope", "partial"))}
    if (dimensions := keys.get("rope.dimension_count", rotated)) != rotated:
        made["partial_rotary_factor"] = dimensions / width
    scaling = _scaling(keys, divisors, theta, dimensions)
    if scaling is None:
        scaled = {key: value for key, value in keys.items() if key.startswith("rope.scal")}
        lost.append(f"this scaling of rope: {[*divisors, scaled]}")
        scaling = {"rope_type": "default"}
    if own.get("rope_type") == scaling["rope_type"] and "truncate" in own:
        # Of GPT-OSS: no key has it.
        made["truncate"] = own["truncate"]
    made |= {"rope_theta": theta} | scaling
    repeated = {LENGTH: made[LENGTH]} if hasattr(config, LENGTH) and LENGTH in made else {}
    if None in by_layer:
        return {"rope_parameters": made, **repeated}
    local = by_layer.get("sliding_attention", {})
    local = local | {"rope_theta": keys.get("rope.freq_base_swa", local.get("rope_theta"))}
    return {"rope_parameters": by_layer | {"full_attention": made, "sliding_attention": local}, **repeated}


def _scaling(
    keys: Mapping[str, Any], divisors: Mapping[str, Tensor], theta: float, dimensions: int
) -> dict[str, Any] | None:
    """The part of `rope_parameters` that scales; None if transformers has no such scaling."""
    own = {name.removeprefix("rope.scaling."): value for name, value in keys.items()}
    kind, factor = own.get("type", "linear"), own.get("factor") or own.get("rope.scale_linear") or 1.0
    length = {LENGTH: own.get("original_context_length") or keys["context_length"]}
    attention = own.get("attn_factor", 1.0)
    if {*divisors} == {_SHORT, _LONG} and factor == 1:
        lists = {"short_factor": divisors[_SHORT].tolist(), "long_factor": divisors[_LONG].tolist()}
        return {"rope_type": "longrope", **lists, **length, "attention_factor": attention}
    if {*divisors} == {_FREQS} and factor == attention == 1:
        return _llama3(divisors[_FREQS], theta, dimensions)
    if divisors or kind not in ("none", "linear", "yarn"):
        return None
    if kind == "yarn" and factor > 1:
        ends = {"beta_fast": own.get("yarn_beta_fast"), "beta_slow": own.get("yarn_beta_slow")}
        given = {name: value for name, value in ends.items() if value is not None}
        if attention != 1:
            given["attention_factor"] = attention * (0.1 * math.log(factor) + 1)
        return {"rope_type": "yarn", "factor": factor, **length, **given}
    if attention != 1:
        return None
    return (
        {"rope_type": "linear", "factor": factor}
        if kind == "linear" and factor != 1
        else {"rope_type": "default"}
    )


def _llama3(divisors: Tensor, theta: float, dimensions: int) -> dict[str, Any] | None:
    """The settings of Llama 3.1's scaling that divide frequencies so; None if it is another one.

    The file does not keep them. Many give the same divisors: taken are those with Meta's factors 1 and 4.
    """
    low, high, factor, plain = 1.0, 4.0, float(divisors.max()), plain_frequencies(theta, dimensions)
    if factor <= 1 or divisors.shape != plain.shape:
        return None
    fast = (factor / divisors - 1) / (factor - 1)
    between = (fast > 1e-3) & (fast < 1 - 1e-3)
    if not between.any():
        return None
    # `fast` is (r - low) / (high - low) for a frequency that turns r times over the original length.
    length = round(float((2 * math.pi * (low + fast * (high - low)) / plain)[between].median()))
    made = llama3(Rope(theta, dimensions, length, factor), low_freq_factor=low, high_freq_factor=high)
    return made.config if torch.allclose(made.frequencies, plain / divisors, rtol=1e-5, atol=0) else None
