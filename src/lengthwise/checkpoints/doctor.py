"""What positions a model will really use, and what is wrong with them: `lengthwise doctor MODEL`, `check_rope`."""

from __future__ import annotations

import itertools
import operator
from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from lengthwise.checkpoints import position_limits
from lengthwise.checkpoints.attention_layers import scales_queries, sliding_layers
from lengthwise.checkpoints.extending import (
    adapter_extension,
    checkpoint_file,
    clex_modules,
    find_rotary,
    frequency_names,
)
from lengthwise.checkpoints.extension import read_extension
from lengthwise.checkpoints.head import Head, find_head
from lengthwise.checkpoints.hidden import is_peft_model, unwrap, whole_tensor
from lengthwise.checkpoints.loading import load_weights, model_skeleton
from lengthwise.checkpoints.position_limits import (
    as_length,
    described,
    max_positions,
    ropes,
    trained_length,
)
from lengthwise.checkpoints.resolve import quiet_transformers, read_config, read_tokenizer, resolve
from lengthwise.errors import LengthwiseError, UsageError
from lengthwise.files import read_json
from lengthwise.positions.recognition import recognised
from lengthwise.positions.rope import ntk_base, plain_frequencies

Fault = dict[str, str]
"""What is wrong: `fault` (its name), `problem` (with the values seen), `fix`."""

# Frequencies are powers in float32: two ways to compute them differ by some 1e-6.
_SAME, _ALIKE, _ROUNDED = 1e-5, 1e-4, 2**-7
_OURS = {"default": "plain", "linear": "pi", "dynamic": "dynamic_ntk"}
"""transformers' rope types that have another name in `positions`."""
_LENGTH = "original_max_position_embeddings"
_BY_KEY = {
    "rope_type": "scaling dropped",
    "rope_theta": "wrong base",
    "factor": "wrong factor",
    _LENGTH: "wrong original length",
}
"""Key of `rope_parameters` -> the fault that it has a wrong value."""
_FIXES = {"frequencies rounded": "load with from_pretrained(..., dtype=...), not model.to(dtype)"}
_REMAKE = (
    "set rope_parameters before from_pretrained, or make the module again: {path} = "
    "type({path})(config=model.config); if it comes out the same, its class ignores rope_parameters"
)


def check_rope(model: Any, *, adapter: str | None = None) -> dict[str, Any]:
    """Check that a model has the rotary positions that its configuration and its adapter ask for, in any trainer.

    Args:
        model: a causal LM of transformers, bare or wrapped, or what `load` gives. It is not changed.
        adapter: the folder or hub id that its PEFT adapter was loaded from; a `LoadedModel` knows it.

    Returns:
        In plain values: `positions` in words, `trained_length`, `position_table`, `sliding_window`, `notes` and more.

    Raises:
        LengthwiseError: something is wrong; the message names each fault and its fix.
    """
    if not isinstance(model, nn.Module):
        # A `LoadedModel`.
        model, adapter = model.model, adapter or model.adapter
    report = _report(model, adapter)
    raise_faults(report["faults"])
    return report


def raise_faults(faults: list[Fault]) -> None:
    """Raise LengthwiseError if there are any."""
    if faults:
        problem = "\n".join(f"{each['fault']}: {each['problem']}" for each in faults)
        raise LengthwiseError(problem, fix="\n     ".join(dict.fromkeys(each["fix"] for each in faults)))


