"""What is wrong with a model that loads without an error; which of it no verb passes over.

`doctor` names all of it. A verb that measures refuses what `REFUSED` has, and notes the rest beside its numbers.
"""

from __future__ import annotations

import difflib
import inspect
import re
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from transformers import PreTrainedConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from lengthwise.checkpoints.hidden import is_peft_model, unwrap
from lengthwise.checkpoints.position_limits import LENGTH, RECORD, ropes, sliding_layers
from lengthwise.checkpoints.resolve import checkpoint_file
from lengthwise.checkpoints.rope_check import BY_KEY, Fault, fault, rope_faults, unread_keys
from lengthwise.errors import UsageError, shown
from lengthwise.files import read_json
from lengthwise.machine import whole
from lengthwise.text.tokens import added_tokens

REFUSED = {
    "impossible settings": "no method of rope can mean them",
    "impossible window": "no token sees anything, itself included",
    "no frequencies": "positions are no numbers",
    "wrong number of frequencies": "some dimensions of a head would have no position",
    "adapter not loaded": "the numbers would be those of the base model",
}
"""The faults with which nothing can be measured, and why. With the others a model is what transformers makes of it,
and a note says how that differs from what is written."""
_OF_POSITIONS = "rope|rotary|theta|window|position|yarn|context"
_WINDOWS = ("sliding_window", "attention_chunk_size", "window_size")
_CLOSE = 0.85
"""From which likeness on (difflib's ratio) an unread key is taken for a misspelt one."""


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
    return notes + unread(base, source, adapter)


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


def file_faults(source: str | None, text: Any, tokenizer: Any) -> list[Fault]:
    """How a configuration and a tokenizer differ from their files, where transformers passed over a key."""
    raw, declared = settings_of(source, "config.json"), settings_of(source, "tokenizer_config.json")
    before, _ = added_tokens(tokenizer)
    faults, added = _passed_over(raw, text), before.count(tokenizer.bos_token_id)
    if added > 1 or (declared.get("add_bos_token") and not added):
        problem = f"the tokenizer adds BOS {added} times to a text, and add_bos_token asks for one"
        faults.append(fault("wrong BOS", problem, "repair the post-processor in tokenizer.json"))
    return faults


def settings_of(source: str | None, file: str) -> dict[str, Any]:
    """What a file of a model says of its text part, as it is written: transformers passes over keys."""
    if source is None:
        return {}
    location, _, revision = source.rpartition("@")
    if not location or Path(source).exists():
        location, revision = source, "main"
    found = checkpoint_file(location, file, revision=revision, local_files_only=True)
    raw = {} if found is None else read_json(found, expected="settings")
    return raw.get("text_config") or raw


def unread(base: Any, source: str | None, adapter: str | None) -> list[str]:
    """Sentences on settings that are written and that no code reads."""
    name, found = type(base).__name__, list[str]()
    if keys := unread_keys(base):
        found.append(f"{name} does not read, and so without effect are: {', '.join(keys)}.")
    text: Any = base.config.get_text_config()
    homes = {each.__module__ for each in (*type(text).__mro__, *type(base).__mro__)}
    homes = {each for each in homes if each.startswith("transformers.models.")}
    homes |= {PreTrainedConfig.__module__, ROPE_INIT_FUNCTIONS["yarn"].__module__}
    words = {word for home in homes for word in re.findall(r"\w+", inspect.getsource(sys.modules[home]))}
    fields = {*inspect.signature(type(text)).parameters, "rope_theta", "rope_scaling", LENGTH}
    raw = settings_of(source, "config.json")
    found += _unknown(raw, fields, words, _OF_POSITIONS, f"config.json has {{}}, which {name} does not read")
    if raw := settings_of(adapter, "adapter_config.json"):
        from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING

        fields = {*inspect.signature(PEFT_TYPE_TO_CONFIG_MAPPING[raw["peft_type"]]).parameters}
        found += _unknown(raw, fields, set(), "", "adapter_config.json has {}, which PEFT does not read")
    return found


