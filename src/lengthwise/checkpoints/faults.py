"""What is wrong with a model that loads without an error; which of it no verb passes over.

`doctor` names all of it. A verb that measures refuses what `REFUSED` has, and notes the rest beside its numbers.
"""

from __future__ import annotations

import inspect
from typing import Any

from lengthwise.checkpoints.hidden import is_peft_model, unwrap
from lengthwise.checkpoints.position_limits import RECORD, ropes, sliding_layers
from lengthwise.checkpoints.rope_check import BY_KEY, Fault, fault, rope_faults
from lengthwise.checkpoints.written_settings import file_faults, other_tokenizer, unread
from lengthwise.errors import UsageError, shown
from lengthwise.machine import is_split, whole

REFUSED = {
    "impossible settings": "no method of rope can mean them",
    "impossible window": "no token sees anything, itself included",
    "no frequencies": "positions are no numbers",
    "wrong number of frequencies": "some dimensions of a head would have no position",
    "adapter not loaded": "the numbers would be those of the base model",
    "extension not loaded": "the numbers would be those of another rope",
}
"""The faults with which nothing can be measured, and why. With the others a model is what transformers makes of it,
and a note says how that differs from what is written."""
_WINDOWS = ("sliding_window", "attention_chunk_size", "window_size")
_LARGEST_SCALE = 1000
"""By which an adapter is scaled that somebody trained: lora_alpha / r is 16 at most in recipes, and with rank 1."""


def remarks(model: Any, tokenizer: Any, *, source: str | None, adapter: str | None = None) -> list[str]:
    """What a reader of numbers has to know of a model: its faults, and settings that nothing reads.

    `source` is the folder, or the hub id and commit, that it was loaded from; None is not known. UsageError for what
    `REFUSED` has.
    """
    base, notes = unwrap(model), list[str]()
    faults = position_faults(model, adapter, notes)
    faults += file_faults(source, base.config.get_text_config(), tokenizer)
    for each in faults:
        if each["fault"] in REFUSED:
            raise UsageError(
                f"{base.name_or_path or type(base).__name__} has {each['fault']}: {each['problem']}",
                expected="settings and an adapter that can be obeyed; `lengthwise doctor` names all that is wrong",
                fix=each["fix"],
            )
    notes += [f"{each['problem']} ({each['fault']}). To change it: {each['fix']}." for each in faults]
    return (
        notes + unread(base, source, adapter) + constant_weights(base) + other_tokenizer(tokenizer, adapter)
    )


def position_faults(model: Any, adapter: str | None, notes: list[str]) -> list[Fault]:
    """How the modules of a model differ from its configuration, the record of its extension, and its adapter.

    What is no fault yet goes to `notes`.
    """
    base = unwrap(model)
    text: Any = base.config.get_text_config()
    return [
        *rope_faults(model),
        *_window_faults(text),
        *_unlike_its_record(base, text),
        *_adapter_faults(model, adapter, notes),
    ]


def constant_weights(base: Any) -> list[str]:
    """A sentence on matrices that hold one number alone: a hole in a file, or a layer that nothing trained."""
    found = [
        name
        for name, weight in base.named_parameters()
        # New parts of an adapter are zero; biases of experts are matrices.
        if weight.ndim > 1 and not weight.is_meta and not is_split(weight)
        if ".default" not in name and "bias" not in name
        if all(bool((part == part.flatten()[0]).all()) for part in (weight[0], weight) if part.numel() > 1)
    ]
    return (
        [f"Of the weights, {len(found)} hold one number alone: {shown(', '.join(found))}."] if found else []
    )


def _window_faults(text: Any) -> list[Fault]:
    """A window in which a token does not even see itself."""
    sizes = {
        name: getattr(text, name, None)
        for name in _WINDOWS
        if name in inspect.signature(type(text)).parameters
    }
    if not sliding_layers(text):
        sizes.pop("sliding_window", None)
    return [
        fault("impossible window", f"{name} is {size}: no token sees anything", "write null, or tokens")
        for name, size in sizes.items()
        if size is not None and size <= 0
    ]


