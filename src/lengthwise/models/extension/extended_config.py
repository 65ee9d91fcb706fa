"""A configuration and the extension of its model: planned, checked, written."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from lengthwise.errors import UsageError, shown
from lengthwise.models.extension.extension_record import RECORD, Extension, read_extension
from lengthwise.models.position_limits import rope_parameters
from lengthwise.positions import rope_method

# Positions beyond are no exact float64.
_LONGEST = 2**53


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
        config: of a model with rotary positions that is not extended yet.
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
    _check_frequencies(extension)
    return extension


def write_extension(config: Any, extension: Extension) -> None:
    """Change a transformers configuration in place so that a model built from it is extended.

    If transformers can express the method, `rope_parameters` and `max_position_embeddings` say it. If not, the rope
    type is `lengthwise_METHOD`, which a program without lengthwise refuses. The key `lengthwise_extension` records
    what was done.
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
    # transformers' dynamic type reads L0 from max_position_embeddings.
    dynamic = text.rope_parameters["rope_type"] == "dynamic"
    text.max_position_embeddings = extension.original_length if dynamic else extension.extended_length
    if hasattr(text, "original_max_position_embeddings"):
        # transformers prefers this key, where a configuration has it (Phi-3), to the one in rope_parameters.
        text.original_max_position_embeddings = extension.original_length
    setattr(text, RECORD, extension.to_dict())


def _check_frequencies(extension: Extension) -> None:
    """Raise UsageError unless every frequency is a positive number, and every position an exact one."""
    try:
        # These refuse options that do not fit the model (a list of the wrong length).
        extension.to_hf_config()
        frequencies, scaling = extension.inverse_frequencies()
        usable = bool(frequencies.isfinite().all() and (frequencies > 0).all() and math.isfinite(scaling))
        usable = usable and extension.extended_length < _LONGEST
    except UsageError:
        raise
    except (ArithmeticError, ValueError) as error:
        raise _unusable(extension) from error
    if not usable:
        raise _unusable(extension)


def _unusable(extension: Extension) -> UsageError:
    given = "".join(f", {name} = {shown(value)}" for name, value in extension.options.items())
    return UsageError(
        f"factor = {extension.factor:g} with {extension.method}{given} gives frequencies or positions that overflow",
        expected="frequencies that are positive and finite",
        fix="use a smaller factor, or other options",
    )


def _plain_rope(text: Any, name: str) -> dict[str, Any]:
    """The rope parameters of a model that is not extended yet; UsageError if it cannot be extended."""
    before = read_extension(text)
    if before is not None:
        raise UsageError(
            f"{name} is extended already: {before.method} by {before.factor:g} from "
            f"{before.original_length} tokens",
            expected="a model that was not extended",
            fix="extend the original model, by the whole factor",
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
            expected="a model whose layers share one kind",
        )
    kind = rope.get("rope_type", "default")
    if kind != "default":
        factor = f" by {rope['factor']:g}" if rope.get("factor") else ""
        raise UsageError(
            f"{name} is extended already: its rope_type is {kind}{factor}",
            expected="a model with plain rotary positions (rope_type default)",
            fix="extend the original model, by the whole factor",
        )
    return rope


def _original_length(text: Any, given: int | None, name: str) -> int:
    recorded: int | None = getattr(text, "max_position_embeddings", None)
    length = recorded if given is None else given
    if length is None:
        raise UsageError(
            f"the configuration of {name} has no max_position_embeddings",
            fix="give the original length",
        )
    if length < 2 or length > (recorded or length):
        trained = f"2 to {recorded} tokens, the context in its configuration"
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
