"""From a recipe's `adapter` or `peft` to the configuration that peft takes."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

from peft import LoraConfig, PeftConfig
from torch import nn

from lengthwise.errors import UsageError, nearest
from lengthwise.models.hidden import unwrap
from lengthwise.training.recipe import Adapter, Peft


def peft_config(section: Peft) -> PeftConfig:
    """The configuration that a recipe's `peft` names.

    Raises:
        UsageError: peft has no such class, or it does not take these options.
    """
    import peft

    kinds = {
        name
        for name, value in vars(peft).items()
        if inspect.isclass(value) and issubclass(value, PeftConfig) and name.endswith("Config")
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
    except (TypeError, ValueError) as error:
        raise UsageError(f"{section.config} refuses its options: {error}") from error


def lora_config(model: Any, adapter: Adapter) -> LoraConfig:
    """LoRA as a recipe's `adapter` says, with the modules of this model."""
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
        # A head that is the embedding goes on being it.
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