def _unlike_its_record(base: Any, config: Any) -> list[Fault]:
    """What the record of lengthwise's own extension says and the model does not do."""
    if getattr(config, RECORD, None) is None:
        return []
    # Few models are extended.
    from lengthwise.checkpoints.attention_layers import scales_queries
    from lengthwise.checkpoints.clex_rotary import clex_modules
    from lengthwise.checkpoints.extension import read_extension

    extension = read_extension(config)
    if extension is None or extension.factor == 1:
        return []
    rope = ropes(config).get(extension.layer_type, {})
    wanted = extension.to_hf_config() or {"rope_type": extension.custom_rope_type}
    was = f"the model was extended ({extension.method} by {extension.factor:g}), and"
    for key, value in wanted.items():
        if rope.get(key) != value:
            problem = f"{was} {key} is {rope.get(key)}, not {value}"
            return [fault(BY_KEY.get(key, f"wrong {key}"), problem, f"write {wanted} into rope_parameters")]
    is_complete = {"clex": clex_modules, "eabf": scales_queries}.get(extension.method, lambda _: True)
    if is_complete(base):
        return []
    part = "it has no learned frequencies" if extension.method == "clex" else "no layer scales its queries"
    return [fault("extension not loaded", f"{was} {part}", "load it with lengthwise.load")]


def _adapter_faults(model: Any, adapter: str | None, notes: list[str]) -> list[Fault]:
    """Whether the weights of an adapter are in the model, and the extension that it was trained with."""
    name, load_it = "adapter not loaded", "lengthwise.load(BASE, adapter=...), with its own base"
    if not is_peft_model(model):
        none = fault(name, f"the model has no adapter; {adapter} was given", load_it)
        return [] if adapter is None else [none]
    from peft import get_peft_model_state_dict
    from peft.tuners.lora import LoraLayer
    from peft.utils import load_peft_weights

    from lengthwise.checkpoints.extending import adapter_extension, record_is_unknown
    from lengthwise.checkpoints.extension import read_extension

    own, faults = get_peft_model_state_dict(model), list[Fault]()
    if adapter is not None:
        saved = load_peft_weights(adapter, device="cpu")
        lost = [key for key, value in saved.items() if key not in own or (value.any() and not own[key].any())]
        if lost:
            problem = f"{len(lost)} of {len(saved)} tensors of {adapter} are not in the model, as {lost[0]}"
            faults.append(fault(name, problem, load_it))
        wanted = adapter_extension(adapter)
        if wanted is None and record_is_unknown(adapter):
            notes.append(
                f"Whether {adapter} was trained on an extended model is not known: its {RECORD}.json is not in the "
                "local hub cache, and the hub cannot be reached. The base model is used as it is."
            )
        if wanted is not None and wanted != read_extension(unwrap(model).config):
            problem = f"{adapter} was trained on a model extended by {wanted.method}, {wanted.factor:g} times"
            faults.append(fault(BY_KEY["rope_type"], problem, load_it))
    scales = [
        scale for each in model.modules() if isinstance(each, LoraLayer) for scale in each.scaling.values()
    ]
    changed = {key: bool(whole(value).any()) for key, value in own.items()}
    # Of LoRA's two matrices, which one file has each.
    idle = [
        key
        for key in own
        if "_B" in key and not (changed[key] and changed.get(key.replace("_B", "_A"), True))
    ]
    # What is beside a pair only scales it. UniLoRA has none.
    paired = any("_B" in key for key in own)
    beside = {key for key in own if paired and "lora_" in key and "_B" not in key}
    works = [key for key in own if changed[key] and key not in {*idle, *beside}]
    if scales and not any(scales):
        faults.append(fault("idle adapter", "lora_alpha is 0: the adapter changes nothing", "set lora_alpha"))
    elif odd := [scale for scale in scales if not 0 <= scale <= _LARGEST_SCALE]:
        problem = f"lora_alpha scales the adapter by {odd[0]:g}"
        faults.append(fault("odd scale", problem, "write the lora_alpha of its training"))
    elif not faults and not works:
        every = "every lora_B is zero (or lora_A): the adapter changes nothing"
        if adapter is None and not any(each.inference_mode for each in model.peft_config.values()):
            notes.append(f"{every} yet.")
        else:
            faults.append(fault("idle adapter", every, "load weights that were trained"))
    elif idle and adapter is not None:
        notes.append(
            f"{len(idle)} layers of the adapter change nothing: lora_B, or lora_A, is zero in {idle[0]}."
        )
    return faults
