"""Context extension of a transformers model: its rotary embeddings rebuilt or replaced by CLEX, and restored."""

from __future__ import annotations

import contextlib
import copy
import inspect
import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from lengthwise.checkpoints.attention_layers import scale_queries
from lengthwise.checkpoints.extension import (
    WHOLE,
    Extension,
    extended_layers,
    plan_extension,
    read_extension,
    write_extension,
)
from lengthwise.checkpoints.hidden import cache_among, decoder_of, is_peft_model, unwrap
from lengthwise.checkpoints.position_limits import RECORD, far_layers, frequency_names, positions_matter
from lengthwise.checkpoints.resolve import ResolvedModel, checkpoint_file, looks_like_path, quiet_transformers
from lengthwise.checkpoints.weight_files import weight_files
from lengthwise.errors import MissingError, UsageError, require, require_integer
from lengthwise.files import read_json
from lengthwise.positions import ROPE_METHODS
from lengthwise.positions.clex import ClexFrequencies, clex_time
from lengthwise.positions.rope import plain_frequencies
from lengthwise.settings import checked

# A model that was cast to bfloat16 has frequencies of 8 bits.
_TOLERANCE = 1e-2
_TIME = "lengthwise_clex_time"


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
        saved = _saved_tensors(resolved, [*own])
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


class _ClexRotaryEmbedding(nn.Module):
    """Takes the place of a model's rotary embedding, and runs it with the frequencies of CLEX and their gradients.

    t comes from the largest position in the batch (`clex_time`), unless it is set from outside: cached keys keep
    their rotation, so t must stay the same too.
    """

    def __init__(self, rotary: Any, extension: Extension) -> None:
        super().__init__()
        self.rotary = rotary
        self.frequencies = ClexFrequencies(extension.theta, extension.head_dim, **extension.options)
        self.extension = extension
        self.fixed_time: float | None = None
        """t for every input; set by code that knows the final length."""
        self.cached_time: float | None = None
        """t of the cached keys that the input follows; set before each forward pass by code that has the cache."""
        self.time: float | None = None
        """t of the last forward pass."""

    def forward(self, x: Tensor, position_ids: Tensor, *layer_type: str) -> tuple[Tensor, Tensor]:
        """cos and sin of position * f(t), in the layout of the model: [B, T, d] each, in x's dtype."""
        if self.extension.layer_type not in (None, *layer_type):
            return self.rotary(x, position_ids, *layer_type)
        time = self.fixed_time if self.cached_time is None else self.cached_time
        if time is None:
            length = math.floor(position_ids.max().item()) + 1
            time = clex_time(length, self.extension.original_length, self.extension.factor)
        self.time = time
        name, _ = frequency_names(self.extension.layer_type)
        before = getattr(self.rotary, name)
        setattr(self.rotary, name, self.frequencies(time))
        try:
            # Without the decorators of transformers, which take the gradients away.
            return inspect.unwrap(type(self.rotary).forward)(self.rotary, x, position_ids, *layer_type)
        finally:
            setattr(self.rotary, name, before)


def clex_modules(model: nn.Module) -> list[tuple[str, _ClexRotaryEmbedding]]:
    """Name and module of every CLEX embedding."""
    return [
        (name, module) for name, module in model.named_modules() if isinstance(module, _ClexRotaryEmbedding)
    ]


@contextlib.contextmanager
def fixed_time(model: nn.Module, *, length: int) -> Iterator[None]:
    """Make a model with CLEX use the frequencies for `length` tokens, whatever its input; UsageError without CLEX.

    For generation: `length` is the prompt plus everything that will be generated. By default the prompt decides.
    """
    modules = [module for _, module in clex_modules(model)]
    require(bool(modules), "the model has no CLEX frequencies", "a model extended by clex")
    require_integer("length", length, low=1)
    before = [module.fixed_time for module in modules]
    for module in modules:
        module.fixed_time = clex_time(length, module.extension.original_length, module.extension.factor)
    try:
        yield
    finally:
        for module, time in zip(modules, before, strict=True):
            module.fixed_time = time


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
        for parent, name, old in find_rotary(base):
            clex = _ClexRotaryEmbedding(old, extension).to(next(old.buffers()).device)
            setattr(parent, name, clex.train(old.training))
        decoder = decoder_of(base)
        decoder.register_forward_pre_hook(_keep_time_of_cache, with_kwargs=True)
        decoder.register_forward_hook(_note_time_in_cache)


def _keep_time_of_cache(decoder: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
    """Tokens after cached ones are rotated with the t of the cached keys."""
    cache = cache_among(kwargs)
    follows = cache is not None and cache.get_seq_length() > 0
    for _, module in clex_modules(decoder):
        module.cached_time = getattr(cache, _TIME, None) if follows else None
        module.time = None


def _note_time_in_cache(decoder: nn.Module, args: Any, output: Any) -> None:
    cache = cache_among(output)
    if cache is not None:
        # With an adapter there are two modules, the base model's and the trained one; one of them has run.
        for _, module in clex_modules(decoder):
            if module.time is not None:
                setattr(cache, _TIME, module.time)


def _saved_tensors(resolved: ResolvedModel, names: list[str]) -> dict[str, Tensor]:
    """The tensors of these names that a safetensors checkpoint has."""
    from safetensors import safe_open

    found: dict[str, Tensor] = {}
    for file in weight_files(resolved):
        if file.suffix != ".safetensors":
            continue
        with safe_open(file, framework="pt") as tensors:
            for saved, name in itertools.product(tensors.keys(), names):
                # A model with towers saves its language model under another name than it has in memory.
                if saved == name or (saved.endswith(_tail(name)) and name not in found):
                    found[name] = tensors.get_tensor(saved)
    return found


def _tail(name: str) -> str:
    """The module and the tensor, as rotary_emb.frequencies.up: a model has one with this end."""
    return "." + ".".join(name.split(".")[-3:])
