"""Whether a model's rotary positions are those of its configuration: its frequencies are recognised and compared."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from lengthwise.errors import UsageError
from lengthwise.models.attention_layers import scales_queries
from lengthwise.models.extending import clex_modules, frequency_names
from lengthwise.models.extension import read_extension
from lengthwise.models.hidden import unwrap, whole_tensor
from lengthwise.models.position_limits import rope_parameters
from lengthwise.positions import ROPE_METHODS, rope_method
from lengthwise.positions.rope import Rope, ntk_base, plain_frequencies

Fault = dict[str, str]
"""What is wrong: `fault` (its name), `problem` (with the values seen), `fix`."""

# Frequencies are powers in float32: two ways to compute them differ by some 1e-6.
_SAME, _ALIKE, _ROUNDED = 1e-5, 1e-4, 2**-7
_OURS = {"default": "plain", "linear": "pi", "dynamic": "dynamic_ntk"}
"""transformers' rope types that have another name in `positions`."""
_WRONG = ("another method", "wrong base", "wrong factor", "wrong original length")
BY_KEY = {
    "rope_type": "scaling dropped",
    **dict(zip(("rope_theta", "factor", "original_max_position_embeddings"), _WRONG[1:], strict=True)),
}
"""Key of `rope_parameters` -> the fault that it has a wrong value."""
# What a wrong setting is likely to be.
_BASES, _LENGTHS = (1e4, 5e5, 1e6), tuple(float(2**power) for power in range(8, 22))


def ropes(config: Any) -> dict[Any, dict[str, Any]]:
    """Rope parameters by type of layer, of the types that have any; None is the type of all layers."""
    rope = rope_parameters(config) or {}
    nested = {key: value for key, value in rope.items() if isinstance(value, dict)}
    return nested or ({None: rope} if rope else {})


def described(rope: Mapping[str, Any]) -> str:
    """Rope parameters in words: "yarn by 4 from 4,096 tokens, base 10,000"."""
    factor, length = rope.get("factor"), rope.get("original_max_position_embeddings")
    kind = rope.get("rope_type", "default").replace("default", "plain rope")
    scaled = (f" by {factor:g}" if factor else "") + (f" from {length:,} tokens" if length else "")
    return f"{kind}{scaled}, base {rope['rope_theta']:,.10g}"


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
    faults: list[Fault | None] = []
    for path, module, layer_type in rotaries(model):
        own = getattr(module, "config", text)
        # A part of a model may have a configuration of another class, with a rope of its own.
        config = text if isinstance(own, type(text)) else own
        if layer_type in ropes(config):
            faults.append(_compared(path, module, layer_type, config))
    for rope in ropes(text).values():
        if rope.get("rope_type", "default") == "default" and (rope.get("factor") or 1) != 1:
            problem = (
                f"rope_parameters have factor = {rope['factor']:g} and rope_type = default, which ignores it"
            )
            faults.append(fault("scaling dropped", problem, "name the method: rope_type = linear, yarn, ..."))
    return [each for each in (*faults, _unlike_its_record(base, text)) if each is not None]


def fault(name: str, problem: str, fix: str) -> Fault:
    """A fault by its name."""
    return {"fault": name, "problem": problem, "fix": fix}


