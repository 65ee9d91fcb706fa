"""Whether the rotary modules of a model have the frequencies that its configuration describes."""

from __future__ import annotations

import inspect
import itertools
import math
import operator
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from lengthwise.checkpoints.hidden import unwrap
from lengthwise.checkpoints.position_limits import (
    LENGTH,
    as_length,
    described,
    fixed_alpha,
    frequency_names,
    impossible,
    lost_ropes,
    ropes,
    trained_length,
)
from lengthwise.errors import UsageError, shown
from lengthwise.machine import whole_tensor

Setting = tuple[str, float, float, float]
"""A rope method ("plain": none), its base, factor and original length."""

Fault = dict[str, str]
"""What is wrong: `fault` (its name), `problem` (with the values seen), `fix`."""

# Frequencies are powers in float32: two ways to compute them differ by some 1e-6.
_SAME, _ALIKE, _ROUNDED = 1e-5, 1e-4, 2**-7
_OURS = {"default": "plain", "linear": "pi", "dynamic": "dynamic_ntk"}
"""transformers' rope types that have another name in `positions`."""
BY_KEY = {
    "rope_type": "scaling dropped",
    "rope_theta": "wrong base",
    "factor": "wrong factor",
    LENGTH: "wrong original length",
}
"""Key of `rope_parameters` -> the fault that it has a wrong value."""
_FIXES = {"frequencies rounded": "load with from_pretrained(..., dtype=...), not model.to(dtype)"}
_REMAKE = (
    "set rope_parameters before from_pretrained, or make the module again: {path} = "
    "type({path})(config=model.config); if it comes out the same, its class ignores rope_parameters"
)


def rotaries(model: nn.Module) -> list[tuple[str, Any, str | None]]:
    """Path, module and type of layer of every set of rotary frequencies of the text model."""
    base = unwrap(model)
    found = [
        (f"model.{path}", module, layer_type)
        for path, module in base.named_modules()
        for kind in [getattr(module, "rope_type", None)]
        for layer_type in (kind if isinstance(kind, dict) else [None])
        if isinstance(getattr(module, frequency_names(layer_type)[0], None), Tensor)
    ]
    inside = set(base.get_decoder().modules())
    # Not those of a vision tower. (What transformers calls the decoder of ModernBERT is its head.)
    return [each for each in found if each[1] in inside] or found


def rope_faults(model: nn.Module) -> list[Fault]:
    """What of a model's rotary positions differs from its configuration, or from the record of its extension."""
    base = unwrap(model)
    text: Any = base.config.get_text_config()
    faults, found_types = [], {layer_type for _, _, layer_type in rotaries(model)}
    if found_types and ropes(text) and found_types.isdisjoint(ropes(text)):
        described_of = ", ".join(str(each) for each in ropes(text))
        problem = (
            f"rope_parameters are for layers of {described_of}; {type(base).__name__} has one rope for all"
        )
        faults.append(
            fault(BY_KEY["rope_type"], problem, "write one section of rope_parameters, without types")
        )
    elif lost := lost_ropes(text):
        problem = f"rope_parameters have {shown(lost)} beside the types of layers, and no layer has them"
        faults.append(
            fault(BY_KEY["rope_type"], problem, "write them into the section of each type of layer")
        )
    for rope in ropes(text).values():
        if problem := impossible(rope):
            # Nothing can be compared with them.
            return [fault("impossible settings", problem, "write the settings of the checkpoint's authors")]
        if inner := [key for key, value in rope.items() if isinstance(value, Mapping)]:
            problem = (
                f"a section of rope_parameters has sections of its own, which no code reads: {shown(inner)}"
            )
            fix = "write them into rope_parameters, one for each type of layer"
            faults.append(fault(BY_KEY["rope_type"], problem, fix))
        factor = rope.get("factor") or 1
        if rope.get("rope_type", "default") == "default" and factor != 1:
            problem = f"rope_parameters have factor = {factor:g} and rope_type = default, which ignores it"
            fix = "name the method: rope_type = linear, yarn, ..."
            faults.append(fault(BY_KEY["rope_type"], problem, fix))
        length, read = trained_length(text), as_length(getattr(text, "max_position_embeddings", None))
        if rope.get("rope_type") == "dynamic" and length != read and not fixed_alpha(text, rope):
            problem = (
                f"the original length is {length}, and dynamic begins at max_position_embeddings, {read}"
            )
            fix = "write the original length as max_position_embeddings"
            faults.append(fault(BY_KEY[LENGTH], problem, fix))
    for path, module, layer_type in rotaries(model):
        own = getattr(module, "config", text)
        # A part of a model may have a configuration of another class, with a rope of its own.
        config = text if isinstance(own, type(text)) else own
        if layer_type in ropes(config) and (found := _difference(module, layer_type, config)):
            problem = f"{path}.{found[1]}; the configuration says {described(ropes(config)[layer_type])}"
            fix = _FIXES.get(found[0], _REMAKE).replace("{path}", path)
            faults.append(fault(found[0], problem, fix))
    return faults