def _unknown(
    raw: Mapping[str, Any], fields: Collection[str], words: Collection[str], about: str, problem: str
) -> list[str]:
    """Sentences on keys that no field nor word of the code is like: misspelt ones, and those `about` something.

    Old files have many keys that never did anything.
    """
    found = list[str]()
    for key, value in raw.items():
        if key in fields or key in words:
            continue
        said = problem.format(f"{key} = {shown(value)}")
        if near := difflib.get_close_matches(key, fields, n=1, cutoff=_CLOSE):
            found.append(f"{said}. Did you mean {near[0]}?")
        elif value and re.search(about, key):
            found.append(f"{said}.")
    return found


def _window_faults(text: Any) -> list[Fault]:
    """A window in which a token does not even see itself."""
    sizes = {name: getattr(text, name, None) for name in _WINDOWS}
    if not sliding_layers(text):
        del sizes["sliding_window"]
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
    from lengthwise.checkpoints.extending import clex_modules
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
    return [fault(BY_KEY["rope_type"], f"{was} {part}", "load it with lengthwise.load")]


def _adapter_faults(model: Any, adapter: str | None, notes: list[str]) -> list[Fault]:
    """Whether the weights of an adapter are in the model, and the extension that it was trained with."""
    name, load_it = "adapter not loaded", "lengthwise.load(BASE, adapter=...), with its own base"
    if not is_peft_model(model):
        none = fault(name, f"the model has no adapter; {adapter} was given", load_it)
        return [] if adapter is None else [none]
    from peft import get_peft_model_state_dict
    from peft.tuners.lora import LoraLayer
    from peft.utils import load_peft_weights

    from lengthwise.checkpoints.extending import adapter_extension
    from lengthwise.checkpoints.extension import read_extension

    own, faults = get_peft_model_state_dict(model), list[Fault]()
    if adapter is not None:
        saved = load_peft_weights(adapter, device="cpu")
        lost = [key for key, value in saved.items() if key not in own or (value.any() and not own[key].any())]
        if lost:
            problem = f"{len(lost)} of {len(saved)} tensors of {adapter} are not in the model, as {lost[0]}"
            faults.append(fault(name, problem, load_it))
        wanted = adapter_extension(adapter)
        if wanted is not None and wanted != read_extension(unwrap(model).config):
            problem = f"{adapter} was trained on a model extended by {wanted.method}, {wanted.factor:g} times"
            faults.append(fault(BY_KEY["rope_type"], problem, load_it))
    weak = [layer for layer in model.modules() if isinstance(layer, LoraLayer)]
    changed = [value for key, value in own.items() if "_B" in key or "lora_" not in key]
    if weak and not any(scale for layer in weak for scale in layer.scaling.values()):
        faults.append(fault("idle adapter", "lora_alpha is 0: the adapter changes nothing", "set lora_alpha"))
    elif not faults and not any(bool(whole(value).any()) for value in changed):
        idle = "every lora_B is zero: the adapter changes nothing"
        if adapter is None and not any(each.inference_mode for each in model.peft_config.values()):
            notes.append(f"{idle} yet.")
        else:
            faults.append(fault("idle adapter", idle, "load weights that were trained"))
    return faults


def _passed_over(raw: Mapping[str, Any], text: Any) -> list[Fault]:
    """Rope settings in config.json that transformers did not take: of two sections it reads one."""
    # Models with rope by type of layer read older files in ways of their own.
    rope, faults = ropes(text).get(None, {}), list[Fault]()
    given = {key: raw.get(key) for key in ("rope_theta", LENGTH)} if rope else {}
    for section in ("rope_parameters", "rope_scaling") if rope else ():
        given |= {f"{section}.{key}": value for key, value in (raw.get(section) or {}).items()}
    for place, value in given.items():
        key = place.rpartition(".")[2].replace("rope_type", "type").replace("type", "rope_type")
        # A model's own name of a type ("su") is translated.
        translated = key == "rope_type" and (value == "default" or rope.get(key, "default") != "default")
        if value is None or translated or rope.get(key) == value or (place == LENGTH and key not in rope):
            continue
        problem = f"config.json has {place} = {value}, and the model was made with {key} = {rope.get(key)}"
        fix = "have one section, rope_parameters, with every key (rope_type, rope_theta, ...), and no other"
        faults.append(fault(BY_KEY.get(key, f"wrong {key}"), problem, fix))
    return faults
