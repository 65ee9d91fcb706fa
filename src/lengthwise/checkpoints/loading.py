"""The weights of a causal LM with its tokenizer; what is asked for beyond the files is in `variants`."""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch

from lengthwise.checkpoints.position_limits import RECORD
from lengthwise.checkpoints.resolve import (
    ResolvedModel,
    quiet_transformers,
    read_config,
    read_tokenizer,
    resolve,
)
from lengthwise.checkpoints.stored_weights import (
    check_files,
    check_finite,
    check_stored,
    check_weights,
    is_4bit,
    stored_quantization,
)
from lengthwise.errors import UsageError, reason, require_known, shown
from lengthwise.machine import usable_device
from lengthwise.settings import Dtype

DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in get_args(Dtype) if name != "auto"}


def load_weights(
    name_or_path: str,
    *,
    dtype: Dtype = "auto",
    device: str = "auto",
    adapter: str | None = None,
    revision: str | None = None,
    attn_implementation: str | None = None,
    quantization: Any = None,
    device_map: Any = None,
    tp_plan: Literal["auto"] | None = None,
) -> tuple[Any, Any, str]:
    """The model in eval mode, its tokenizer, and where it came from; see `lengthwise.load`."""
    require_known(dtype, ["auto", *DTYPES], "unknown dtype")
    torch_dtype = DTYPES.get(dtype, "auto")
    placed = {"device": None if device == "auto" else device, "device_map": device_map, "tp_plan": tp_plan}
    placed = {name: where for name, where in placed.items() if where is not None}
    if len(placed) > 1:
        raise UsageError(f"{shown(placed)} each place the weights", expected="one of them")
    torch_device = torch.device(usable_device(device))
    if adapter is not None or attn_implementation is not None:
        from lengthwise.checkpoints.variants import check_adapter, check_attention

        if adapter is not None:
            check_adapter(adapter)
        if attn_implementation is not None:
            check_attention(attn_implementation)
    resolved = resolve(name_or_path, revision=revision)
    config = read_config(resolved)
    with quiet_transformers(bars=not resolved.local_files_only):
        given: dict[str, Any] = {"attn_implementation": attn_implementation, "device_map": device_map}
        if quantization is not None:
            from lengthwise.checkpoints.variants import check_stored_quantization, quantization_config

            check_stored_quantization(config, quantization, resolved.name)
            if isinstance(quantization, str):
                products = torch_dtype if isinstance(torch_dtype, torch.dtype) else config.dtype
                quantization = quantization_config(quantization, products or torch.float32)
            given |= {"quantization_config": quantization, "device_map": device_map or {"": torch_device}}
        if tp_plan is not None:
            from lengthwise.checkpoints.variants import check_splits

            check_splits(config.get_text_config())
            from transformers.distributed.configuration_utils import DistributedConfig

            given |= {"distributed_config": DistributedConfig(tp_plan=tp_plan)}
        if given["device_map"] is not None or tp_plan is not None:
            from lengthwise.versions import need

            need("accelerate")
        model = _load_weights(resolved, config=config, dtype=torch_dtype, **given)
        for layer in model.modules():
            if is_4bit(layer):
                # On processors with AVX512-BF16, bitsandbytes repacks 4-bit weights in the first pass in evaluation
                # mode. The product is then faster, rounds differently and has no gradient, also in later training.
                layer.support_avx512bf16_for_cpu = False
        tokenizer = read_tokenizer(resolved)
        _check_vocabulary(tokenizer, model.config.get_text_config().vocab_size, name_or_path)
        if adapter is not None:
            from lengthwise.checkpoints.extending import extend_for_adapter
            from lengthwise.checkpoints.variants import add_saved_adapter

            extend_for_adapter(model, adapter)
            model = add_saved_adapter(model, adapter)
    if device_map is None and tp_plan is None:
        model = model.to(torch_device)
    model.eval()
    return model, tokenizer, resolved.source


def _load_weights(resolved: ResolvedModel, config: Any, **arguments: Any) -> Any:
    from transformers import AutoModelForCausalLM

    check_files(resolved, stored_quantization(config))
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            resolved.location,
            output_loading_info=True,
            # What does not fit is named below: the error of transformers names nothing.
            ignore_mismatched_sizes=True,
            config=config,
            **resolved.arguments,
            **arguments,
        )
    except Exception as error:
        from lengthwise.checkpoints.damage import unloadable

        raise unloadable(resolved.name, resolved.location, error) from error
    model, info = loaded
    if getattr(model.config.get_text_config(), RECORD, None) is not None:
        # Few models are extended.
        from lengthwise.checkpoints.extending import restore_extension

        restore_extension(model, resolved)
    # First: nothing is equal to NaN.
    check_finite(model, resolved.name)
    check_weights(model, resolved, info)
    check_stored(model, resolved, config, info["unexpected_keys"])
    return model


def _check_vocabulary(tokenizer: Any, vocab_size: int, name: str) -> None:
    """Raise UsageError if plain text can become ids that the model does not have.

    The vocabulary may be larger than the tokenizer's. Special tokens may lie beyond it: some text models come with
    the tokenizer of their multimodal relatives.
    """
    special = {index for index, added in tokenizer.added_tokens_decoder.items() if added.special}
    special.update(tokenizer.all_special_ids)
    largest = max(index for index in tokenizer.get_vocab().values() if index not in special)
    if largest >= vocab_size:
        raise UsageError(
            f"the tokenizer of {name} has ids up to {largest}, the model a vocabulary of {vocab_size}",
            expected="the tokenizer that the model was trained with",
            fix="put the right tokenizer files beside the weights",
        )


def model_skeleton(config: Any) -> Any:
    """The causal LM of a configuration, on the meta device: shapes without weights."""
    from transformers import AutoModelForCausalLM

    try:
        with quiet_transformers(), torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
            # Some older transformers tie weights that have data alone, and a shared table would count twice.
            model.tie_weights()
            return model
    # An impossible value in config.json leads to errors of many types.
    except Exception as error:
        name = config.name_or_path or f"the {config.model_type} model"
        raise UsageError(f"{name} cannot be built from its config.json: {reason(error)}") from error
