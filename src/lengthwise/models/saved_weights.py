"""Saved weights of a checkpoint and of an adapter, refused where they are damaged, incomplete or do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from lengthwise.errors import LengthwiseError, MissingError, UsageError, reason
from lengthwise.models.quiet import quiet_transformers
from lengthwise.models.resolve import (
    ResolvedModel,
    check_whole,
    damaged_json,
    is_damage,
    looks_like_path,
    read_config,
    unloadable,
)

ADAPTER_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")


def load_weights(resolved: ResolvedModel, dtype: torch.dtype | str, others: dict[str, Any]) -> Any:
    """The causal LM of a checkpoint.

    Args:
        resolved: where it is.
        dtype: of the weights, or "auto".
        others: further arguments of `from_pretrained`.

    Raises:
        MissingError: the checkpoint is damaged, or has no values for some weights.
        UsageError: it is no causal LM, or an argument does not fit it (`unloadable`).
    """
    from transformers import AutoModelForCausalLM

    config = read_config(resolved)
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            resolved.location,
            config=config,
            dtype=dtype,
            output_loading_info=True,
            **resolved.arguments,
            **others,
        )
    except (LengthwiseError, MemoryError):
        raise
    except Exception as error:
        # Exhausted memory is a RuntimeError too, and has its own explanation.
        if isinstance(error, torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error):
            raise
        raise unloadable(resolved, error) from error
    model, info = loaded
    _check_loaded(info, resolved.name)
    return model


def _check_loaded(info: dict[str, Any], name: str) -> None:
    """Raise MissingError if the checkpoint had no values for some weights, which would be random."""
    missing = sorted(info["missing_keys"]) + sorted(str(key) for key in info["mismatched_keys"])
    if missing:
        shown = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
        raise MissingError(
            f"the checkpoint of {name} has no weights for {shown}",
            expected="every weight of the model (missing ones would be random)",
            fix="download the model again, or save it with its output head",
        )


def check_vocabulary(tokenizer: Any, vocab_size: int, name: str) -> None:
    """Raise UsageError if plain text can become ids that the model does not have.

    The vocabulary may be larger than the tokenizer's. Special tokens may lie beyond it: some text models come with
    the tokenizer of their multimodal relatives.
    """
    special = set(tokenizer.all_special_ids)
    beyond = [
        index
        for token, index in tokenizer.get_vocab().items()
        if index >= vocab_size and index not in special and not _is_special(tokenizer, index)
    ]
    if beyond:
        raise UsageError(
            f"the tokenizer of {name} has ids up to {max(beyond)}, the model a vocabulary of {vocab_size}",
            expected="the tokenizer that the model was trained with",
            fix="put the right tokenizer files beside the weights",
        )


def _is_special(tokenizer: Any, index: int) -> bool:
    added = tokenizer.added_tokens_decoder.get(index)
    return added is not None and added.special


def add_saved_adapter(model: Any, adapter: str) -> nn.Module:
    """The model with a saved PEFT adapter.

    Raises:
        MissingError: there is none, or a file of it is damaged.
        UsageError: it is of another model.
    """
    folder = Path(adapter).expanduser()
    if not folder.exists() and looks_like_path(adapter):
        raise MissingError(f"there is no adapter folder {adapter}", fix="check the path")
    if folder.exists() and not (folder / "adapter_config.json").is_file():
        raise MissingError(
            f"{adapter} has no adapter_config.json", expected="a folder saved by PEFT's save_pretrained"
        )
    weights = next(
        (folder / name for name in ADAPTER_WEIGHTS if (folder / name).is_file()), folder / ADAPTER_WEIGHTS[0]
    )
    if folder.exists():
        if (damaged := damaged_json(folder)) is not None:
            raise MissingError(f"{damaged} is damaged: it is no JSON object", fix="copy the adapter again")
        if weights.is_file():
            check_whole(weights)
    try:
        with quiet_transformers():
            from peft import PeftModel

            return PeftModel.from_pretrained(model, str(folder) if folder.exists() else adapter)
    except MemoryError:
        raise
    # PEFT raises whatever a wrong value in adapter_config.json leads it to.
    except Exception as error:
        if is_damage(error):
            raise MissingError(
                f"{weights} cannot be read: damaged, or it holds other objects than tensors",
                fix="copy the adapter again",
            ) from error
        if isinstance(error, RuntimeError) and not isinstance(error, RecursionError):
            raise UsageError(
                f"the adapter {adapter} does not fit the model: {reason(error)}",
                fix="load the model that it was trained on",
            ) from error
        raise MissingError(f"the adapter {adapter} cannot be loaded: {reason(error)}") from error
