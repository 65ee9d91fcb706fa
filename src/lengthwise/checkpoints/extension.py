"""Context extension in a model's configuration: planned, checked, written, and read again."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Annotated, Any

from annotated_types import Ge
from pydantic import Field
from torch import Tensor
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from lengthwise.checkpoints.position_limits import (
    LENGTH,
    RECORD,
    SLIDING,
    as_length,
    described,
    far_layers,
    lost_ropes,
    ropes,
    trained_length,
)
from lengthwise.errors import UsageError, reason, require, require_kind, shown
from lengthwise.positions import ROPE_METHODS, rope_method
from lengthwise.positions.rope import ADJUSTED_BASE, Rope, ScaledRope, ntk_base, yarn_scaling
from lengthwise.settings import Finite, Settings, Whole, checked
from lengthwise.versions import NEWER, need_newer

WHOLE = "a model with rotary positions in the layers that see the whole context"
"""What can be extended."""
# Positions beyond are no exact float64.
_LONGEST = 2**53
_CONTINUED = {"linear": "pi", "dynamic": "dynamic_ntk", "yarn": "yarn", "llama3": "llama3"}
"""The rope types of published models that are extended further, and the method that does it: a greater factor from
the same original length. Methods with a factor for each frequency, or without a formula, do not go on so."""
_REPLACED = ("rope_type", "type", "factor", "alpha", "attention_factor", "max_position_embeddings")
"""Keys of the old rope parameters that an extension replaces; what else is there stays, as mrope_section does."""


class Extension(Settings):
    """One extension of one model. Its values are plain, so a JSON round trip gives an equal object."""

    method: str
    """A name of ROPE_METHODS."""
    factor: Annotated[Finite, Ge(1)]
    """s: the context becomes this many times longer than L0."""
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
    published_factor: Finite = 1.0
    """The part of s by which the model was extended when it was published."""
    published_length: Whole | None = None
    """Its context then; None is L0."""

    @property
    def extended_length(self) -> int:
        """Tokens of context afterwards, as a whole number."""
        before = self.published_length or self.original_length
        return int(self.factor / self.published_factor * before)

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
        """The record, without what most models have none of."""
        return self.model_dump(exclude_defaults=True) | {"options": self.options}


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

    A model that was published with a longer context is extended from there, by its own method: the whole factor is
    the published one times `factor`, from the same original length and with the same options.

    Raises:
        MissingError: this transformers cannot give the method to one type of layers.
        UsageError: a wrong method, option, factor or original length; no rotary positions in the layers that see
            the whole context; a model that is extended already in a way that does not go on; a configuration whose
            class does not take the method.
    """
    require_kind("factor", factor, Real, "a number of at least 1")
    text = config.get_text_config()
    name = name or f"the {text.model_type} model"
    given = rope_method(method, options).keywords
    layer_type, rope = _full_attention_rope(text, name)
    # Gemma 4 has other heads in its full layers.
    of = text.per_layer_config[layer_type] if getattr(text, "is_heterogeneous", False) else text
    width = getattr(of, "head_dim", None) or of.hidden_size // of.num_attention_heads
    head_dim = int(width * rope.get("partial_rotary_factor", 1.0))
    require(
        head_dim % 2 == 0,
        f"{name} rotates {head_dim} dimensions of each head",
        "an even number of them",
    )
    theta, alpha = float(rope["rope_theta"]), rope.get("alpha")
    if alpha:
        # HunYuan's "dynamic" with alpha is plain rope of another base.
        theta = ntk_base(theta, head_dim, alpha)
    if alpha or rope.get("rope_type", "default") == "default":
        about = {"factor": float(factor), "original_length": _original_length(text, original_length, name)}
    else:
        about, given = _published(text, rope, method, factor=float(factor), options=options or {}, name=name)
        if original_length not in (None, about["original_length"]):
            raise UsageError(
                f"original_length = {original_length}: {name} is {described(rope)}", fix="leave it out"
            )
    extension = Extension(
        method=method,
        theta=theta,
        head_dim=head_dim,
        options={key: list(value) if isinstance(value, tuple) else value for key, value in given.items()},
        layer_type=layer_type,
        **about,
    )
    layered = f"{(extension.to_hf_config() or {}).get('rope_type')} in the layers of one type alone"
    if layer_type is not None and layered in NEWER:
        need_newer(layered)
    skipped, last = given.get("skip_layers", 0), max(extended_layers(text, extension), default=-1)
    require(
        last >= 0 and (factor == 1 or skipped <= last),
        f"skip_layers = {skipped} leaves none of the {text.num_hidden_layers} layers of {name}",
        f"0 to {last}",
    )
    far = layer_type is not None or far_layers(text, extension.original_length)
    require(bool(far), f"no layer of {name} sees more than a window or a chunk of its original length", WHOLE)
    # This also refuses options that do not fit the model (a list of the wrong length).
    frequencies, _ = extension.inverse_frequencies()
    require(
        given.get("theta", theta) is not None or factor == 1 or theta < ADJUSTED_BASE,
        f"the base of {method}, {ADJUSTED_BASE:.0f}, is not above that of {name}, {theta:.0f}",
        "the option theta, with a larger base",
    )
    # As a float: an infinite length is no whole number of tokens.
    longest = extension.factor * extension.original_length
    require(
        bool(frequencies.isfinite().all() and (frequencies > 0).all()) and longest < _LONGEST,
        f"factor = {extension.factor:g} with {method} and the options {shown(given)} overflows",
        "frequencies that are positive and finite: a smaller factor, or other options",
    )
    _check_taken(config, extension, name)
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
    kept = {key: value for key, value in before.items() if key not in _REPLACED}
    custom = {
        "rope_type": extension.custom_rope_type,
        "rope_theta": extension.theta,
        "factor": extension.factor,
        LENGTH: extension.original_length,
    }
    rope = kept | (extension.to_hf_config() or custom)
    # transformers would read keys beside the types of layers in place of each type's own.
    types = {key: value for key, value in text.rope_parameters.items() if isinstance(value, Mapping)}
    text.rope_parameters = rope if layer_type is None else types | {layer_type: rope}
    # transformers' dynamic type reads L0 from max_position_embeddings.
    dynamic = rope["rope_type"] == "dynamic"
    text.max_position_embeddings = extension.original_length if dynamic else extension.extended_length
    if hasattr(text, LENGTH):
        # transformers prefers this key, where a configuration has it (Phi-3), to the one in rope_parameters.
        setattr(text, LENGTH, extension.original_length)
    if vars(text).get("head_dim", 0) is None:
        # transformers' formulas take the None of Mixtral for a width, where its class takes this.
        text.head_dim = text.hidden_size // text.num_attention_heads
    setattr(text, RECORD, extension.to_dict())


