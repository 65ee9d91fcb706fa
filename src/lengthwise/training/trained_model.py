"""The model of a run: loaded, extended, given its adapter (a recipe's `adapter` or `peft`)."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers import set_seed

from lengthwise.errors import UsageError, nearest, reason
from lengthwise.models import LoadedModel, extend, load
from lengthwise.models.attention import use_attention
from lengthwise.models.extension import clex_modules
from lengthwise.models.hidden import unwrap
from lengthwise.models.loading import DTYPES
from lengthwise.models.local_positions import sliding_layers
from lengthwise.models.position_limits import check_positions_fit, max_positions, rope_by_input_length
from lengthwise.models.quantization import nf4_config
from lengthwise.models.quiet import quiet_transformers
from lengthwise.training.recipe import Adapter, Peft, Recipe
from lengthwise.training.views import VIEWS

if TYPE_CHECKING:
    from peft import LoraConfig, PeftConfig


def load_for_training(recipe: Recipe) -> LoadedModel:
    """The recipe's model, extended as its `extend` says, with the attention of its `attention`.

    In the dtype of its `precision`, on the CPU (the Trainer moves it); 4-bit weights on the recipe's device.

    Raises:
        UsageError: the model's table of positions ends within a view, or the model cannot be extended so.
        MissingError: the model, or the package for 4-bit weights, is missing.
    """
    frozen_base = (recipe.adapter or recipe.peft) is not None and recipe.precision == "bfloat16"
    dtype = "bfloat16" if frozen_base else "float32"
    if (quantize := recipe.quantize) is None:
        loaded = load(recipe.model, dtype=dtype, device="cpu")
    else:
        config = nf4_config(double=quantize.double, compute_dtype=DTYPES[dtype])
        loaded = load(recipe.model, dtype=dtype, device=recipe.device, quantization=config)
    check_positions_fit(loaded.max_positions, recipe.length, name=recipe.model, setting="length")
    if (section := recipe.extend) is not None:
        extend(
            loaded.model,
            section.method,
            factor=section.factor,
            original_length=section.original_length,
            name=recipe.model,
            **section.options,
        )
    if (attention := recipe.attention) is not None:
        use_attention(loaded.model, attention.method, group=attention.group)
    check_positions(recipe, loaded.model)
    return loaded


def seeded_model(recipe: Recipe) -> LoadedModel:
    """The model that a run of this recipe starts from, without its adapter.

    Sets the seeds of Python, numpy and torch: an extension may have weights of its own, drawn anew (CLEX).
    """
    set_seed(recipe.seed)
    return load_for_training(recipe)


def check_positions(recipe: Recipe, model: nn.Module) -> None:
    """Refuse sampled positions for a model that cannot use them.

    Args:
        recipe: a checked recipe.
        model: its model, extended; weights are not looked at.

    Raises:
        UsageError: views have positions other than 0 .. L-1, and the model takes no position ids, has a table of
            positions that ends before, has frequencies that depend on the positions of earlier steps, or sees none of
            these positions because every layer's window is shorter.
    """
    if recipe.positions is not None:
        said, setting = f"positions.sampler = {recipe.positions.sampler}", "positions.target_length"
        target = recipe.positions.target_length
    elif VIEWS[recipe.views].positions == "own":
        said, setting, target = f"views = {recipe.views}", "length", recipe.length
    else:
        return
    base = unwrap(model)
    if "position_ids" not in inspect.signature(base.forward).parameters:
        raise UsageError(
            f"{said}, and {recipe.model} takes no position ids",
            expected="a model with rotary or learned positions",
        )
    check_positions_fit(max_positions(base), target, name=recipe.model, setting=setting)
    if recipe.positions is not None and rope_by_input_length(base.config.get_text_config()) == "dynamic":
        raise UsageError(
            f"{said} with dynamic rope: its frequencies stay at the longest position so far. "
            "So a step would depend on the draws of the steps before it",
            expected="ntk, yarn or another extension whose frequencies do not change",
        )
    text: Any = base.config.get_text_config()
    local = sliding_layers(text)
    if len(local) == text.num_hidden_layers and target > (window := text.sliding_window):
        raise UsageError(
            f"{setting} = {target}, and every layer of {recipe.model} sees {window} tokens",
            expected=f"{window} or fewer, or a model with layers that see the whole context",
        )


@quiet_transformers()
def add_adapter(model: Any, adapter: Adapter | Peft | None) -> Any:
    """The model with fresh adapters and all else frozen; with None, the model itself, all trainable.

    Trained weights are float32, whatever the frozen ones are. The learned part of an extension is trained whole
    and saved with the adapter.

    Raises:
        UsageError: the method does not fit the model, or names layers that the model does not have.
    """
    if adapter is None:
        return model.requires_grad_(True)
    from peft import get_peft_model

    config = lora_config(model, adapter) if isinstance(adapter, Adapter) else peft_config(adapter)
    add_saved(config, {name.rpartition(".")[2] for name, _ in clex_modules(model)})
    try:
        adapted = get_peft_model(model, config)
    # PEFT takes options of any type, and fails with whatever they lead to when it uses them.
    except (ValueError, TypeError, AttributeError, LookupError, ArithmeticError) as error:
        what = (
            f"adapter.target_modules = {adapter.target_modules!r}"
            if isinstance(adapter, Adapter)
            else f"peft.config = {adapter.config} with {adapter.options}"
        )
        raise UsageError(
            f"{what} does not fit the model: {reason(error)}",
            expected="options of the right type, and all-linear, or names among: "
            + ", ".join(linear_names(model)),
        ) from error
    for parameter in adapted.parameters():
        if parameter.requires_grad and parameter.dtype in (torch.bfloat16, torch.float16):
            parameter.data = parameter.data.float()
    return adapted


@quiet_transformers()
def peft_config(section: Peft) -> PeftConfig:
    """The configuration that a recipe's `peft` names.

    Raises:
        UsageError: peft has no such class, or it does not take these options.
    """
    import peft

    kinds = {
        name
        for name, value in vars(peft).items()
        if inspect.isclass(value) and issubclass(value, peft.PeftConfig) and name.endswith("Config")
    }
    if section.config not in kinds:
        raise UsageError(f"peft has no {section.config}", expected=nearest(section.config, sorted(kinds)))
    kind = getattr(peft, section.config)
    names = inspect.signature(kind).parameters
    for name in section.options:
        if name not in names:
            raise UsageError(f"{section.config} has no {name!r}", expected=nearest(name, names))
    try:
        return kind(**{"task_type": "CAUSAL_LM"} | section.options)
    except (ValueError, TypeError, AttributeError, LookupError, ArithmeticError) as error:
        raise UsageError(f"{section.config} refuses its options: {reason(error)}") from error


def lora_config(model: Any, adapter: Adapter) -> LoraConfig:
    """LoRA as a recipe's `adapter` says, with the modules of this model."""
    from peft import LoraConfig

    modules = adapter.target_modules
    saved = _saved_modules(model, adapter.modules_to_save)
    embeddings = unwrap(model).get_input_embeddings()
    tied = embeddings.weight is getattr(unwrap(model).get_output_embeddings(), "weight", None)
    return LoraConfig(
        task_type="CAUSAL_LM",
        r=adapter.r,
        lora_alpha=adapter.alpha,  # pyright: ignore[reportArgumentType]
        lora_dropout=adapter.dropout,
        target_modules=modules if isinstance(modules, str) else list(modules),
        modules_to_save=saved or None,
        # A head that is tied to the embedding stays tied.
        ensure_weight_tying=tied and "embeddings" in adapter.modules_to_save,
    )