def examine(name: str, *, adapter: str | None = None, config_only: bool = False) -> dict[str, Any]:
    """The report on a model that is named as for `load`, with its tokenizer and its output head; faults are in it.

    With `config_only` no weights are read, and nothing that goes wrong while they are loaded is seen.

    Raises:
        UsageError, MissingError: the model or its adapter cannot be loaded.
    """
    resolved = resolve(name)
    if config_only:
        if adapter is not None:
            raise UsageError("an adapter is checked in its model", fix="leave --config-only out")
        model, tokenizer = model_skeleton(read_config(resolved)), read_tokenizer(resolved)
        head = "not known without weights"
        with quiet_transformers():
            for parent, place, old in find_rotary(model):
                # On the meta device a module has no values.
                setattr(parent, place, type(old)(config=old.config))
    else:
        model, tokenizer, _ = load_weights(name, adapter=adapter)
        proof = find_head(model)
        head = "yes" if isinstance(proof, Head) else f"no, full logits: {proof.reason}"
    report, base = _report(model, adapter), unwrap(model)
    faults, notes = report.pop("faults"), report.pop("notes")
    # As they were written: transformers passes over keys in both.
    files = ("config.json", "tokenizer_config.json")
    found = [checkpoint_file(resolved.location, file, **resolved.where) for file in files]
    raw, declared = ({} if file is None else read_json(file, expected="settings") for file in found)
    text, bos = base.config.get_text_config(), tokenizer.bos_token_id
    added = 0 if bos is None else tokenizer("a").input_ids[:2].count(bos)
    if bos != text.bos_token_id:
        notes.append(f"the configuration's BOS token is {text.bos_token_id}, the tokenizer's is {bos}")
    if added > 1 or (declared.get("add_bos_token") and not added):
        problem = f"the tokenizer adds BOS {added} times to a text, and add_bos_token asks for one"
        faults.append(_fault("wrong BOS", problem, "repair the post-processor in tokenizer.json"))
    faults += _passed_over(raw.get("text_config") or raw, text, notes)
    names = ", ".join(dict.fromkeys(each["fault"] for each in faults))
    verdict = f"does not read positions as it should ({names})" if faults else "reads positions as configured"
    length = report["trained_length"]
    trained = f"trained for {length:,} tokens" if length else "trained length unknown"
    inputs, outputs = base.get_input_embeddings(), base.get_output_embeddings()
    return {
        "verdict": f"{name} {verdict}: {'; '.join(report['positions'])}, {trained}.",
        **report,
        "bos_token": tokenizer.bos_token,
        "bos_added": bool(added),
        "tied_head": outputs is not None and inputs.weight is outputs.weight,
        "fused_objective": head,
        "notes": notes,
        "faults": faults,
    }


def _report(model: Any, adapter: str | None) -> dict[str, Any]:
    base = unwrap(model)
    text: Any = base.config.get_text_config()
    sliding, notes = len(sliding_layers(base.config)), list[str]()
    for rope in ropes(text).values():
        length, longest = rope.get(_LENGTH) or 0, getattr(text, "max_position_embeddings", None)
        reached = length * (rope.get("factor") or 1)
        if rope.get("rope_type") == "yarn" and longest not in (length, reached):
            notes.append(f"{described(rope)} reaches {reached:,.0f}; max_position_embeddings = {longest}")
    if kind := position_limits.rope_by_input_length(text):
        notes.append(f"frequencies of {kind} depend on the length of the input; cached keys keep old ones")
    return {
        "positions": _positions(base, text),
        "rope_parameters": getattr(text, "rope_parameters", None) or None,
        "trained_length": trained_length(text),
        "position_table": max_positions(model),
        "sliding_window": f"{text.sliding_window:,} tokens in {sliding} layers" if sliding else None,
        "attn_implementation": text._attn_implementation,
        "adapter": adapter,
        "faults": _rope_faults(model) + _adapter_faults(model, adapter, notes),
        "notes": notes,
    }


def _positions(base: Any, text: Any) -> list[str]:
    """Where positions come from, in words for each type of layer."""
    if getattr(text, "alibi", False) or text.model_type in ("bloom", "mpt"):
        return ["ALiBi, a bias that grows with the distance"]
    found = {layer_type for _, _, layer_type in _rotaries(base)}
    types = Counter[str](getattr(text, "layer_types", None) or ())
    words = [
        described(rope) + (f", in {types[layer_type]} {layer_type} layers" if layer_type else "")
        for layer_type, rope in ropes(text).items()
        if layer_type in found
    ]
    without = sum(getattr(module, "use_rope", True) is False for module in base.modules())
    if words:
        return words + [f"none in {without} layers"] * (without > 0)
    table = max_positions(base)
    return [f"a table of {table:,} positions" if table else "none that doctor knows: no rope, table or ALiBi"]


def _adapter_faults(model: Any, adapter: str | None, notes: list[str]) -> list[Fault]:
    """Whether the weights of an adapter are in the model, and the extension that it was trained with."""
    name, load_it = "adapter not loaded", "lengthwise.load(BASE, adapter=...), with its own base"
    if not is_peft_model(model):
        none = _fault(name, f"the model has no adapter; {adapter} was given", load_it)
        return [] if adapter is None else [none]
    from peft import get_peft_model_state_dict
    from peft.utils import load_peft_weights

    own, faults = get_peft_model_state_dict(model), list[Fault]()
    if adapter is not None:
        saved = load_peft_weights(adapter, device="cpu")
        lost = [key for key, value in saved.items() if key not in own or (value.any() and not own[key].any())]
        if lost:
            problem = f"{len(lost)} of {len(saved)} tensors of {adapter} are not in the model, as {lost[0]}"
            faults.append(_fault(name, problem, load_it))
        wanted = adapter_extension(adapter)
        if wanted is not None and wanted != read_extension(unwrap(model).config):
            problem = f"{adapter} was trained on a model extended by {wanted.method}, {wanted.factor:g} times"
            faults.append(_fault(_BY_KEY["rope_type"], problem, load_it))
    idle = "every lora_B is zero: the adapter changes nothing"
    if any(value.any() for key, value in own.items() if "_B" in key or "lora_" not in key):
        return faults
    if adapter is None and not any(each.inference_mode for each in model.peft_config.values()):
        notes.append(f"{idle} yet")
        return faults
    return faults or [_fault(name, idle, "load weights that were trained")]


