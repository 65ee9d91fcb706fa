"""What positions a model will really use, and what is wrong with them: `lengthwise doctor MODEL`, `check_rope`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from lengthwise.checkpoints.attention_layers import scales_queries, sliding_layers
from lengthwise.checkpoints.extending import adapter_extension, clex_modules, find_rotary
from lengthwise.checkpoints.extension import read_extension
from lengthwise.checkpoints.head import Head, find_head, gives_numbers
from lengthwise.checkpoints.hidden import is_peft_model, unwrap
from lengthwise.checkpoints.loading import load_weights, model_skeleton
from lengthwise.checkpoints.position_limits import (
    LENGTH,
    described,
    max_positions,
    rope_by_input_length,
    ropes,
    trained_length,
)
from lengthwise.checkpoints.resolve import (
    checkpoint_file,
    quiet_transformers,
    read_config,
    read_tokenizer,
    resolve,
)
from lengthwise.checkpoints.rope_check import BY_KEY, Fault, fault, rope_faults, rotaries, unread_keys
from lengthwise.errors import LengthwiseError, UsageError
from lengthwise.files import read_json
from lengthwise.text.same_ids import other_beginning


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

    With `config_only` no weights are read, and nothing that goes wrong while they are loaded is seen. UsageError or
    MissingError if the model or its adapter cannot be loaded.
    """
    resolved = resolve(name)
    if config_only:
        if adapter is not None:
            raise UsageError("an adapter is checked in its model", fix="leave --config-only out")
        model, tokenizer = model_skeleton(read_config(resolved)), read_tokenizer(resolved)
        head, computes = "not known without weights", True
        with quiet_transformers():
            for parent, place, old in find_rotary(model):
                # On the meta device a module has no values.
                setattr(parent, place, type(old)(config=old.config))
    else:
        model, tokenizer, _ = load_weights(name, adapter=adapter)
        proof = find_head(model)
        computes = gives_numbers(model)
        head = "yes" if isinstance(proof, Head) else f"no, full logits: {proof.reason}"
    report, base = _report(model, adapter), unwrap(model)
    faults, notes = report.pop("faults"), report.pop("notes")
    # As they were written: transformers passes over keys in both.
    files = ("config.json", "tokenizer_config.json")
    found = [checkpoint_file(resolved.location, file, **resolved.where) for file in files]
    raw, declared = ({} if file is None else read_json(file, expected="settings") for file in found)
    text, bos = base.config.get_text_config(), tokenizer.bos_token_id
    own_bos = getattr(text, "bos_token_id", None)
    begin = tokenizer("a").input_ids[:2]
    added = 0 if bos is None else begin.count(bos)
    if other := other_beginning(tokenizer):
        notes.append(other)
    if bos != own_bos:
        notes.append(f"the configuration's BOS token is {own_bos}, the tokenizer's is {bos}")
    if added > 1 or (declared.get("add_bos_token") and not added):
        problem = f"the tokenizer adds BOS {added} times to a text, and add_bos_token asks for one"
        faults.append(fault("wrong BOS", problem, "repair the post-processor in tokenizer.json"))
    if not computes:
        fix = "check the weights; those of 16 bits may overflow: load them with dtype float32"
        faults.append(
            fault("logits that are no numbers", "of a few random tokens they are NaN or infinite", fix)
        )
    faults += _passed_over(raw.get("text_config") or raw, text, notes) + _unlike_its_file(name, text)
    names = ", ".join(dict.fromkeys(each["fault"] for each in faults))
    verdict = f"does not read positions as it should ({names})" if faults else "reads positions as configured"
    length = report["trained_length"]
    trained = f"trained for {length:,} tokens" if length else "trained length unknown"
    inputs, outputs = base.get_input_embeddings(), base.get_output_embeddings()
    return {
        "verdict": f"{name} {verdict}: {'; '.join(report['positions'])}, {trained}.",
        **report,
        "bos_token": tokenizer.bos_token,
        "bos_added": bos is not None and begin[:1] == [bos],
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
        length, longest = rope.get(LENGTH) or 0, getattr(text, "max_position_embeddings", None)
        reached = length * (rope.get("factor") or 1)
        if rope.get("rope_type") == "yarn" and longest not in (length, reached):
            notes.append(f"{described(rope)} reaches {reached:,.0f}; max_position_embeddings = {longest}")
    if unread := unread_keys(base):
        notes.append(f"{type(base).__name__} does not read, and so without effect are: {', '.join(unread)}")
    if kind := rope_by_input_length(text):
        notes.append(f"frequencies of {kind} depend on the length of the input; cached keys keep old ones")
    return {
        "positions": _positions(base, text),
        "rope_parameters": getattr(text, "rope_parameters", None) or None,
        "trained_length": trained_length(text),
        "position_table": max_positions(model),
        "sliding_window": f"{text.sliding_window:,} tokens in {sliding} layers" if sliding else None,
        "attn_implementation": text._attn_implementation,
        "adapter": adapter,
        "faults": [
            *rope_faults(model),
            *_window_faults(text, sliding),
            *_unlike_its_record(base, text),
            *_adapter_faults(model, adapter, notes),
        ],
        "notes": notes,
    }


def _window_faults(text: Any, layers: int) -> list[Fault]:
    """A window in which a token does not even see itself."""
    if not layers or text.sliding_window > 0:
        return []
    problem = f"sliding_window is {text.sliding_window}: {layers} layers see nothing"
    return [fault("impossible window", problem, "write null for no window, or its size in tokens")]


def _unlike_its_file(name: str, text: Any) -> list[Fault]:
    """What a GGUF file says otherwise than the model that was made from it."""
    path = Path(name).expanduser()
    if path.suffix.lower() != ".gguf" or not path.is_file():
        return []
    from lengthwise.checkpoints.gguf_file import GgufFile

    fix = "remove the converted copy from the cache"
    return [fault("unlike its file", problem, fix) for problem in GgufFile.read(path).unlike(text)]


def _positions(base: Any, text: Any) -> list[str]:
    """Where positions come from, in words for each type of layer."""
    if getattr(text, "alibi", False) or text.model_type in ("bloom", "mpt"):
        return ["ALiBi, a bias that grows with the distance"]
    found = {layer_type for _, _, layer_type in rotaries(base)}
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
        none = fault(name, f"the model has no adapter; {adapter} was given", load_it)
        return [] if adapter is None else [none]
    from peft import get_peft_model_state_dict
    from peft.utils import load_peft_weights

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
    idle = "every lora_B is zero: the adapter changes nothing"
    if any(value.any() for key, value in own.items() if "_B" in key or "lora_" not in key):
        return faults
    if adapter is None and not any(each.inference_mode for each in model.peft_config.values()):
        notes.append(f"{idle} yet")
        return faults
    return faults or [fault(name, idle, "load weights that were trained")]


def _passed_over(raw: Mapping[str, Any], text: Any, notes: list[str]) -> list[Fault]:
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
    if LENGTH in rope and not any(value for place, value in given.items() if place.endswith(LENGTH)):
        notes.append(f"{LENGTH} is not in config.json: taken is max_position_embeddings, {rope[LENGTH]:,}")
    return faults


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
            return [fault(BY_KEY.get(key, f"wrong {key}"), problem, f"write {wanted} into rope_parameters")]
    is_complete = {"clex": clex_modules, "eabf": scales_queries}.get(extension.method, lambda _: True)
    if is_complete(base):
        return []
    part = "it has no learned frequencies" if extension.method == "clex" else "no layer scales its queries"
    return [fault(BY_KEY["rope_type"], f"{was} {part}", "load it with lengthwise.load")]
