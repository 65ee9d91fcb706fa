"""What the files of a model say and no code reads, or reads otherwise: config.json, the tokenizer's, an adapter's."""

from __future__ import annotations

import difflib
import inspect
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from transformers import PreTrainedConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CAUSAL

from lengthwise.checkpoints.hidden import unwrap
from lengthwise.checkpoints.position_limits import LENGTH, RECORD, described, ropes
from lengthwise.checkpoints.resolve import (
    ResolvedModel,
    checkpoint_file,
    quiet_transformers,
    read_tokenizer,
    resolve_hub,
)
from lengthwise.checkpoints.rope_check import BY_KEY, Fault, fault, unread_keys
from lengthwise.checkpoints.weight_files import PLAIN, kinds_in, weight_files
from lengthwise.errors import shown
from lengthwise.files import read_json
from lengthwise.text.tokens import added_tokens

_TELLING = (
    "rope|rotary|theta|window|position|yarn|context|quant|compress|(?<!offset_)alibi|nope|chunk|layer_types"
    "|local_att|softcap|logits?_scal|(attention|embedding|logits?|residual)_multiplier"
)
"""Keys that are named wherever no code reads them: of positions, of factors and caps, and of how weights are stored.

Every BLOOM has an offset_alibi that nothing reads.
"""
_OF_ROPE = {"rope_theta", "rope_scaling", "partial_rotary_factor", LENGTH}
"""Keys that transformers takes in every class that has rope_parameters."""
_ALWAYS: dict[str, dict[str, Any]] = {
    "mpt": {
        "alibi": True, "alibi_bias_max": 8, "prefix_lm": False, "attn_type": "multihead_attention", "qk_ln": False,
        "logit_scale": None,
    },
}  # fmt: skip
"""By type of model: what transformers (5.23) makes every one with, whatever config.json says, or its attn_config."""
_CLOSE = 0.85
"""From which likeness on (difflib's ratio) an unread key is taken for a misspelt one."""


def file_faults(source: str | None, text: Any, tokenizer: Any) -> list[Fault]:
    """How a configuration and a tokenizer differ from their files, where transformers passed over a key."""
    raw, declared = settings_of(source, "config.json"), settings_of(source, "tokenizer_config.json")
    before, _ = added_tokens(tokenizer)
    faults, added = _passed_over(raw, text), before.count(tokenizer.bos_token_id)
    if isinstance(length := raw.get("max_position_embeddings"), int) and length <= 0:
        problem = f"max_position_embeddings is {length}: no length of training is known"
        faults.append(fault("no trained length", problem, "write the length that the model was trained for"))
    if added > 1 or (declared.get("add_bos_token") and not added):
        problem = f"the tokenizer adds BOS {added} times to a text, and add_bos_token asks for one"
        faults.append(fault("wrong BOS", problem, "repair the post-processor in tokenizer.json"))
    return faults


def _from_source(source: str) -> ResolvedModel:
    """What was resolved to this `source`; its files are looked for on this machine alone."""
    location, _, revision = source.rpartition("@")
    if not location or Path(source).exists():
        return ResolvedModel(source, source)
    return ResolvedModel(location, location, revision)


def settings_of(source: str | None, file: str) -> dict[str, Any]:
    """What a file of a model says of its text part, as it is written: transformers passes over keys."""
    raw = _whole_file(source, file)
    return raw.get("text_config") or raw


def _whole_file(source: str | None, file: str) -> dict[str, Any]:
    found = None if source is None else _from_source(source).file(file)
    return {} if found is None else read_json(found, expected="settings")


