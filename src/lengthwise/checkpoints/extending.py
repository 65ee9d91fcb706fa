"""Context extension of a transformers model: its rotary embeddings rebuilt or replaced by CLEX, and restored."""

from __future__ import annotations

import contextlib
import copy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from lengthwise.checkpoints.attention_layers import scale_queries
from lengthwise.checkpoints.clex_rotary import clex_modules, use_clex
from lengthwise.checkpoints.extension import (
    WHOLE,
    Extension,
    extended_layers,
    plan_extension,
    read_extension,
    write_extension,
)
from lengthwise.checkpoints.hidden import is_peft_model, unwrap
from lengthwise.checkpoints.position_limits import RECORD, far_layers, frequency_names, positions_matter
from lengthwise.checkpoints.resolve import ResolvedModel, checkpoint_file, looks_like_path, quiet_transformers
from lengthwise.checkpoints.weight_files import tensors_named
from lengthwise.errors import MissingError, UsageError, require
from lengthwise.files import read_json
from lengthwise.positions import ROPE_METHODS
from lengthwise.positions.rope import plain_frequencies
from lengthwise.settings import checked

# A model that was cast to bfloat16 has frequencies of 8 bits.
_TOLERANCE = 1e-2


def extend(
    model: nn.Module,
    method: str,
    *,
    factor: float,
    original_length: int | None = None,
    name: str | None = None,
    **options: Any,
) -> Extension:
    """Extend the context of a loaded transformers model, in place: its configuration and its positions.

    No weight changes; `clex` adds a small layer that needs training. After `save_pretrained`, `lengthwise.load`
    loads the model, and so does plain transformers unless the rope type begins with `lengthwise_`. Extend the
    model before you add an adapter, and for `clex` name `rotary_emb` in its `modules_to_save`, as recipes do. Save
    it through an `AlignmentTrainer` or a recipe: PEFT's `save_pretrained` writes no word of the extension. If types
    of layers have rotary positions of their own, only the full attention layers are extended.

    Args:
        model: a causal LM with rotary positions, bare or wrapped.
        method: a name of `lengthwise.positions.ROPE_METHODS`.
        factor: how many times longer the context becomes; 1 changes nothing but is recorded.
        original_length: L0 in tokens; None is what the configuration says.
        name: the model's name for errors.
        **options: the method's options.

    Raises:
        UsageError: as `plan_extension`; or the model does not compute its positions as its configuration says, or
            its positions change nothing; or `clex` for a model with an adapter, which would not save its weights.
    """
    base = unwrap(model)
    with quiet_transformers():
        extension = plan_extension(
            base.config, method, factor=factor, original_length=original_length, options=options, name=name
        )
    lost = is_peft_model(model) and ROPE_METHODS[method].learned
    require(not lost, f"{method} behind an adapter, which would lose its weights", "extend, then the adapter")
    found = find_rotary(base)
    require(bool(found), f"a {type(base).__name__} has no rotary embedding", "a module that has inv_freq")
    if any(module.config is not base.config.get_text_config() for _, _, module in found):
        raise UsageError(
            f"the layers of a {type(base).__name__} have rotary embeddings with settings of their own",
            expected="one configuration for all, or one for each type of layer (rope_parameters)",
        )
    if not positions_matter(base):
        raise UsageError(
            f"{name or type(base).__name__} predicts the same wherever its tokens are: it uses no rotary positions",
            expected="a model with rotary positions (ALiBi has nothing to extend)",
        )
    far = far_layers(base.config, extension.original_length)
    if extension.layer_type is None and len(far) < base.config.get_text_config().num_hidden_layers:
        require(
            positions_matter(base, far),
            f"{name or type(base).__name__} has rotary positions only in layers that see a window or a chunk",
            WHOLE,
        )
    config = copy.deepcopy(base.config)
    with quiet_transformers():
        write_extension(config, extension)
        # A rotary embedding reads the configuration only when it is created.
        new = [
            type(old)(config=config.get_text_config()).to(next(old.buffers()).device) for _, _, old in found
        ]
        for (_, _, old), extended in zip(found, new, strict=True):
            _check_frequencies(old, *_before(old, extension), extension.layer_type)
            _check_frequencies(extended, *_at_first(extended, extension), extension.layer_type)
        write_extension(base.config, extension)
    for (parent, place, old), extended in zip(found, new, strict=True):
        extended.config = old.config
        setattr(parent, place, extended.train(old.training))
    if extension.published_factor > 1:
        _scale_attention(base)
    _attach(base, extension)
    return extension


def restore_extension(model: nn.Module, resolved: ResolvedModel) -> None:
    """Complete a model that transformers built from the configuration of a model that was extended.

    MissingError if the checkpoint has no weights for the extension.
    """
    base = unwrap(model)
    extension = read_extension(base.config)
    assert extension is not None
    _attach(base, extension)
    for name, module in clex_modules(base):
        own = {f"{name}.{key}": key for key in module.state_dict()}
        saved = tensors_named(resolved, [*own])
        if missing := sorted(own.keys() - saved.keys()):
            problem = (
                f"the checkpoint has no weights for its {extension.method} extension: {', '.join(missing)}"
            )
            raise MissingError(problem, fix="save the model again with save_pretrained")
        module.load_state_dict({own[full]: tensor for full, tensor in saved.items()})


