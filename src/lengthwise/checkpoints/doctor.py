"""What positions a model will really use, and what is wrong with them: `lengthwise doctor MODEL`, `check_rope`."""

from __future__ import annotations

import inspect
from collections import Counter
from pathlib import Path
from typing import Any

from torch import nn

from lengthwise.checkpoints.extending import find_rotary
from lengthwise.checkpoints.faults import constant_weights, position_faults
from lengthwise.checkpoints.head import Head, find_head
from lengthwise.checkpoints.hidden import unwrap
from lengthwise.checkpoints.llama_cpp_keys import passed_over
from lengthwise.checkpoints.loading import load_weights, model_skeleton
from lengthwise.checkpoints.position_limits import (
    LENGTH,
    described,
    max_positions,
    positions_matter,
    rope_by_input_length,
    ropes,
    sliding_layers,
    trained_length,
)
from lengthwise.checkpoints.probe import gives_numbers
from lengthwise.checkpoints.resolve import quiet_transformers, read_config, read_tokenizer, resolve
from lengthwise.checkpoints.rope_check import Fault, fault, rotaries
from lengthwise.checkpoints.written_settings import (
    file_faults,
    other_tokenizer,
    rounded_weights,
    settings_of,
    unread,
)
from lengthwise.errors import LengthwiseError, UsageError, require, shown
from lengthwise.settings import path_text
from lengthwise.text.tokens import other_beginning


def check_rope(model: Any, *, adapter: str | Path | None = None) -> dict[str, Any]:
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
        held = isinstance(getattr(model, "model", None), nn.Module)
        require(held, f"the model is {shown(model)}", "a causal LM of transformers, or what `load` gives")
        model, adapter = model.model, adapter or model.adapter
    report = _report(model, path_text(adapter))
    raise_faults(report["faults"])
    return report


def raise_faults(faults: list[Fault]) -> None:
    """Raise LengthwiseError if there are any."""
    if faults:
        problem = "\n".join(f"{each['fault']}: {each['problem']}" for each in faults)
        raise LengthwiseError(problem, fix="\n     ".join(dict.fromkeys(each["fix"] for each in faults)))


def examine(
    name: str | Path, *, adapter: str | Path | None = None, config_only: bool = False
) -> dict[str, Any]:
    """The report on a model that is named as for `load`, with its tokenizer and its output head; faults are in it.

    With `config_only` no weights are read, and nothing that goes wrong while they are loaded is seen. UsageError or
    MissingError if the model or its adapter cannot be loaded.
    """
    name, adapter = path_text(name), path_text(adapter)
    resolved = resolve(name)
    if config_only:
        if adapter is not None:
            raise UsageError("an adapter is checked in its model", fix="leave --config-only out")
        model, tokenizer = model_skeleton(read_config(resolved)), read_tokenizer(resolved)
        head, computes = "not known without weights", True
        rounded = list[str]()
        with quiet_transformers():
            for parent, place, old in find_rotary(model):
                # On the meta device a module has no values.
                setattr(parent, place, type(old)(config=old.config))
    else:
        model, tokenizer, _ = load_weights(name, adapter=adapter)
        proof = find_head(model)
        computes, rounded = gives_numbers(model), rounded_weights(model, resolved.source)
        head = "yes" if isinstance(proof, Head) else f"no, full logits: {proof.reason}"
    report, base = _report(model, adapter, resolved.source), unwrap(model)
    faults, notes = report.pop("faults"), report.pop("notes")
    text = base.config.get_text_config()
    if other := other_beginning(tokenizer):
        notes.append(other)
    if tokenizer.bos_token_id != (own_bos := getattr(text, "bos_token_id", None)):
        notes.append(
            f"the configuration's BOS token is {own_bos}, the tokenizer's is {tokenizer.bos_token_id}"
        )
    raw = settings_of(resolved.source, "config.json")
    sections = [raw.get("rope_parameters") or {}, raw.get("rope_scaling") or {}]
    for layers, rope in ropes(text).items():
        own = (raw, *sections, *(each.get(layers) or {} for each in sections))
        if LENGTH in rope and not any(each.get(LENGTH) for each in own):
            taken = f"{LENGTH} is not in config.json: taken is max_position_embeddings, {rope[LENGTH]:,}"
            notes.append(taken + (f", in {layers} layers" if layers else ""))
    unlike, unobeyed = _of_its_file(name, text)
    faults += file_faults(resolved.source, text, tokenizer) + unlike
    notes += unobeyed + rounded + other_tokenizer(tokenizer, adapter)
    if not computes:
        fix = "check the weights; those of 16 bits may overflow: load them with dtype float32"
        faults.append(
            fault("logits that are no numbers", "of a few random tokens they are NaN or infinite", fix)
        )
    names = ", ".join(dict.fromkeys(each["fault"] for each in faults))
    verdict = f"does not read positions as it should ({names})" if faults else "reads positions as configured"
    length = report["trained_length"]
    trained = f"trained for {length:,} tokens" if length else "trained length unknown"
    inputs, outputs = base.get_input_embeddings(), base.get_output_embeddings()
    return {
        "verdict": f"{name} {verdict}: {'; '.join(report['positions'])}, {trained}.",
        **report,
        "bos_token": tokenizer.bos_token,
        "bos_added": tokenizer("a").input_ids[:1] == [tokenizer.bos_token_id],
        "tied_head": outputs is not None and inputs.weight is outputs.weight,
        "fused_objective": head,
        "notes": notes,
        "faults": faults,
    }


