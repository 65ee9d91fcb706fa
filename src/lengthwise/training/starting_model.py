"""What a recipe starts from: its model, loaded, extended and with an adapter, or without weights; and its text."""

from __future__ import annotations

import copy
import inspect
import logging
import math
import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import set_seed

from lengthwise.checkpoints import extend
from lengthwise.checkpoints.attention_layers import use_shifted_sparse
from lengthwise.checkpoints.clex_rotary import clex_modules
from lengthwise.checkpoints.extension import plan_extension, write_extension
from lengthwise.checkpoints.hidden import unwrap
from lengthwise.checkpoints.loading import load_weights, model_skeleton
from lengthwise.checkpoints.position_limits import (
    check_positions_fit,
    max_positions,
    positions_matter,
    rope_by_input_length,
    sliding_layers,
)
from lengthwise.checkpoints.resolve import quiet_transformers
from lengthwise.checkpoints.variants import check_reads_scales
from lengthwise.errors import UsageError, nearest, reason, require, require_kind
from lengthwise.machine import warn_of_emulation
from lengthwise.subjects import LoadedModel
from lengthwise.text import Corpus, TokenDocument, load_corpus, pack_documents, resolve_bos, tokenize
from lengthwise.training.beside_text import beside_text, exclude_beside_text
from lengthwise.training.recipe import Recipe
from lengthwise.training.sections import PEFT_FAILURES, Adapter

logger = logging.getLogger(__name__)

FULL_PRECISION = "--set precision=float32"
_PROBED = 8
"""Tokens that a model reads before it is trained."""


def load_for_training(recipe: Recipe) -> LoadedModel:
    """The recipe's model without its adapter, extended as `extend` says, with the attention of training.

    In the dtype of its `precision`, on the CPU (the Trainer moves it); 4-bit weights on the recipe's device. Sets the
    seeds of Python, numpy and torch: an extension may have weights of its own, drawn at random (CLEX).

    Raises:
        UsageError: the model's table of positions ends within a view, or the model cannot be extended so.
        MissingError: the model, or the package for 4-bit weights, is missing.
    """
    set_seed(recipe.seed)
    dtype = "bfloat16" if recipe.adapter is not None and recipe.precision == "bfloat16" else "float32"
    device = "cpu" if recipe.quantize is None else recipe.device
    # Not `load`, which warns of the processor where it places the weights: the Trainer moves them.
    model, tokenizer, source = load_weights(
        recipe.model, dtype=dtype, device=device, quantization=recipe.quantize
    )
    loaded = LoadedModel(model, tokenizer, recipe.model, source)
    loaded.check_faults()
    if recipe.on_cpu:
        warn_of_emulation(recipe.precision, "the training", fix=FULL_PRECISION)
    check_positions_fit(loaded.max_positions, recipe.length, name=recipe.model, setting="length")
    if (section := recipe.extend) is not None:
        shape = section.model_dump(exclude={"options"})
        extend(loaded.model, name=recipe.model, **shape, **section.options)
    if recipe.shifted_sparse is not None:
        use_shifted_sparse(loaded.model, recipe.shifted_sparse)
    check_positions(recipe, loaded.model)
    check_fixed_length(recipe, loaded.model)
    _check_recomputed(recipe, loaded.model)
    # Refused as where it is measured: what sees later tokens, or is not the same each time.
    loaded.hidden_states(torch.arange(_PROBED)[None] % loaded.vocab_size)
    return loaded


def _check_recomputed(recipe: Recipe, model: Any) -> None:
    """Raise UsageError for gradient checkpointing of a class that has none."""
    able = not recipe.gradient_checkpointing or unwrap(model).supports_gradient_checkpointing
    require(able, f"gradient_checkpointing, which a {type(unwrap(model)).__name__} does not have", "false")


def check_fixed_length(recipe: Recipe, model: nn.Module) -> None:
    """Raise UsageError for views of another length than the one that a model can train on (axial positions)."""
    config: Any = unwrap(model).config
    shape = getattr(config, "axial_pos_shape", None) if getattr(config, "axial_pos_embds", False) else None
    if shape is not None and math.prod(shape) != recipe.length:
        raise UsageError(
            f"length = {recipe.length}, and {recipe.model} trains on {math.prod(shape)} tokens alone: its table of "
            f"positions is {' by '.join(map(str, shape))}",
            fix=f"--set length={math.prod(shape)}, or a model with rotary or learned positions",
        )