def fault(name: str, problem: str, fix: str) -> Fault:
    """One thing that is wrong."""
    return {"fault": name, "problem": problem, "fix": fix}


def _difference(module: Any, layer_type: str | None, config: Any) -> tuple[str, str] | None:
    """How the frequencies in a module differ from those of its configuration: the fault's name, and words for it."""
    rope, (name, scaling_name) = ropes(config)[layer_type], frequency_names(layer_type)
    kind = rope.get("rope_type", "default")
    tensor = whole_tensor(module, name, getattr(module, name).detach())
    states = _states(module, layer_type, config, len(tensor))
    expected, scaling = states[0]
    if not tensor.is_meta and not tensor.any():
        return "frequencies of zero", f"{name} has zeros alone (not filled after loading, or rope taken out)"
    if tensor.is_meta or not bool((tensor.isfinite() & (tensor >= 0)).all()):
        return "no frequencies", f"{name} has none in it (not filled after loading): {tensor.flatten()[:3]}"
    actual = tensor.cpu().double()
    if actual.shape != expected.shape:
        return "wrong number of frequencies", f"{name} has {len(actual)}, not {len(expected)}"
    runs_as = module.rope_type[layer_type] if layer_type else getattr(module, "rope_type", kind)
    if kind in ("dynamic", "longrope") and runs_as == "default":
        return BY_KEY["rope_type"], f"rope_type is {runs_as}"
    if any(torch.allclose(actual, state, rtol=_SAME, atol=0) for state, _ in states):
        has = float(getattr(module, scaling_name, 1.0))
        what = "attention scaling lost" if has == 1 else "wrong attention scaling"
        right = any(abs(has - wanted) <= 1e-6 for _, wanted in states)
        return _other_buffer(module) if right else (what, f"{scaling_name} is {has:.6g}, not {scaling:.6g}")
    # A recurrent model may have no max_position_embeddings, and 4096 is then as good as any.
    longest = float(as_length(getattr(config, "max_position_embeddings", None)) or 4096)
    narrow = [dtype for dtype in (torch.bfloat16, torch.float16) if (actual.to(dtype) == actual).all()]
    near = [state for state, _ in states if alike_in_16_bits(actual, state)]
    if narrow and near:
        off = f"{(actual - near[0]).abs().max() * longest:.2g} radians at position {longest:,.0f}"
        return "frequencies rounded", f"{name} was rounded to {narrow[0]}: angles are off by up to {off}"
    # Few models are at fault.
    from lengthwise.checkpoints.extension import read_extension

    own, theta = _OURS.get(kind, kind.removeprefix("lengthwise_")), float(rope["rope_theta"])
    claimed = own, theta, float(rope.get("factor") or 1), float(as_length(rope.get(LENGTH)) or longest)
    options = {**rope, **getattr(read_extension(config), "options", {})}
    if found := _recognised(actual, claimed, longest, options, _ROUNDED if narrow else _ALIKE):
        method, theta, factor, length = found
        differ = itertools.compress(BY_KEY.values(), map(operator.ne, found, claimed))
        scaled = {} if method == "plain" else {"rope_type": method, "factor": factor, LENGTH: int(length)}
        words = f"{name} has the frequencies of {described({'rope_theta': theta, **scaled})}"
        if found == claimed:
            off = float(((actual - expected).abs() / expected.clamp(min=1e-30)).max())
            return "inexact frequencies", f"{name} is off by up to {off:.1g} of itself"
        return ", ".join(differ) if method in ("plain", own) else "another method", words
    worst = int(((actual - expected).abs() / expected.clamp(min=1e-30)).argmax())
    one = f"number {worst} is {actual[worst]:.6g}, not {expected[worst]:.6g}"
    return "unknown frequencies", f"{name} has frequencies of no known method: {one}"