def unread(base: Any, source: str | None, adapter: str | None) -> list[str]:
    """Sentences on settings that are written and that no code reads."""
    name, found = type(base).__name__, list[str]()
    if keys := unread_keys(base):
        found.append(f"{name} does not read, and so without effect are: {', '.join(keys)}.")
    text: Any = base.config.get_text_config()
    homes = {each.__module__ for each in (*type(text).__mro__, *type(base).__mro__)}
    homes = {each for each in homes if each.startswith("transformers.models.")}
    general = _words({PreTrainedConfig.__module__, ROPE_INIT_FUNCTIONS["yarn"].__module__})
    # What transformers can read is no sign that this class does.
    words = _words(homes) | {word for word in general if not re.search(_TELLING, word)}
    fields = {*inspect.signature(type(text)).parameters, "quantization_config", "max_position_embeddings"}
    fields |= _OF_ROPE if "rope_parameters" in fields else set()
    whole, raw = _whole_file(source, "config.json"), settings_of(source, "config.json")
    found += _unknown(raw, fields, words, _TELLING, f"config.json has {{}}, which {name} does not read")
    found += [
        f"config.json has {key} = {shown(value)} outside text_config, where {name} does not read it."
        for key, value in (whole if raw is not whole else {}).items()
        if value and re.search(_TELLING, key) and raw.get(key) != value
        if key not in inspect.signature(type(base.config)).parameters and key != "quantization_config"
        if key in fields or key not in words
    ]
    written = {**raw, **(raw.get("attn_config") or {})}
    found += [
        f"config.json has {key} = {shown(written[key])}, which {name} does not read."
        for key, made in _ALWAYS.get(text.model_type, {}).items()
        # Those of positions are faults.
        if "alibi" not in key and written.get(key) not in (None, made)
    ]
    saved_as = next(iter(raw.get("architectures") or ()), name)
    if saved_as != name and CAUSAL.get(raw.get("model_type")) != saved_as and saved_as in CAUSAL.values():
        found.append(
            f"config.json names the class {saved_as}, and the type {raw['model_type']}, of which transformers makes "
            f"a {name}: other programs choose otherwise."
        )
    if raw := settings_of(adapter, "adapter_config.json"):
        from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING

        fields = {*inspect.signature(PEFT_TYPE_TO_CONFIG_MAPPING[raw["peft_type"]]).parameters}
        found += _unknown(raw, fields, set(), "", "adapter_config.json has {}, which PEFT does not read")
        own, meant = base.name_or_path, raw.get("base_model_name_or_path")
        if own and meant and Path(meant).name != Path(own).name:
            found.append(f"adapter_config.json names {meant} as its base model, and this is {own}.")
        layers = [layer for layer, _ in base.named_modules()]
        found += [
            f"adapter_config.json has {name} for {pattern}, and the model no such layer."
            for name in ("rank_pattern", "alpha_pattern")
            for pattern in raw.get(name) or ()
            # As PEFT matches them.
            if not any(re.match(rf"(.*\.)?({pattern})$", layer) for layer in layers)
        ]
    return found


def _words(modules: set[str]) -> set[str]:
    """All words in the sources of these modules."""
    return {word for home in modules for word in re.findall(r"\w+", inspect.getsource(sys.modules[home]))}


def rounded_weights(model: Any, source: str | None) -> list[str]:
    """A sentence on tensors that files keep with more digits than a model has that was loaded in the dtype auto."""
    base = unwrap(model)
    if source is None or getattr(base, "hf_quantizer", None) is not None:
        return []
    made = {name: tensor.dtype for name, tensor in base.state_dict().items()}
    stored = [each for file in weight_files(_from_source(source)) for each in kinds_in(file)]
    prefix, finer = base.base_model_prefix, list[torch.dtype]()
    for name, kind in stored:
        places = name, f"{prefix}.{name}", name.removeprefix(f"{prefix}.")
        own = next((made[place] for place in places if place in made), base.dtype)
        kept = PLAIN.get(kind)
        if kept is not None and own.is_floating_point and torch.finfo(kept).eps < torch.finfo(own).eps:
            finer.append(kept)
    if not finer:
        return []
    made_in, whole = (
        str(base.dtype).removeprefix("torch."),
        "float64" if torch.float64 in finer else "float32",
    )
    return [
        f"Of {len(stored)} tensors in its files {len(finer)} have more digits than {made_in}, in which config.json "
        f"has them loaded: --dtype {whole} rounds none."
    ]


def other_tokenizer(tokenizer: Any, adapter: str | None) -> list[str]:
    """A sentence on a tokenizer beside an adapter that differs from the model's, which is the one that is used."""
    if adapter is None or (file := checkpoint_file(adapter, "tokenizer_config.json")) is None:
        return []
    # By its name transformers asks the hub for a config.json, which no cache of an adapter has.
    local = Path(adapter).expanduser().exists()
    local = local or resolve_hub(adapter, None, what="adapter", file="adapter_config.json").local_files_only
    other = read_tokenizer(str(file.parent) if local else adapter)
    own, others = tokenizer.get_vocab().items(), other.get_vocab().items()
    differ = [f"{len(own ^ others)} other tokens"] if own != others else []
    if (other.chat_template or tokenizer.chat_template) != tokenizer.chat_template:
        differ.append("another chat template")
    what = " and ".join(differ)
    return [f"{adapter} has a tokenizer with {what}; texts are read with the model's."] if differ else []


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
        elif (value and re.search(about, key)) or (value is False and re.fullmatch("use_(rope|rotary)", key)):
            found.append(f"{said}.")
    return found


