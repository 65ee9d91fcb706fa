"""From a plain configuration to an extended one, or the reason why not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from lengthwise.errors import UsageError
from lengthwise.models.extension.extension_record import RECORD, Extension, read_extension
from lengthwise.models.position_limits import rope_parameters
from lengthwise.positions import rope_method


def plan_extension(
    config: Any,
    method: str,
    *,
    factor: float,
    original_length: int | None = None,
    options: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> Extension:
    """The extension of a model with this transformers configuration, checked; nothing is changed.

    Args:
        config: the configuration of a model with rotary positions that was not extended before.
        method: a name of `lengthwise.positions.ROPE_METHODS`.
        factor: how many times longer the context becomes; 1 changes nothing but is recorded.
        original_length: L0 in tokens; None is what the configuration says.
        options: the method's options.
        name: the model's name for errors.

    Raises:
        UsageError: an unknown method or option, a factor below 1, an impossible original length, no rotary
            positions, several kinds of them, or a model that is extended already.
    """
    text = config.get_text_config()
    name = name or f"the {text.model_type} model"
    chosen: Any = rope_method(method, options)
    if not (math.isfinite(factor) and factor >= 1):
        raise UsageError(
            f"factor = {factor:g}", expected="1 or more: how many times longer the context becomes"
        )
    rope = _plain_rope(text, name)
    extension = Extension(
        method=method,
        factor=float(factor),
        original_length=_original_length(text, original_length, name),
        theta=float(rope["rope_theta"]),
        head_dim=_rotary_dim(text, rope),
        options=_plain_values(asdict(chosen)),
    )
    skipped = extension.options.get("skip_layers", 0)
    if extension.factor > 1 and skipped >= text.num_hidden_layers:
        raise UsageError(
            f"skip_layers = {skipped} leaves none of the {text.num_hidden_layers} layers of {name}",
            expected=f"0 to {text.num_hidden_layers - 1}",
        )
    # Options that do not fit the model (a list of the wrong length) show here.
    extension.to_hf_config()
    extension.inverse_frequencies()
    return extension


def write_extension(config: Any, extension: Extension) -> None:
    """Change a transformers configuration in place so that a model built from it is extended.

    `rope_parameters` and `max_position_embeddings` say it where transformers can express the method;
    where it cannot, the rope type is `lengthwise_METHOD`, which a program without lengthwise refuses. The
    record of what was done is the configuration's `lengthwise_extension`.
    """
    text = config.get_text_config()
    text.rope_parameters = _kept(text.rope_parameters) | (
        extension.to_hf_config()
        or {
            "rope_type": extension.custom_rope_type,
            "rope_theta": extension.theta,
            "factor": extension.factor,
            "original_max_position_embeddings": extension.original_length,
        }
    )
    # The dynamic type takes L0 from here.
    dynamic = text.rope_parameters["rope_type"] == "dynamic"
    text.max_position_embeddings = extension.original_length if dynamic else extension.extended_length
    if hasattr(text, "original_max_position_embeddings"):
        # Where a configuration has this key (Phi-3), transformers prefers it to the one in rope_parameters.
        text.original_max_position_embeddings = extension.original_length
    setattr(text, RECORD, extension.to_dict())


def _plain_rope(text: Any, name: str) -> dict[str, Any]:
    """The rope parameters of a model that was not extended, or the reason why it cannot be."""
    before = read_extension(text)
    if before is not None:
        raise UsageError(
            f"{name} is extended already: {before.method} by {before.factor:g} from "
            f"{before.original_length} tokens",
            expected="a model that was not extended",
            fix="extend the model that it was made from, by the whole factor",
        )
    rope = rope_parameters(text)
    if rope is None:
        raise UsageError(
            f"{name} has no rotary positions that can be extended ({text.model_type} has no rope_parameters)",
            expected="a model with rotary positions, such as a Llama, Qwen or Mistral",
        )
    if any(isinstance(value, dict) for value in rope.values()):
        raise UsageError(
            f"{name} has rotary positions of several kinds: {', '.join(sorted(rope))}",
            expected="a model whose layers all have the same (which of several to extend is a choice of research)",
        )
    kind = rope.get("rope_type", "default")
    if kind != "default":
        factor = f" by {rope['factor']:g}" if rope.get("factor") else ""
        raise UsageError(
            f"{name} is extended already: its rope_type is {kind}{factor}",
            expected="a model with plain rotary positions (rope_type default)",
            fix="extend the model that it was made from, by the whole factor",
        )
    return rope


def _original_length(text: Any, given: int | None, name: str) -> int:
    recorded: int | None = getattr(text, "max_position_embeddings", None)
    length = recorded if given is None else given
    if length is None:
        raise UsageError(
            f"the configuration of {name} does not say how long a context it was trained for",
            fix="give the original length",
        )
    if length < 2 or length > (recorded or length):
        trained = f"2 to {recorded} tokens, for which its configuration says it was trained"
        raise UsageError(
            f"original_length = {length} for {name}", expected=trained if recorded else "2 tokens or more"
        )
    return length


def _rotary_dim(text: Any, rope: dict[str, Any]) -> int:
    head_dim = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    return int(head_dim * rope.get("partial_rotary_factor", 1.0))


def _kept(rope: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in rope.items() if key == "partial_rotary_factor"}


def _plain_values(options: dict[str, Any]) -> dict[str, Any]:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in options.items()}
