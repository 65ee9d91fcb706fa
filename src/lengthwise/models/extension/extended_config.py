"""A configuration and the extension of its model: planned, checked, written."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from lengthwise.errors import UsageError, shown
from lengthwise.models.extension.extension_record import RECORD, Extension, read_extension
from lengthwise.models.position_limits import rope_parameters
from lengthwise.positions import rope_method

FULL_ATTENTION = "full_attention"
"""transformers' type of a layer that attends to the whole context."""
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

    If types of layers have rotary positions of their own (Gemma 3), only the full attention layers are extended.
    Sliding layers see no distance beyond their window, so their positions do not grow with the context.

    Args:
        config: of a model with rotary positions that is not extended yet.
        method: a name of `lengthwise.positions.ROPE_METHODS`.
        factor: how many times longer the context becomes; 1 changes nothing but is recorded.
        original_length: L0 in tokens; None is what the configuration says.
        options: the method's options.
        name: the model's name for errors.

    Raises:
        UsageError: an unknown method or option, a factor below 1, an impossible original length, no rotary
            positions in the layers that see the whole context, or a model that is extended already.
    """
    text = config.get_text_config()
    name = name or f"the {text.model_type} model"
    chosen = rope_method(method, options)
    if not (math.isfinite(factor) and factor >= 1):
        raise UsageError(
            f"factor = {factor:g}", expected="1 or more: how many times longer the context becomes"
        )
    layer_type, rope = _plain_rope(text, name)
    head_dim = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    plain = {key: list(value) if isinstance(value, tuple) else value for key, value in chosen.options.items()}
    extension = Extension(
        method=method,
        factor=float(factor),
        original_length=_original_length(text, original_length, name),
        theta=float(rope["rope_theta"]),
        head_dim=int(head_dim * rope.get("partial_rotary_factor", 1.0)),
        options=plain,
        layer_type=layer_type,
    )
    skipped = extension.options.get("skip_layers", 0)
    last = max(extended_layers(text, extension))
    if extension.factor > 1 and skipped > last:
        raise UsageError(
            f"skip_layers = {skipped} leaves none of the {text.num_hidden_layers} layers of {name}",
            expected=f"0 to {last}",
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
    layer_type = extension.layer_type
    before = text.rope_parameters if layer_type is None else text.rope_parameters[layer_type]
    kept = {key: value for key, value in before.items() if key == "partial_rotary_factor"}
    rope = kept | (
        extension.to_hf_config()
        or {
            "rope_type": extension.custom_rope_type,
            "rope_theta": extension.theta,
            "factor": extension.factor,
            "original_max_position_embeddings": extension.original_length,
        }
    )
    text.rope_parameters = rope if layer_type is None else text.rope_parameters | {layer_type: rope}
    # transformers' dynamic type reads L0 from max_position_embeddings.
    dynamic = rope["rope_type"] == "dynamic"
    text.max_position_embeddings = extension.original_length if dynamic else extension.extended_length
    if hasattr(text, "original_max_position_embeddings"):
        # transformers prefers this key, where a configuration has it (Phi-3), to the one in rope_parameters.
        text.original_max_position_embeddings = extension.original_length
    setattr(text, RECORD, extension.to_dict())


def extended_layers(config: Any, extension: Extension) -> list[int]:
    """Indices of the layers that an extension changes."""
    text = config.get_text_config()
    layers = range(text.num_hidden_layers)
    if extension.layer_type is None:
        return list(layers)
    return [layer for layer in layers if text.layer_types[layer] == extension.layer_type]


def _check_frequencies(extension: Extension) -> None:
    """Raise UsageError unless every frequency is a positive number, and every position an exact one."""
    try:
        # These refuse options that do not fit the model (a list of the wrong length).
        extension.to_hf_config()
        frequencies, scaling = extension.inverse_frequencies()
        usable = bool(frequencies.isfinite().all() and (frequencies > 0).all() and math.isfinite(scaling))
    except UsageError:
        raise
    except (ArithmeticError, ValueError):
        usable = False
    # As a float: an infinite length is no whole number of tokens.
    if not usable or not extension.factor * extension.original_length < _LONGEST:
        given = "".join(f", {name} = {shown(value)}" for name, value in extension.options.items())
        raise UsageError(
            f"factor = {extension.factor:g} with {extension.method}{given} overflows",
            expected="frequencies that are positive and finite",
            fix="use a smaller factor, or other options",
        )


def _plain_rope(text: Any, name: str) -> tuple[str | None, dict[str, Any]]:
    """The type of the layers to extend (None: all) and their rope parameters; UsageError if there are none."""
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
    layer_type = None
    if any(isinstance(value, dict) for value in rope.values()):
        if not rope.get(FULL_ATTENTION) or FULL_ATTENTION not in (getattr(text, "layer_types", None) or ()):
            raise UsageError(
                f"{name} has rotary positions in other layers than those of {FULL_ATTENTION}: "
                + ", ".join(sorted(rope)),
                expected="a model with rotary positions in the layers that see the whole context",
            )
        layer_type, rope = FULL_ATTENTION, rope[FULL_ATTENTION]
    kind = rope.get("rope_type", "default")
    if kind != "default":
        factor = f" by {rope['factor']:g}" if rope.get("factor") else ""
        raise UsageError(
            f"{name} is extended already: its rope_type is {kind}{factor}",
            expected="a model with plain rotary positions (rope_type default)",
            fix="extend the original model, by the whole factor",
        )
    return layer_type, rope


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