def add_saved(config: Any, names: Iterable[str]) -> None:
    """Have peft train and save these modules whole, besides those that the configuration names.

    Raises:
        UsageError: the method saves no whole modules.
    """
    names = sorted(names)
    if not names:
        return
    if not hasattr(config, "modules_to_save"):
        raise UsageError(
            f"{type(config).__name__} saves no whole modules, so the learned part of the extension "
            f"({', '.join(names)}) could not be trained with it",
            expected="a LoRA, or another extension",
        )
    before: list[str] = list(config.modules_to_save or [])
    config.modules_to_save = [*before, *(name for name in names if name not in before)]


def _saved_modules(model: Any, wanted: Iterable[str]) -> list[str]:
    base = unwrap(model)
    embeddings = base.get_input_embeddings()
    groups = {
        "embeddings": {_last(name) for name, module in base.named_modules() if module is embeddings},
        "norms": {
            _last(name)
            for name, module in base.named_modules()
            if "norm" in type(module).__name__.lower() and any(True for _ in module.parameters(recurse=False))
        },
    }
    last_names = {_last(name) for name, _ in base.named_modules() if name}
    found: set[str] = set()
    for name in wanted:
        if name not in groups and _last(name) not in last_names:
            raise UsageError(
                f"adapter.modules_to_save names {name!r}, which the model does not have",
                expected=nearest(name, sorted({*groups, *last_names})),
            )
        found |= groups.get(name, {name})
    return sorted(found)


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def linear_names(model: nn.Module) -> list[str]:
    """Last names of the model's linear layers, for errors."""
    return sorted({_last(name) for name, module in model.named_modules() if isinstance(module, nn.Linear)})