def training_documents(recipe: Recipe, tokenizer: Any) -> tuple[Sequence[TokenDocument], dict[str, Any]]:
    """The recipe's text as tokens, and what a result records of it.

    Raises as `load_corpus`; UsageError for packing without an EOS token.
    """
    data = recipe.data
    corpus = load_corpus(data.corpus, **data.of_text()).rendered(tokenizer)
    documents = tokenize(corpus, tokenizer)
    too_short = {} if data.packing else documents.left_out([recipe.view.longest_stretch])
    facts = {
        **corpus.facts,
        "tokenizer_fingerprint": documents.tokenizer_fingerprint,
        "corpus_tokens": documents.total_tokens,
        "bos_id": resolve_bos(tokenizer, data.bos),
        "tokens": recipe.steps * recipe.batch.size * 2 * recipe.length,
        "left_out": {**corpus.left_out, **too_short},
    }
    if not data.packing:
        return documents, facts
    return pack_documents(documents, eos_id=tokenizer.eos_token_id, seed=recipe.seed), facts


def held_out_text(recipe: Recipe, tokenizer: Any) -> tuple[Corpus, Sequence[TokenDocument]]:
    """The text of `eval` without copies of what is trained on, also as tokens.

    Raises as `training_documents`; UsageError if nothing is left.
    """
    assert recipe.eval is not None
    data, options = recipe.data, {**recipe.data.of_text(), "split": recipe.eval.split}
    whole = load_corpus(recipe.eval.corpus or data.corpus, **options)
    fresh = whole.without({*load_corpus(data.corpus, **data.of_text()).documents.values()})
    if copies := len(whole.documents) - len(fresh.documents):
        what = f"eval: {copies} of {len(whole.documents)} documents of {whole.name} are trained on"
        if not fresh.documents:
            raise UsageError(what, expected="text that is not trained on", fix="another eval.corpus or split")
        logger.warning("%s, and left out", what)
    corpus = fresh.rendered(tokenizer)
    return corpus, tokenize(corpus, tokenizer)


def recipe_skeleton(recipe: Recipe, config: Any) -> Any:
    """The model of `config` with the recipe's extension and adapter, on the meta device; raises as `extend`."""
    config = copy.deepcopy(config)
    if (section := recipe.extend) is not None:
        with quiet_transformers():
            write_extension(config, plan_extension(config, name=recipe.model, **section.model_dump()))
    model = model_skeleton(config)
    check_positions(recipe, model)
    _check_recomputed(recipe, model)
    with torch.device("meta"):
        return add_adapter(model, recipe.adapter)


def check_positions(recipe: Recipe, model: nn.Module) -> None:
    """Raise UsageError if the (extended) model cannot use the recipe's positions."""
    if recipe.positions is not None:
        wanted, setting = f"positions.sampler = {recipe.positions.sampler}", "positions.target_length"
        target = recipe.positions.target_length
    elif recipe.views == "cyclic":
        wanted, setting, target = "views = cyclic", "length", recipe.length
    else:
        return
    base = unwrap(model)
    if "position_ids" not in inspect.signature(base.forward).parameters:
        raise UsageError(
            f"{wanted}, and {recipe.model} takes no position ids",
            expected="a model with rotary or learned positions",
        )
    check_positions_fit(max_positions(base), target, name=recipe.model, setting=setting)
    text: Any = base.config.get_text_config()
    if recipe.positions is not None and rope_by_input_length(text) == "dynamic":
        raise UsageError(
            f"{wanted} with dynamic rope: its frequencies stay at the longest position so far. "
            "So a step would depend on the draws of the steps before it",
            expected="ntk, yarn or another extension whose frequencies do not change",
        )
    if not positions_matter(base):
        raise UsageError(
            f"{wanted}, and {recipe.model} predicts the same wherever its tokens are",
            expected="a model with rotary or learned positions",
        )
    if len(sliding_layers(text)) == text.num_hidden_layers and target > (window := text.sliding_window):
        raise UsageError(
            f"{setting} = {target}, and every layer of {recipe.model} sees {window} tokens",
            expected=f"{window} or fewer, or a model with layers that see the whole context",
        )


def add_adapter(model: Any, adapter: Adapter | None) -> Any:
    """The model with fresh adapters in float32 and all else frozen; with None, the model itself, all trainable.

    The learned part of an extension is trained whole and saved with the adapter; a tower for images is not trained.
    UsageError if the method does not fit the model, names layers that the model does not have, or can train nothing.
    """
    if adapter is None:
        model.requires_grad_(True)
        for name in beside_text(model):
            model.get_submodule(name).requires_grad_(False)
        return model
    from peft import get_peft_model

    config = adapter.peft_config()
    _check_has_effect(config, adapter)
    _save_whole_modules(config, model)
    _exclude_unfit(config, model)
    if hasattr(config, "exclude_modules"):
        exclude_beside_text(config, model)
    try:
        with quiet_transformers():
            adapted = get_peft_model(model, config)
    except PEFT_FAILURES as error:
        raise UsageError(
            f"adapter: {adapter.config} does not fit the model: {reason(error)}",
            fix="set adapter.target_modules",
        ) from error
    _check_patterns(adapted, config)
    if not any(parameter.requires_grad for parameter in adapted.parameters()):
        raise UsageError(
            "the adapter has no parameter that is trained", fix="leave adapter.inference_mode out"
        )
    check_reads_scales(adapted, "adapter")
    for parameter in adapted.parameters():
        if parameter.requires_grad and parameter.dtype in (torch.bfloat16, torch.float16):
            parameter.data = parameter.data.float()
    return adapted


