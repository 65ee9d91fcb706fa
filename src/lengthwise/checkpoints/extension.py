"""Context extension in a model's configuration: planned, checked, written, and read again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from annotated_types import Ge
from pydantic import Field
from torch import Tensor
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from lengthwise.checkpoints.position_limits import RECORD, as_length, rope_parameters
from lengthwise.errors import UsageError, require, shown
from lengthwise.positions import ROPE_METHODS, rope_method
from lengthwise.positions.rope import Rope, ScaledRope
from lengthwise.settings import Finite, Settings, Whole, checked
from lengthwise.versions import need_layered_rope

FULL_ATTENTION = "full_attention"
"""transformers' type of a layer that attends to the whole context."""
# Positions beyond are no exact float64.
_LONGEST = 2**53


class Extension(Settings):
    """One extension of one model. Its values are plain, so a JSON round trip gives an equal object."""

    method: str
    """A name of ROPE_METHODS."""
    factor: Annotated[Finite, Ge(1)]
    """s: the context becomes this many times longer."""
    original_length: Whole
    """L0: tokens of context that the model was trained for."""
    theta: Finite
    """The model's own base."""
    head_dim: Whole
    """Rotated dimensions per head."""
    options: dict[str, Any] = Field(default_factory=dict)
    """All options of the method."""
    layer_type: str | None = None
    """The layers that are extended, in a model with rotary positions by type of layer; None is all layers."""

    @property
    def extended_length(self) -> int:
        """s * L0 in whole tokens."""
        return int(self.factor * self.original_length)

    @property
    def custom_rope_type(self) -> str:
        """The rope type for a method that transformers does not have."""
        return f"lengthwise_{self.method}"

    def inverse_frequencies(self, length: int | None = None) -> tuple[Tensor, float]:
        """Frequencies [d/2] in radians per token, float32, and the factor on cos and sin.

        Those for `length` tokens of input if the method depends on it; None is the extended length.
        """
        frequencies, _, scaling = self._scaled(length)
        return frequencies.float(), scaling

    def to_hf_config(self) -> dict[str, Any] | None:
        """The `rope_parameters` with which plain transformers computes the same; None if it cannot."""
        return self._scaled().config

    def _scaled(self, length: int | None = None) -> ScaledRope:
        rope = Rope(self.theta, self.head_dim, self.original_length, self.factor, length)
        return rope_method(self.method, self.options)(rope)

    def to_dict(self) -> dict[str, Any]:
        """The record; without a layer type if all layers are extended."""
        return {key: value for key, value in dict(self).items() if (key, value) != ("layer_type", None)}


def read_extension(config: Any) -> Extension | None:
    """The extension that a model's configuration records; None if it was not extended by lengthwise."""
    value = getattr(config.get_text_config(), RECORD, None)
    return None if value is None else checked(Extension, value, source=f"{RECORD} in the configuration")


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

    The other arguments are those of `extend`.

    Raises:
        MissingError: this transformers cannot give the method to one type of layers.
        UsageError: a wrong method, option, factor or original length, no rotary positions in the layers that see
            the whole context, or a model that is extended already.
    """
    text = config.get_text_config()
    name = name or f"the {text.model_type} model"
    given = rope_method(method, options).keywords
    layer_type, rope = _plain_rope(text, name)
    head_dim = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    extension = Extension(
        method=method,
        factor=float(factor),
        original_length=_original_length(text, original_length, name),
        theta=float(rope["rope_theta"]),
        head_dim=int(head_dim * rope.get("partial_rotary_factor", 1.0)),
        options={key: list(value) if isinstance(value, tuple) else value for key, value in given.items()},
        layer_type=layer_type,
    )
    if layer_type is not None:
        need_layered_rope((extension.to_hf_config() or {}).get("rope_type", ""))
    skipped, last = given.get("skip_layers", 0), max(extended_layers(text, extension))
    require(
        factor == 1 or skipped <= last,
        f"skip_layers = {skipped} leaves none of the {text.num_hidden_layers} layers of {name}",
        f"0 to {last}",
    )
    # This also refuses options that do not fit the model (a list of the wrong length).
    frequencies, _ = extension.inverse_frequencies()
    # As a float: an infinite length is no whole number of tokens.
    longest = extension.factor * extension.original_length
    require(
        bool(frequencies.isfinite().all() and (frequencies > 0).all()) and longest < _LONGEST,
        f"factor = {extension.factor:g} with {method} and the options {shown(given)} overflows",
        "frequencies that are positive and finite: a smaller factor, or other options",
    )
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
    wanted = extension.layer_type
    return [
        layer
        for layer in range(text.num_hidden_layers)
        if wanted is None or text.layer_types[layer] == wanted
    ]


def _plain_rope(text: Any, name: str) -> tuple[str | None, dict[str, Any]]:
    """The type of the layers to extend (None: all) and their rope parameters; UsageError if there are none."""
    rope, layer_type = rope_parameters(text), None
    if rope is None:
        raise UsageError(
            f"{name} has no rotary positions that can be extended ({text.model_type} has no rope_parameters)",
            expected="a model with rotary positions, such as a Llama, Qwen or Mistral",
        )
    if any(isinstance(value, dict) for value in rope.values()):
        require(
            bool(rope.get(FULL_ATTENTION)) and FULL_ATTENTION in (getattr(text, "layer_types", None) or ()),
            f"{name} has rotary positions in layers other than {FULL_ATTENTION}: {', '.join(sorted(rope))}",
            "a model with rotary positions in the layers that see the whole context",
        )
        layer_type, rope = FULL_ATTENTION, rope[FULL_ATTENTION]
    before, kind, factor = read_extension(text), rope.get("rope_type", "default"), rope.get("factor")
    done = f"{before.method} by {before.factor:g} from {before.original_length} tokens" if before else None
    if done is None and kind != "default":
        done = f"its rope_type is {kind}" + (f" by {factor:g}" if factor else "")
    if done is not None:
        raise UsageError(
            f"{name} is extended already: {done}",
            expected="a model with plain rotary positions (rope_type default)",
            fix="extend the original model, by the whole factor",
        )
    return layer_type, rope


def _original_length(text: Any, given: int | None, name: str) -> int:
    recorded = as_length(getattr(text, "max_position_embeddings", None))
    length = recorded if given is None else given
    if length is None:
        raise UsageError(
            f"the configuration of {name} has no max_position_embeddings",
            fix="give the original length",
        )
    require(
        2 <= length <= (recorded or length),
        f"original_length = {length} for {name}",
        f"2 to {recorded} tokens, the context in its configuration" if recorded else "2 tokens or more",
    )
    return length


def _recorded_frequencies(
    config: Any, device: Any = None, seq_len: int | None = None, layer_type: str | None = None
) -> tuple[Tensor, float]:
    """The frequencies of the recorded extension, through the interface of transformers."""
    extension = read_extension(config)
    assert extension is not None, config.rope_parameters
    frequencies, scaling = extension.inverse_frequencies()
    return frequencies.to(device), scaling


for _method in ROPE_METHODS:
    ROPE_INIT_FUNCTIONS[f"lengthwise_{_method}"] = _recorded_frequencies