def extended_layers(config: Any, extension: Extension) -> list[int]:
    """Indices of the layers that an extension changes."""
    text = config.get_text_config()
    wanted = extension.layer_type
    layers = range(text.num_hidden_layers)
    return [layer for layer in layers if wanted is None or text.layer_types[layer] == wanted]


def _full_attention_rope(text: Any, name: str) -> tuple[str | None, dict[str, Any]]:
    """The type of the layers to extend (None: all) and their rope parameters; UsageError if there are none."""
    by_type, layer_type = ropes(text), None
    if not by_type:
        raise UsageError(
            f"{name} has no rotary positions that can be extended ({text.model_type} has no rope_parameters)",
            expected="a model with rotary positions, such as a Llama, Qwen or Mistral",
        )
    if None not in by_type:
        rotated = {each for each in getattr(text, "layer_types", None) or () if by_type.get(each)}
        layer_type = next((each for each in SLIDING.values() if each in rotated), None)
        require(
            layer_type is not None,
            f"{name} has rotary positions in layers of {', '.join(sorted(rotated or by_type))} alone",
            WHOLE,
        )
        if lost := lost_ropes(text):
            raise UsageError(
                f"{name} has {shown(lost)} beside the rope of its types of layers, and no layer has them",
                expected="rope_parameters with a section for each type of layer, and nothing else",
                fix="write them into the section of each type of layer",
            )
    if (before := read_extension(text)) is not None:
        raise UsageError(
            f"{name} is extended already: {before.method} by {before.factor:g} from {before.original_length} tokens",
            expected="a model as it was published",
            fix="extend the original model, by the whole factor",
        )
    return layer_type, by_type[layer_type]