def _check_has_effect(config: Any, adapter: Adapter) -> None:
    """Refuse options with which the adapter's own weights get no gradient, and those that PEFT overwrites."""
    for name, value in vars(config).items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if name.endswith("dropout"):
            require(
                0 <= value < 1, f"adapter.{name} = {value}", "0 or more, and less than 1, which drops all"
            )
        elif name in ("alpha", "lora_alpha"):
            require(
                value != 0, f"adapter.{name} = 0: it scales the adapter, which trains nothing then", "not 0"
            )
    given = adapter.model_extra or {}
    tokens = given.get("alora_invocation_tokens")
    why = f"adapter.alora_invocation_tokens = {tokens}: only text behind them is trained on"
    require(tokens is None, why, "null: windows begin anywhere in a text")
    for name, own, fix in (
        ("peft_type", str(getattr(config.peft_type, "value", config.peft_type)), "set adapter.config"),
        ("revision", None, "leave it out"),
    ):
        if given.get(name) not in (None, own):
            raise UsageError(f"adapter.{name} = {given[name]}, which has no effect", fix=fix)


def _check_patterns(adapted: Any, config: Any) -> None:
    """Refuse a rank or an alpha for layers that the adapter does not have."""
    names = ("targeted_module_names", "targeted_parameter_names")
    layers = [layer for name in names for layer in getattr(adapted.base_model, name, [])]
    for name in ("rank_pattern", "alpha_pattern"):
        for pattern in getattr(config, name, None) or ():
            # As PEFT matches them.
            if not any(re.match(rf"(.*\.)?({pattern})$", layer) for layer in layers):
                raise UsageError(
                    f"adapter.{name} has {pattern!r}, which none of the adapter's layers is called",
                    expected=nearest(pattern, {_last(layer) for layer in layers}),
                )


def _save_whole_modules(config: Any, model: nn.Module) -> None:
    """Name the modules of this model that are trained and saved whole: those asked for, and a learned extension's."""
    learned = {_last(name) for name, _ in clex_modules(model)}
    if not hasattr(config, "modules_to_save"):
        if learned:
            raise UsageError(
                f"{type(config).__name__} saves no whole modules, so {', '.join(learned)} of the extension could not "
                "be trained with it",
                expected="a LoRA, or another extension",
            )
        return
    base: Any = unwrap(model)
    embeddings = base.get_input_embeddings()
    named = [(_last(name), module) for name, module in base.named_modules() if name]
    known = {name: {name} for name, _ in named}
    known["embeddings"] = {name for name, module in named if module is embeddings}
    known["norms"] = {
        name
        for name, module in named
        if "norm" in type(module).__name__.lower() and [*module.parameters(recurse=False)]
    }
    wanted: list[str] = config.modules_to_save or []
    require_kind("adapter.modules_to_save", wanted, (list, tuple, set), "a list of names of modules")
    for name in wanted:
        if name not in known and _last(name) not in known:
            raise UsageError(
                f"adapter.modules_to_save names {name!r}, which the model does not have",
                expected=nearest(name, known),
            )
    config.modules_to_save = sorted(learned.union(*(known.get(name, {name}) for name in wanted))) or None
    head = getattr(base.get_output_embeddings(), "weight", None)
    if "embeddings" in wanted and embeddings.weight is head:
        # A head that is tied to the embedding stays tied.
        config.ensure_weight_tying = True


def _exclude_unfit(config: Any, model: nn.Module) -> None:
    """Leave out of "all-linear" what PEFT refuses (out_proj of Mamba), and linear layers that are more (routers)."""
    from peft.tuners.tuners_utils import _check_lora_target_modules_mamba

    if getattr(config, "target_modules", None) != "all-linear" or getattr(config, "exclude_modules", None):
        return
    unfit = set[str]()
    for name, module in unwrap(model).named_modules():
        if not isinstance(module, nn.Linear):
            continue
        try:
            _check_lora_target_modules_mamba(config, model, _last(name))
        except ValueError:
            unfit.add(_last(name))
        if type(module).__module__.startswith("transformers.models.") and not _gives_product(module):
            unfit.add(name)
    config.exclude_modules = sorted(unfit) or None


@torch.no_grad()
def _gives_product(module: nn.Linear) -> bool:
    """Whether a linear layer of an architecture's own class gives a tensor, to which PEFT can add its own."""
    try:
        return isinstance(module(module.weight.new_zeros(1, 1, module.in_features)), Tensor)
    # Layers of several parts take another shape.
    except RuntimeError:
        return False


def _last(name: str) -> str:
    return name.rpartition(".")[2]