def _compared(path: str, module: Any, layer_type: str | None, config: Any) -> Fault | None:
    """How the frequencies in a module differ from those of its configuration; None if they do not."""
    rope, (name, scaling_name) = ropes(config)[layer_type], frequency_names(layer_type)
    kind = rope.get("rope_type", "default")
    runs_as = module.rope_type[layer_type] if layer_type else getattr(module, "rope_type", kind)
    tensor = whole_tensor(module, name, getattr(module, name).detach())
    states = list(_states(module, layer_type, config, len(tensor)))
    expected, scaling = states[0]
    fix = (
        f"set rope_parameters before from_pretrained, or make the module again: {path} = "
        f"type({path})(config=model.config); if it comes out the same, its class ignores rope_parameters"
    )

    def found(what: str, words: str, fix: str = fix) -> Fault:
        return fault(what, f"{path}.{words}; the configuration says {described(rope)}", fix)

    if tensor.is_meta or not bool((tensor.isfinite() & (tensor >= 0)).all() and tensor.any()):
        return found(
            "no frequencies", f"{name} has none in it (not filled after loading): {tensor.flatten()[:3]}"
        )
    actual = tensor.cpu().double()
    if actual.shape != expected.shape:
        return found("wrong number of frequencies", f"{name} has {len(actual)}, not {len(expected)}")
    if kind in ("dynamic", "longrope") and runs_as != kind and not rope.get("alpha"):
        return found("scaling dropped", f"rope_type is {runs_as}")
    if any(_equal(actual, state, _SAME) for state, _ in states):
        has = float(getattr(module, scaling_name, 1.0))
        if any(abs(has - wanted) <= 1e-6 for _, wanted in states):
            return None
        what = "attention scaling lost" if has == 1 else "wrong attention scaling"
        return found(what, f"{scaling_name} is {has:.6g}, not {scaling:.6g}")
    narrow = [dtype for dtype in (torch.bfloat16, torch.float16) if (actual.to(dtype) == actual).all()]
    if narrow and (near := [state for state, _ in states if _equal(actual, state, _ROUNDED, 2**-24)]):
        length = _longest(config)
        off = f"angles at position {length:,} are off by up to {float((actual - near[0]).abs().max()) * length:.2g}"
        load = "load with from_pretrained(..., dtype=...), not model.to(dtype)"
        return found("frequencies rounded", f"{name} was rounded to {narrow[0]}: {off} radians", load)
    names, words = _recognised(actual, rope, config, _ROUNDED if narrow else _ALIKE)
    if not names:
        worst = int(((actual - expected).abs() / expected.clamp(min=1e-30)).argmax())
        words = f"frequencies of no known method: number {worst} is {actual[worst]:.6g}, not {expected[worst]:.6g}"
    return found(", ".join(names) or "unknown frequencies", f"{name} has {words}")


def _states(module: Any, layer_type: str | None, config: Any, count: int) -> Iterator[tuple[Tensor, float]]:
    """The frequencies and the scaling that the configuration describes, at first and after the last input."""
    rope = ropes(config)[layer_type]
    kind, theta, lengths = rope.get("rope_type", "default"), rope["rope_theta"], list[int | None]([None])
    if kind not in ROPE_INIT_FUNCTIONS or rope.get("alpha"):
        # HunYuan's "dynamic" with alpha has one base for every input. The rotated width may be odd (GLM-4-MoE).
        base = ntk_base(theta, 2 * count, rope["alpha"]) if rope.get("alpha") else theta
        yield from ((plain_frequencies(base, width), 1.0) for width in (2 * count, 2 * count - 1))
        return
    if kind == "dynamic":
        prefix = "" if layer_type is None else f"{layer_type}_"
        lengths.append(int(getattr(module, f"{prefix}max_seq_len_cached", 0)) or None)
    if kind == "longrope":
        lengths.append(rope["original_max_position_embeddings"] + 1)
    for length in lengths:
        frequencies, scaling = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"), length, layer_type)
        yield frequencies.double(), float(scaling)