def _passed_over(raw: Mapping[str, Any], text: Any) -> list[Fault]:
    """Settings of positions in config.json that transformers did not take: of two places it reads one."""
    by_type, faults, made = ropes(text), list[Fault](), _settings(text)
    made |= {(None, key): value for key, value in _ALWAYS.get(text.model_type, {}).items() if "alibi" in key}
    given = [(LENGTH, (layers, LENGTH), raw.get(LENGTH)) for layers in by_type if LENGTH in by_type[layers]]
    for section in ("rope_parameters", "rope_scaling"):
        for layers, rope in ropes(SimpleNamespace(rope_parameters=raw.get(section))).items():
            # A model with rope by type of layer reads a section without types in a way of its own.
            for key, value in rope.items() if layers in by_type else ():
                name = "rope_type" if key == "type" else key
                # A model's own name of a type ("su") is translated.
                beside = rope.get("rope_type") if key == "type" else None
                known = beside not in (None, value, "default") and value in ROPE_INIT_FUNCTIONS
                translated = name == "rope_type" and (
                    value == "default" or by_type[layers].get(name, "default") != "default"
                )
                if known or not translated:
                    place = ".".join(filter(None, (section, layers, key)))
                    given.append((place, (layers, name), value))
    top = [*_meant_at_the_top(raw, text)]
    # An extension may change the base.
    if getattr(text, RECORD, None) is None:
        # DBRX has its base in attn_config, where transformers 5 does not read it.
        given += [
            (f"attn_config.{key}", (None, key), value)
            for key, value in (raw.get("attn_config") or {}).items()
            if (None, key) in made and re.search("theta|alibi", key)
        ]
        if None in by_type and all(place != "rope_theta" for place, *_ in top):
            # GPT-NeoX reads its own name of it alone.
            top.append(("rope_theta", (None, "rope_theta"), raw.get("rope_theta")))
    for place, which, value in [*given, *top]:
        if value is None or made.get(which) == value:
            continue
        layers, key = which
        of_layers = f" in {layers} layers" if layers else ""
        problem = f"config.json has {place} = {raw.get(place, value)}, and the model was made with {key} = "
        fix = "have one section, rope_parameters, with every key (rope_type, rope_theta, ...), and no other"
        if key == "layer_types":
            fix = f"have the types of layers in config.json once: without {place}, or with one that agrees"
        if "alibi" in key:
            fix = "serve the model with the code of its authors, and measure its URL"
        faults.append(fault(BY_KEY.get(key, f"wrong {key}"), f"{problem}{made.get(which)}{of_layers}", fix))
    sections = {
        key
        for key, value in (raw.get("rope_parameters") or {}).items()
        if value and isinstance(value, Mapping)
    }
    if sections and (lacks := {*(getattr(text, "layer_types", None) or ())} & ropes(text).keys() - sections):
        has = ", ".join(f"{each}: {described(ropes(text)[each])}" for each in sorted(lacks))
        problem = f"config.json has rope_parameters for {', '.join(sorted(sections))}, and others are made up ({has})"
        faults.append(fault(BY_KEY["rope_type"], problem, "write a section for each type of layer"))
    return faults


def _settings(config: Any) -> dict[tuple[Any, str], Any]:
    """What a configuration says of positions, by type of layer and key."""
    found = {(layers, key): value for layers, rope in ropes(config).items() for key, value in rope.items()}
    return found | {(None, "layer_types"): getattr(config, "layer_types", None)}


def _meant_at_the_top(raw: Mapping[str, Any], text: Any) -> Iterator[tuple[str, tuple[Any, str], Any]]:
    """Numbers at the top of config.json that would decide settings of positions if nothing else named these.

    The class says which: configurations are made with one number and with another.
    """
    used = _settings(text)
    bare = {
        key: value
        for key, value in raw.items()
        if key not in ("rope_parameters", "rope_scaling", "layer_types")
    }
    for key, value in bare.items():
        if not re.search(_TELLING, key) or isinstance(value, bool) or not isinstance(value, int | float):
            continue
        # A class may refuse any number.
        with suppress(Exception), quiet_transformers():
            one, other = (_settings(type(text).from_dict({**bare, key: each})) for each in (value, value + 1))
            yield from ((key, which, one.get(which)) for which in used if one.get(which) != other.get(which))