def _passed_over(raw: Mapping[str, Any], text: Any, notes: list[str]) -> list[Fault]:
    """Rope settings in config.json that transformers did not take: of two sections it reads one."""
    # Models with rope by type of layer read older files in ways of their own.
    rope, faults = ropes(text).get(None, {}), list[Fault]()
    given = {key: raw.get(key) for key in ("rope_theta", _LENGTH)} if rope else {}
    for section in ("rope_parameters", "rope_scaling") if rope else ():
        given |= {f"{section}.{key}": value for key, value in (raw.get(section) or {}).items()}
    for place, value in given.items():
        key = place.rpartition(".")[2].replace("rope_type", "type").replace("type", "rope_type")
        # A model's own name of a type ("su") is translated.
        translated = key == "rope_type" and (value == "default" or rope.get(key, "default") != "default")
        if value is None or translated or rope.get(key) == value or (place == _LENGTH and key not in rope):
            continue
        problem = f"config.json has {place} = {value}, and the model was made with {key} = {rope.get(key)}"
        fix = "have one section, rope_parameters, with every key (rope_type, rope_theta, ...), and no other"
        faults.append(_fault(_BY_KEY.get(key, f"wrong {key}"), problem, fix))
    if _LENGTH in rope and not any(value for place, value in given.items() if place.endswith(_LENGTH)):
        notes.append(f"{_LENGTH} is not in config.json: taken is max_position_embeddings, {rope[_LENGTH]:,}")
    return faults


def _rotaries(model: nn.Module) -> list[tuple[str, Any, str | None]]:
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


def _rope_faults(model: nn.Module) -> list[Fault]:
    """What of a model's rotary positions differs from its configuration, or from the record of its extension."""
    base = unwrap(model)
    text: Any = base.config.get_text_config()
    faults = []
    for path, module, layer_type in _rotaries(model):
        own = getattr(module, "config", text)
        # A part of a model may have a configuration of another class, with a rope of its own.
        config = text if isinstance(own, type(text)) else own
        if layer_type in ropes(config) and (found := _difference(module, layer_type, config)):
            problem = f"{path}.{found[1]}; the configuration says {described(ropes(config)[layer_type])}"
            fix = _FIXES.get(found[0], _REMAKE).replace("{path}", path)
            faults.append(_fault(found[0], problem, fix))
    for rope in ropes(text).values():
        factor = rope.get("factor") or 1
        if rope.get("rope_type", "default") == "default" and factor != 1:
            problem = f"rope_parameters have factor = {factor:g} and rope_type = default, which ignores it"
            fix = "name the method: rope_type = linear, yarn, ..."
            faults.append(_fault(_BY_KEY["rope_type"], problem, fix))
        if problem := position_limits.impossible(rope):
            faults.append(
                _fault("impossible settings", problem, "write the settings of the checkpoint's authors")
            )
    return faults + _unlike_its_record(base, text)


def _fault(name: str, problem: str, fix: str) -> Fault:
    return {"fault": name, "problem": problem, "fix": fix}