def extend_for_adapter(model: nn.Module, adapter: str) -> None:
    """Extend a base model as its adapter was trained, unless it is extended so already.

    UsageError if it has another extension, differs from the model that was extended, or the record is damaged.
    """
    if (wanted := adapter_extension(adapter)) is None:
        return
    before = read_extension(unwrap(model).config) or extend(
        model,
        wanted.method,
        factor=wanted.factor / wanted.published_factor,
        original_length=wanted.original_length,
        **wanted.options,
    )
    if before != wanted:
        raise UsageError(
            f"the adapter {adapter} was trained on a model with {wanted}, this one has {before}",
            fix="load the model that it was trained on",
        )


def adapter_extension(adapter: str) -> Extension | None:
    """The extension that a saved adapter was trained with; None without a record, UsageError if it is damaged."""
    file = checkpoint_file(adapter, f"{RECORD}.json")
    if file is None:
        return None
    return checked(Extension, read_json(file, expected="the record of an extension"), source=str(file))


def record_is_unknown(adapter: str) -> bool:
    """Whether an adapter of the hub may have a record that the local cache lacks, and nobody could be asked."""
    import huggingface_hub

    file = f"{RECORD}.json"
    if looks_like_path(adapter) or Path(adapter).exists():
        return False
    # A download of all files keeps their names, in newer versions of the library.
    with contextlib.suppress(Exception):
        return file in {each.path for each in huggingface_hub.get_cached_repo_tree(adapter)}
    # Otherwise a path, or a mark that the hub has no such file.
    return huggingface_hub.try_to_load_from_cache(adapter, file) is None


def find_rotary(base: PreTrainedModel) -> list[tuple[nn.Module, str, Any]]:
    """(parent, name, module) of every rotary embedding that is built from the text configuration."""
    kind = type(base.config.get_text_config())
    return [
        (parent, name, module)
        for parent in base.modules()
        for name, module in parent.named_children()
        if isinstance(getattr(module, "config", None), kind)
        and hasattr(module, "rope_type")
        and (hasattr(module, "inv_freq") or isinstance(module.rope_type, dict))
    ]


def _before(module: Any, extension: Extension) -> tuple[Tensor, float]:
    """The frequencies and the scaling of a rotary embedding that is not extended yet, as its configuration says."""
    if extension.published_factor == 1:
        return plain_frequencies(extension.theta, extension.head_dim).float(), 1.0
    new, (frequencies, scaling) = type(module)(config=module.config), frequency_names(extension.layer_type)
    return getattr(new, frequencies), getattr(new, scaling)


def _at_first(module: Any, extension: Extension) -> tuple[Tensor, float]:
    """The frequencies and the scaling of an extended rotary embedding before its first input."""
    kinds = module.rope_type
    kind = kinds if extension.layer_type is None else kinds[extension.layer_type]
    # transformers' input-dependent types start with the frequencies for up to L0.
    custom = kind == extension.custom_rope_type
    return extension.inverse_frequencies(None if custom else extension.original_length)


def _check_frequencies(module: Any, expected: Tensor, scaling: float, layer_type: str | None) -> None:
    """Raise UsageError unless a rotary embedding has these frequencies, and this factor on cos and sin."""
    inv_freq, attention_scaling = (getattr(module, name) for name in frequency_names(layer_type))
    actual = inv_freq.detach().float().cpu()
    fits = actual.shape == expected.shape and torch.allclose(actual, expected, rtol=_TOLERANCE, atol=0)
    if not fits or abs(attention_scaling - scaling) > 1e-6:
        raise UsageError(
            f"{type(module).__name__} does not compute its positions as its configuration says"
            f" (rope type {module.rope_type})",
            expected="a model whose rotary embedding has theta^(-2k/d) as its frequencies",
        )


def _scale_attention(base: PreTrainedModel) -> None:
    """Give attention the scale that its class takes from the rope parameters (mscale_all_dim of DeepSeek)."""
    with torch.device("meta"):
        twin = type(base)(copy.deepcopy(base.config))
    for name, module in twin.named_modules():
        if isinstance(getattr(module, "scaling", None), float):
            base.get_submodule(name).scaling = module.scaling


def _attach(base: PreTrainedModel, extension: Extension) -> None:
    """Add what a method does besides its frequencies to a model built from an extended configuration."""
    if extension.factor == 1:
        return
    if extension.method == "eabf":
        skipped = range(extension.options["skip_layers"])
        layers = {*extended_layers(base.config, extension)}.difference(skipped)
        scale_queries(base, extension.original_length, layers=layers)
    if extension.method == "clex":
        use_clex(base, find_rotary(base), extension)