def _recognised(
    actual: Tensor, rope: Mapping[str, Any], config: Any, tolerance: float
) -> tuple[list[str], str]:
    """Names for what differs from the configuration, and the frequencies in words; no names if they are unknown.

    Every method of `positions` is tried with the bases, factors and original lengths that the frequencies and the
    configuration suggest. The setting with the fewest changes that fits is the answer.
    """
    kind, d, longest = (
        rope.get("rope_type", "default"),
        2 * len(actual),
        float(_longest(config)),
    )
    own = str(_OURS.get(kind, kind.removeprefix("lengthwise_")))
    extension = read_extension(config) if kind.startswith("lengthwise_") else None
    theta, factor = float(rope["rope_theta"]), float(rope.get("factor") or 1)
    length = float(rope.get("original_max_position_embeddings") or longest)
    # Of plain frequencies by their range, of scaled ones by the fastest two, which most methods keep.
    slopes = [(actual[0] / actual[-1], d / max(d - 2, 1)), (actual[0] / actual[min(1, d // 2 - 1)], d / 2)]
    fitted = [float(ratio) ** power for ratio, power in slopes]
    ratio = float(plain_frequencies(theta, d)[-1] / actual[-1])
    # "linear by 1" is plain rope, which is the better name.
    methods = dict.fromkeys(("plain", own, *ROPE_METHODS))
    bases = dict.fromkeys((theta, *(float(f"{base:.3g}") for base in fitted), *fitted, *_BASES))
    factors = dict.fromkeys((factor, float(f"{ratio:.5g}"), longest / length))
    lengths = dict.fromkeys((length, longest, length * factor, length / factor, *_LENGTHS))
    claimed = (own, theta, factor, length)
    settings = [
        (method, b, s, n)
        for method, b, s, n in itertools.product(methods, bases, factors, lengths)
        if 1 < b < math.inf and 1 <= s < math.inf and n >= 2 and (method != "plain" or (s, n) == claimed[2:])
    ]
    for setting in sorted(settings, key=lambda one: sum(map(operator.ne, one, claimed))):
        method, b, s, n = setting
        options = {} if method != own else rope if extension is None else extension.options
        if any(_equal(actual, one, tolerance) for one in _formulas(method, options, Rope(b, d, int(n), s))):
            names = [name for name, has, says in zip(_WRONG, setting, claimed, strict=True) if has != says]
            if method != own:
                names = ["scaling dropped", *names[1:]] if method == "plain" else names[:1]
            scaled = "" if method == "plain" else f" by {s:g} from {n:,.0f} tokens"
            return (
                names,
                f"the frequencies of {method.replace('plain', 'plain rope')}{scaled}, base {b:,.10g}",
            )
    return [], ""


def _formulas(method: str, options: Mapping[str, Any], rope: Rope) -> list[Tensor]:
    """The frequencies of a method for inputs of the extended and of the original length; none without its options."""
    if method not in ROPE_METHODS:
        return [rope.frequencies()] if method == "plain" else []
    try:
        formula = rope_method(
            method, {key: options[key] for key in rope_method(method).keywords if key in options}
        )
        short = Rope(rope.theta, rope.head_dim, rope.original_length, rope.factor, rope.original_length)
        return [formula(each).frequencies for each in (rope, short)]
    except UsageError:
        return []


def _unlike_its_record(base: Any, config: Any) -> Fault | None:
    """What the record of lengthwise's own extension says and the model does not do."""
    extension = read_extension(config)
    rope = ropes(config).get(None if extension is None else extension.layer_type, {})
    if extension is None or extension.factor == 1:
        return None
    wanted = extension.to_hf_config() or {"rope_type": extension.custom_rope_type}
    wrong = next((key for key, value in wanted.items() if rope.get(key) != value), None)
    if wrong is not None:
        problem, fix = (
            f"{wrong} is {rope.get(wrong)}, not {wanted[wrong]}",
            f"write {wanted} into rope_parameters",
        )
    elif extension.method == "clex" and not clex_modules(base):
        problem, fix = "it has no learned frequencies", "load it with lengthwise.load"
    elif extension.method == "eabf" and not scales_queries(base):
        problem, fix = "no layer scales its queries", "load it with lengthwise.load"
    else:
        return None
    name = BY_KEY.get(wrong or "rope_type", f"wrong {wrong}")
    return fault(
        name, f"the model was extended ({extension.method} by {extension.factor:g}), and {problem}", fix
    )


def _longest(config: Any) -> int:
    """max_position_embeddings; a recurrent model may have none, and 4096 is then as good as any."""
    return getattr(config, "max_position_embeddings", None) or 4096


def _equal(actual: Tensor, expected: Tensor, relative: float, absolute: float = 0.0) -> bool:
    return actual.shape == expected.shape and torch.allclose(actual, expected, rtol=relative, atol=absolute)