def _difference(module: Any, layer_type: str | None, config: Any) -> tuple[str, str] | None:
    """How the frequencies in a module differ from those of its configuration: the fault's name, and words for it."""
    rope, (name, scaling_name) = ropes(config)[layer_type], frequency_names(layer_type)
    kind = rope.get("rope_type", "default")
    tensor = whole_tensor(module, name, getattr(module, name).detach())
    states = _states(module, layer_type, config, len(tensor))
    expected, scaling = states[0]
    if tensor.is_meta or not bool((tensor.isfinite() & (tensor >= 0)).all() and tensor.any()):
        return "no frequencies", f"{name} has none in it (not filled after loading): {tensor.flatten()[:3]}"
    actual = tensor.cpu().double()
    if actual.shape != expected.shape:
        return "wrong number of frequencies", f"{name} has {len(actual)}, not {len(expected)}"
    runs_as = module.rope_type[layer_type] if layer_type else getattr(module, "rope_type", kind)
    if kind in ("dynamic", "longrope") and runs_as == "default":
        return _BY_KEY["rope_type"], f"rope_type is {runs_as}"
    if any(torch.allclose(actual, state, rtol=_SAME, atol=0) for state, _ in states):
        has = float(getattr(module, scaling_name, 1.0))
        what = "attention scaling lost" if has == 1 else "wrong attention scaling"
        right = any(abs(has - wanted) <= 1e-6 for _, wanted in states)
        return None if right else (what, f"{scaling_name} is {has:.6g}, not {scaling:.6g}")
    # A recurrent model may have no max_position_embeddings, and 4096 is then as good as any.
    longest = float(as_length(getattr(config, "max_position_embeddings", None)) or 4096)
    narrow = [dtype for dtype in (torch.bfloat16, torch.float16) if (actual.to(dtype) == actual).all()]
    near = [state for state, _ in states if torch.allclose(actual, state, rtol=_ROUNDED, atol=2**-24)]
    if narrow and near:
        off = f"{(actual - near[0]).abs().max() * longest:.2g} radians at position {longest:,.0f}"
        return "frequencies rounded", f"{name} was rounded to {narrow[0]}: angles are off by up to {off}"
    own, theta = _OURS.get(kind, kind.removeprefix("lengthwise_")), float(rope["rope_theta"])
    claimed = own, theta, float(rope.get("factor") or 1), float(as_length(rope.get(_LENGTH)) or longest)
    options = {**rope, **getattr(read_extension(config), "options", {})}
    if found := recognised(actual, claimed, longest, options, _ROUNDED if narrow else _ALIKE):
        method, theta, factor, length = found
        differ = itertools.compress(_BY_KEY.values(), map(operator.ne, found, claimed))
        scaled = {} if method == "plain" else {"rope_type": method, "factor": factor, _LENGTH: int(length)}
        words = f"{name} has the frequencies of {described({'rope_theta': theta, **scaled})}"
        if found == claimed:
            off = float(((actual - expected).abs() / expected.clamp(min=1e-30)).max())
            return "inexact frequencies", f"{name} is off by up to {off:.1g} of itself"
        return ", ".join(differ) if method in ("plain", own) else "another method", words
    worst = int(((actual - expected).abs() / expected.clamp(min=1e-30)).argmax())
    one = f"number {worst} is {actual[worst]:.6g}, not {expected[worst]:.6g}"
    return "unknown frequencies", f"{name} has frequencies of no known method: {one}"


def _states(module: Any, layer_type: str | None, config: Any, count: int) -> list[tuple[Tensor, float]]:
    """The frequencies and the scaling that the configuration describes, at first and after the last input."""
    rope, (name, _) = ropes(config)[layer_type], frequency_names(layer_type)
    kind, theta, alpha = rope.get("rope_type", "default"), rope["rope_theta"], rope.get("alpha")
    if kind not in ROPE_INIT_FUNCTIONS or alpha:
        # HunYuan's "dynamic" with alpha has one base for every input. The rotated width may be odd (GLM-4-MoE).
        base = ntk_base(theta, 2 * count, alpha) if alpha else theta
        return [(plain_frequencies(base, width), 1.0) for width in (2 * count, 2 * count - 1)]
    read = int(getattr(module, name.replace("inv_freq", "max_seq_len_cached"), 0))
    last = {"dynamic": read, "longrope": rope.get(_LENGTH, 0) + 1}.get(kind) or None
    made = [ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"), n, layer_type) for n in (None, last)]
    return [(frequencies.double(), float(scaling)) for frequencies, scaling in made]


def _unlike_its_record(base: Any, config: Any) -> list[Fault]:
    """What the record of lengthwise's own extension says and the model does not do."""
    extension = read_extension(config)
    if extension is None or extension.factor == 1:
        return []
    rope = ropes(config).get(extension.layer_type, {})
    wanted = extension.to_hf_config() or {"rope_type": extension.custom_rope_type}
    was = f"the model was extended ({extension.method} by {extension.factor:g}), and"
    for key, value in wanted.items():
        if rope.get(key) != value:
            problem = f"{was} {key} is {rope.get(key)}, not {value}"
            return [_fault(_BY_KEY.get(key, f"wrong {key}"), problem, f"write {wanted} into rope_parameters")]
    is_complete = {"clex": clex_modules, "eabf": scales_queries}.get(extension.method, lambda _: True)
    if is_complete(base):
        return []
    part = "it has no learned frequencies" if extension.method == "clex" else "no layer scales its queries"
    return [_fault(_BY_KEY["rope_type"], f"{was} {part}", "load it with lengthwise.load")]