def _published(
    text: Any, rope: Mapping[str, Any], method: str, *, factor: float, options: Mapping[str, Any], name: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The factors and lengths of an extension of a model that was published with one, and its options."""
    kind = rope["rope_type"]
    own = _CONTINUED.get(kind)
    done = f"{name} {'is extended already' if own or kind == 'longrope' else 'has no plain rope'}: {described(rope)}"
    if own != method:
        expected = f"plain rope, or a type that a greater factor continues: {', '.join(_CONTINUED)}"
        if own:
            expected = f"method {own}, which its published extension has"
        raise UsageError(done, expected=expected, fix="extend the original model, by the whole factor")
    length, context = trained_length(text), text.max_position_embeddings
    assert length is not None
    published = float(rope.get("factor") or context / length)
    there = {key: rope[key] for key in rope_method(method).keywords if rope.get(key) is not None}
    if method == "yarn":
        there["attention_factor"] = _temperature(rope, published, factor * published, name)
    there = rope_method(method, there).keywords
    if changed := {key: value for key, value in options.items() if there[key] != value}:
        raise UsageError(done, expected=f"its own options, not {shown(changed)}", fix="leave them out")
    about = {"factor": factor * published, "original_length": length}
    return about | {"published_factor": published, "published_length": context}, there


def _temperature(rope: Mapping[str, Any], published: float, whole: float, name: str) -> float | None:
    """YaRN's factor on cos and sin at the whole factor, as it follows from the published one; None is its formula."""
    given, mscale, all_dim = (rope.get(key) for key in ("attention_factor", "mscale", "mscale_all_dim"))
    if given is None and mscale and all_dim:
        return yarn_scaling(whole, mscale) / yarn_scaling(whole, all_dim)
    if given in (None, 1):
        return given
    require(
        abs(given - yarn_scaling(published)) < 1e-3,
        f"{name} has attention_factor = {given} with YaRN by {published:g}: none follows for a greater factor",
        f"1, or {yarn_scaling(published):.6g} by its formula",
    )
    return None


def _check_taken(config: Any, extension: Extension, name: str) -> None:
    """Raise UsageError unless the class of the configuration takes what is written into it, and reads it again."""
    written = copy.deepcopy(config)
    write_extension(written, extension)
    wanted = written.get_text_config().rope_parameters
    try:
        found = type(written).from_dict(written.to_dict()).get_text_config().rope_parameters
        problem = None if found == wanted else f"it makes {shown(found)} of it"
    # Of a class that checks its settings.
    except Exception as error:
        problem = reason(error)
    if problem is not None:
        raise UsageError(
            f"{type(written.get_text_config()).__name__} of {name} does not take {extension.method}: {problem}",
            expected="a method that its configuration can say, as ntk and abf are by every one",
        )


def _original_length(text: Any, given: int | None, name: str) -> int:
    recorded = as_length(getattr(text, "max_position_embeddings", None))
    length = recorded if given is None else given
    if length is None:
        raise UsageError(
            f"the configuration of {name} has no max_position_embeddings",
            fix="give the original length",
        )
    require(
        isinstance(length, Integral) and 2 <= length <= (recorded or length),
        f"original_length = {length} for {name}",
        f"2 to {recorded} tokens, the context in its configuration" if recorded else "2 tokens or more",
    )
    return length


def _recorded_frequencies(
    config: Any, device: Any = None, seq_len: int | None = None, layer_type: str | None = None
) -> tuple[Tensor, float]:
    """The frequencies of the recorded extension, through the interface of transformers."""
    extension, kind = read_extension(config), ropes(config)[layer_type]["rope_type"]
    if extension is None or extension.custom_rope_type != kind:
        raise UsageError(f"rope_type is {kind}, and {RECORD} is no record of it")
    frequencies, scaling = extension.inverse_frequencies()
    return frequencies.to(device), scaling


for _method in ROPE_METHODS:
    ROPE_INIT_FUNCTIONS[f"lengthwise_{_method}"] = _recorded_frequencies