def _recognised(
    actual: Tensor, claimed: Setting, longest: float, options: Mapping[str, Any], tolerance: float
) -> Setting | None:
    """The setting with the fewest changes of what is claimed that gives these frequencies; None if none does.

    Every method is tried with the bases, factors and original lengths that the frequencies, the claim, its
    `options` and the `longest` context suggest.
    """
    from lengthwise.positions import ROPE_METHODS
    from lengthwise.positions.rope import Rope, plain_frequencies

    own, theta, factor, length = claimed
    d = 2 * len(actual)
    # Of plain frequencies by their range, of scaled ones by the fastest two, which most methods keep.
    slopes = [(actual[0] / actual[-1], d / max(d - 2, 1)), (actual[0] / actual[min(1, d // 2 - 1)], d / 2)]
    fitted = [float(ratio) ** power for ratio, power in slopes]
    ratio = float(plain_frequencies(theta, d)[-1] / actual[-1])
    # "linear by 1" is plain rope, which is the better name.
    methods = ("plain", own, *ROPE_METHODS)
    bases = (theta, *(float(f"{base:.3g}") for base in fitted), *fitted, 1e4, 5e5, 1e6)
    factors = (factor, float(f"{ratio:.5g}"), longest / length)
    lengths = (length, longest, length * factor, length / factor, *(2.0**power for power in range(8, 22)))
    settings = dict.fromkeys(itertools.product(methods, bases, factors, lengths))
    for setting in sorted(settings, key=lambda one: sum(map(operator.ne, one, claimed))):
        method, b, s, n = setting
        formulas = _formulas(method, options if method == own else {}, Rope(b, d, int(n), s))
        if any(torch.allclose(actual, one, rtol=tolerance, atol=0) for one in formulas):
            return setting
    return None


def _formulas(method: str, options: Mapping[str, Any], rope: Any) -> list[Tensor]:
    """The frequencies of a method for inputs of the extended and the original length; none where it has none."""
    if not (1 < rope.theta < math.inf and 1 <= rope.factor < math.inf and rope.original_length >= 2):
        return []
    if method == "plain":
        return [rope.frequencies()]
    from lengthwise.positions import rope_method

    try:
        given = {key: options[key] for key in rope_method(method).keywords if key in options}
        formula = rope_method(method, given)
        return [formula(each).frequencies for each in (rope, replace(rope, length=rope.original_length))]
    except UsageError:
        return []


def _other_buffer(module: Any) -> tuple[str, str] | None:
    """A buffer that differs from a new module's: kept frequencies are those in use after another input."""
    new = dict(type(module)(config=module.config).named_buffers(recurse=False))
    for name, buffer in module.named_buffers(recurse=False):
        wanted, has = new.get(name), buffer.detach().cpu()
        if name.endswith("inv_freq") and not name.endswith("original_inv_freq"):
            # Compared, or made from the input.
            continue
        if wanted is None or wanted.is_meta or wanted.shape != has.shape:
            continue
        if not torch.allclose(has.double(), wanted.double(), rtol=_SAME, atol=0):
            worst = int((has.double() - wanted.double()).abs().argmax())
            return (
                "wrong buffer",
                f"{name} has {has.flatten()[worst]:.6g} where a new module has {wanted.flatten()[worst]:.6g}",
            )
    return None


def _states(module: Any, layer_type: str | None, config: Any, count: int) -> list[tuple[Tensor, float]]:
    """The frequencies and the scaling that the configuration describes, at first and after the last input."""
    rope, (name, _) = ropes(config)[layer_type], frequency_names(layer_type)
    kind, theta, alpha = rope.get("rope_type", "default"), rope["rope_theta"], fixed_alpha(config, rope)
    if kind not in ROPE_INIT_FUNCTIONS or alpha:
        base = theta
        if alpha:
            from lengthwise.positions.rope import ntk_base

            base = ntk_base(theta, 2 * count, alpha)
        return [(each, 1.0) for each in plain_ways(base, count)]
    read = int(getattr(module, name.replace("inv_freq", "max_seq_len_cached"), 0))
    last = {"dynamic": read, "longrope": rope.get(LENGTH, 0) + 1}.get(kind) or None
    made = [ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"), n, layer_type) for n in (None, last)]
    return [(frequencies.double(), float(scaling)) for frequencies, scaling in made]


def plain_ways(theta: float, count: int) -> list[Tensor]:
    """So many plain frequencies, theta^(-2i / d), of an even width d and of an odd one, which GLM-4-MoE has."""
    # `plain_frequencies` in one line: a plain model is measured without `lengthwise.positions`.
    powers = (torch.arange(0, width, 2).double() / width for width in (2 * count, 2 * count - 1))
    return [theta**-power for power in powers]


def alike_in_16_bits(one: Tensor, other: Tensor) -> bool:
    """Whether frequencies differ by no more than rounding to 16 bits."""
    return torch.allclose(one.double(), other.double(), rtol=_ROUNDED, atol=2**-24)


def unread_keys(base: Any) -> list[str]:
    """The keys of `rope_parameters`, with their values, that no code of transformers reads for this model.

    Code reads a key by its name in quotes: the function of the rope type, or the file of the model's class.
    """
    text = base.config.get_text_config()
    known = {
        "rope_type",
        "type",
        "rope_theta",
        LENGTH,
        *(getattr(text, "ignore_keys_at_rope_validation", None) or ()),
    }
    # transformers puts it there for every class, and names it among these.
    known.discard("partial_rotary_factor")
    own, found = inspect.getsource(inspect.getmodule(type(base)) or type(base)), list[str]()
    for layers, rope in ropes(text).items():
        kind = rope.get("rope_type", "default")
        if kind.startswith("lengthwise_"):
            continue
        method = inspect.getsource(ROPE_INIT_FUNCTIONS[kind]) if kind in ROPE_INIT_FUNCTIONS else ""
        found += [
            f"{key} = {value}"
            for key, value in rope.items()
            if key not in known
            and (key, value) != ("partial_rotary_factor", 1)
            and f'"{key}"' not in own
            and (
                f'"{key}"' not in method
                or _overruled(key, rope)
                # YaRN of transformers 5.23 looks for truncate, which is true by default, beside the types of layers.
                or (layers is not None and not value and f'config.rope_parameters.get("{key}"' in method)
            )
        ]
    return list(dict.fromkeys(found))


def _overruled(key: str, rope: Mapping[str, Any]) -> bool:
    """YaRN reads mscale and mscale_all_dim together, and where no attention_factor is given."""
    pair = ("mscale", "mscale_all_dim")
    return key in pair and not (all(rope.get(each) for each in pair) and rope.get("attention_factor") is None)