def _report(model: Any, adapter: str | None, source: str | None = None) -> dict[str, Any]:
    base = unwrap(model)
    text: Any = base.config.get_text_config()
    sliding, window = len(sliding_layers(base.config)), getattr(text, "sliding_window", None)
    if text.model_type == "gpt_neo":
        sliding, window = text.attention_layers.count("local"), text.window_size
    notes = list[str]()
    for rope in ropes(text).values():
        length, longest = rope.get(LENGTH) or 0, getattr(text, "max_position_embeddings", None)
        reached = length * (rope.get("factor") or 1)
        if rope.get("rope_type") == "yarn" and longest not in (length, reached):
            notes.append(f"{described(rope)} reaches {reached:,.0f}; max_position_embeddings = {longest}")
    notes += unread(base, source, adapter) + constant_weights(base)
    if kind := rope_by_input_length(text):
        notes.append(f"frequencies of {kind} depend on the length of the input; cached keys keep old ones")
    return {
        "positions": _positions(base, text),
        "rope_parameters": getattr(text, "rope_parameters", None) or None,
        "trained_length": trained_length(text),
        "position_table": max_positions(model),
        "sliding_window": f"{window:,} tokens in {sliding} layers" if sliding else None,
        "attn_implementation": text._attn_implementation,
        "adapter": adapter,
        "faults": position_faults(model, adapter, notes),
        "notes": notes,
    }


def _of_its_file(name: str, text: Any) -> tuple[list[Fault], list[str]]:
    """What a GGUF file says otherwise than the model made from it, and what llama.cpp does not obey of it."""
    path = Path(name).expanduser()
    if path.suffix.lower() != ".gguf" or not path.is_file():
        return [], []
    from lengthwise.checkpoints.gguf_file import GgufFile

    file, fix = GgufFile.read(path), "remove the converted copy from the cache"
    unlike = [fault("unlike its file", problem, fix) for problem in file.unlike(text)]
    return unlike, passed_over(file.architecture, file.keys.get)


def _positions(base: Any, text: Any) -> list[str]:
    """Where positions come from, in words for each type of layer."""
    # Any key of config.json is an attribute, and a field only where the class reads it.
    has_alibi = "alibi" in inspect.signature(type(text)).parameters and text.alibi
    if has_alibi or text.model_type in ("bloom", "mpt"):
        return ["ALiBi, a bias that grows with the distance"]
    found = {layer_type for _, _, layer_type in rotaries(base)}
    types = Counter[str](getattr(text, "layer_types", None) or ())
    words = [
        # DeepSeek 4 has ropes of parts of its layers.
        described(rope)
        + (f", in {types[layer_type] or 'part of the'} {layer_type} layers" if layer_type else "")
        for layer_type, rope in ropes(text).items()
        if layer_type in found
    ]
    # A layer may say it in several modules, and with numbers.
    without = {
        getattr(module, "layer_idx", module)
        for module in base.modules()
        if getattr(module, "use_rope", True) in (False, 0)
    }
    far = {*range(text.num_hidden_layers)} - {*sliding_layers(base.config)}
    # Cohere 2 and EXAONE 4 say it of no layer: only those with a window have rope.
    if far and len(far) < text.num_hidden_layers and not without and not positions_matter(base, far):
        without = far
    if words:
        return words + [f"none in {len(without)} layers"] * bool(without)
    table = max_positions(base)
    return [f"a table of {table:,} positions" if table else "none that doctor knows: no rope, table or ALiBi"]
