"""What positions a model will really use, and what is wrong with them: `lengthwise doctor MODEL`, `check_rope`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from torch import nn

from lengthwise.errors import LengthwiseError, UsageError
from lengthwise.files import read_json
from lengthwise.models.attention_layers import sliding_layers
from lengthwise.models.extending import adapter_extension, checkpoint_file, find_rotary
from lengthwise.models.extension import read_extension
from lengthwise.models.head import Head
from lengthwise.models.hidden import is_peft_model, unwrap
from lengthwise.models.loaded_model import LoadedModel
from lengthwise.models.loading import load
from lengthwise.models.plan import model_skeleton
from lengthwise.models.position_limits import (
    max_positions,
    rope_by_input_length,
    rope_parameters,
    trained_length,
)
from lengthwise.models.resolve import quiet_transformers, read_config, read_tokenizer, resolve
from lengthwise.models.rope_check import BY_KEY, described, fault, rope_faults, ropes, rotaries

_LENGTH = "original_max_position_embeddings"


def check_rope(model: nn.Module | LoadedModel, *, adapter: str | None = None) -> dict[str, Any]:
    """Check that a model has the rotary positions that its configuration and its adapter ask for, in any trainer.

    Args:
        model: a causal LM of transformers, bare or wrapped, or what `load` gives. It is not changed.
        adapter: the folder or hub id that its PEFT adapter was loaded from; a `LoadedModel` knows it.

    Returns:
        In plain values: `positions` in words, `trained_length`, `position_table`, `sliding_window`, `notes` and more.

    Raises:
        LengthwiseError: something is wrong; the message names each fault and its fix.
    """
    if isinstance(model, LoadedModel):
        model, adapter = model.model, adapter or model.adapter
    report = _report(model, adapter)
    raise_faults(report["faults"])
    return report


def raise_faults(faults: list[dict[str, str]]) -> None:
    """Raise LengthwiseError if there are any."""
    if faults:
        problems = [f"{each['fault']}: {each['problem']}" for each in faults]
        raise LengthwiseError(
            "\n".join(problems), fix="\n     ".join(dict.fromkeys(each["fix"] for each in faults))
        )


def examine(name: str, *, adapter: str | None = None, config_only: bool = False) -> dict[str, Any]:
    """The report on a model that is named as for `load`, with its tokenizer and its output head; faults are in it.

    With `config_only` no weights are read, and nothing that goes wrong while they are loaded is seen.

    Raises:
        UsageError, MissingError: the model or its adapter cannot be loaded.
    """
    resolved = resolve(name)
    # As they were written: transformers passes over keys in both.
    raw, declared = (
        {} if file is None else read_json(file, expected="settings")
        for each in ("config.json", "tokenizer_config.json")
        for file in [checkpoint_file(resolved.location, each, **resolved.where)]
    )
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
        loaded = load(name, adapter=adapter)
        model, tokenizer, proof = loaded.model, loaded.tokenizer, loaded.head
        head = "yes" if isinstance(proof, Head) else f"no, full logits: {proof.reason}"
    report, base = _report(model, adapter), unwrap(model)
    text, bos = base.config.get_text_config(), tokenizer.bos_token_id
    faults, notes = report.pop("faults"), report.pop("notes")
    embeddings = base.get_input_embeddings(), base.get_output_embeddings()
    added = 0 if bos is None else tokenizer("a").input_ids[:2].count(bos)
    if bos != text.bos_token_id:
        notes.append(f"the configuration's BOS token is {text.bos_token_id}, the tokenizer's is {bos}")
    if added > 1 or (declared.get("add_bos_token") and not added):
        problem = f"the tokenizer adds BOS {added} times to a text, and add_bos_token asks for one"
        faults.append(fault("wrong BOS", problem, "repair the post-processor in tokenizer.json"))
    faults += _passed_over(raw.get("text_config") or raw, text, notes)
    names = ", ".join(dict.fromkeys(each["fault"] for each in faults))
    verdict = f"does not read positions as it should ({names})" if faults else "reads positions as configured"
    trained = (
        f"trained for {length:,} tokens" if (length := report["trained_length"]) else "trained length unknown"
    )
    return {
        "verdict": f"{name} {verdict}: {'; '.join(report['positions'])}, {trained}.",
        **report,
        "bos_token": tokenizer.bos_token,
        "bos_added": bool(added),
        "tied_head": embeddings[1] is not None and embeddings[0].weight is embeddings[1].weight,
        "fused_objective": head,
        "notes": notes,
        "faults": faults,
    }


def _report(model: Any, adapter: str | None) -> dict[str, Any]:
    base = unwrap(model)
    text: Any = base.config.get_text_config()
    sliding, notes = len(sliding_layers(base.config)), list[str]()
    faults = rope_faults(model) + _adapter_faults(model, adapter, notes)
    for rope in ropes(text).values():
        length, longest = rope.get(_LENGTH) or 0, getattr(text, "max_position_embeddings", None)
        reached = length * (rope.get("factor") or 1)
        if rope.get("rope_type") == "yarn" and longest not in (length, reached):
            notes.append(f"{described(rope)} reaches {reached:,.0f}; max_position_embeddings = {longest}")
    if kind := rope_by_input_length(text):
        notes.append(
            f"frequencies of {kind} depend on the length of the input; cached keys keep the old ones"
        )
    return {
        "positions": _positions(base, text),
        "rope_parameters": rope_parameters(text),
        "trained_length": trained_length(text),
        "position_table": max_positions(model),
        "sliding_window": f"{text.sliding_window:,} tokens in {sliding} layers" if sliding else None,
        "attn_implementation": text._attn_implementation,
        "adapter": adapter,
        "notes": notes,
        "faults": faults,
    }


def _positions(base: Any, text: Any) -> list[str]:
    """Where positions come from, in words for each type of layer."""
    found = {layer_type for _, _, layer_type in rotaries(base)}
    types = Counter[str](getattr(text, "layer_types", None) or ())
    if getattr(text, "alibi", False) or text.model_type in ("bloom", "mpt"):
        return ["ALiBi, a bias that grows with the distance"]
    words = [
        described(rope) + ("" if layer_type is None else f", in {types[layer_type]} {layer_type} layers")
        for layer_type, rope in ropes(text).items()
        if layer_type in found
    ]
    without = sum(getattr(module, "use_rope", True) is False for module in base.modules())
    if words:
        return words + ([f"none in {without} layers"] if without else [])
    table = max_positions(base)
    return [f"a table of {table:,} positions" if table else "none that doctor knows: no rope, table or ALiBi"]


def _adapter_faults(model: Any, adapter: str | None, notes: list[str]) -> list[dict[str, str]]:
    """Whether the weights of an adapter are in the model, and the extension that it was trained with."""
    name, load_it = (
        "adapter not loaded",
        "lengthwise.load(BASE, adapter=...), with the base that it was trained on",
    )
    if not is_peft_model(model):
        return (
            []
            if adapter is None
            else [fault(name, f"the model has no adapter; {adapter} was given", load_it)]
        )
    from peft import get_peft_model_state_dict
    from peft.utils import load_peft_weights

    own, faults = get_peft_model_state_dict(model), list[dict[str, str]]()
    if adapter is not None:
        saved = load_peft_weights(adapter, device="cpu")
        lost = [key for key, value in saved.items() if key not in own or (value.any() and not own[key].any())]
        if lost:
            problem = f"{len(lost)} of {len(saved)} tensors of {adapter} are not in the model, as {lost[0]}"
            faults.append(fault(name, problem, load_it))
        wanted = adapter_extension(adapter)
        if wanted is not None and wanted != read_extension(unwrap(model).config):
            problem = f"{adapter} was trained on a model extended by {wanted.method}, {wanted.factor:g} times"
            faults.append(fault("scaling dropped", problem, load_it))
    if not any(value.any() for key, value in own.items() if "_B" in key or "lora_" not in key):
        idle = "every lora_B is zero: the adapter changes nothing"
        if adapter is None and not any(each.inference_mode for each in model.peft_config.values()):
            notes.append(f"{idle} yet")
        elif not faults:
            faults.append(fault(name, idle, "load weights that were trained"))
    return faults


def _passed_over(raw: Mapping[str, Any], text: Any, notes: list[str]) -> list[dict[str, str]]:
    """Rope settings in config.json that transformers did not take: of two sections it reads one."""
    if None not in ropes(text):
        # Models with rope by type of layer read older files in ways of their own.
        return []
    rope, faults, given = (
        ropes(text)[None],
        list[dict[str, str]](),
        [(key, raw.get(key)) for key in ("rope_theta", _LENGTH)],
    )
    for section in ("rope_parameters", "rope_scaling"):
        given += [(f"{section}.{key}", value) for key, value in (raw.get(section) or {}).items()]
    for place, value in given:
        key = place.rpartition(".")[2].replace("rope_type", "type").replace("type", "rope_type")
        # A model's own name of a type ("su") is translated.
        named_otherwise = key == "rope_type" and (value == "default" or rope.get(key, "default") != "default")
        if (
            value is None
            or named_otherwise
            or (place == _LENGTH and key not in rope)
            or rope.get(key) == value
        ):
            continue
        problem = f"config.json has {place} = {value}, and the model was made with {key} = {rope.get(key)}"
        fix = "have one section, rope_parameters, with every key (rope_type, rope_theta, ...), and no other"
        faults.append(fault(BY_KEY.get(key, f"wrong {key}"), problem, fix))
    if _LENGTH in rope and not any(place.endswith(_LENGTH) and value for place, value in given):
        notes.append(f"{_LENGTH} is not in config.json: taken is max_position_embeddings, {rope[_LENGTH]:,}")
    return faults
