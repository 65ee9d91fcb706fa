"""The weights of a causal LM with its tokenizer: placed, quantized, extended as they were, with an adapter."""

from __future__ import annotations

import importlib.util
import logging
import math
import re
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import nn

from lengthwise.checkpoints.files_and_model import check_files, check_weights
from lengthwise.checkpoints.position_limits import RECORD
from lengthwise.checkpoints.resolve import (
    ResolvedModel,
    quiet_transformers,
    read_config,
    read_tokenizer,
    resolve,
    unloadable,
)
from lengthwise.errors import MissingError, UsageError, reason, require_known, shown
from lengthwise.files import named_path
from lengthwise.machine import process_count, slowdown, usable_device
from lengthwise.settings import Dtype

logger = logging.getLogger(__name__)

DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in get_args(Dtype) if name != "auto"}

EMULATED = 4
"""How many times as long as float32 a dtype must take for `load` to warn of it."""


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
    if adapter is not None:
        named_path(adapter, what="the adapter")
    resolved = resolve(name_or_path, revision=revision)
    config = read_config(resolved)
    with quiet_transformers(bars=not resolved.local_files_only):
        given: dict[str, Any] = {"attn_implementation": attn_implementation, "device_map": device_map}
        if isinstance(quantization, str):
            products = torch_dtype if isinstance(torch_dtype, torch.dtype) else config.dtype or torch.float32
            quantization = quantization_config(quantization, products)
        if quantization is not None:
            given |= {"quantization_config": quantization, "device_map": device_map or {"": torch_device}}
        if tp_plan is not None:
            from transformers.distributed.configuration_utils import DistributedConfig

            check_splits(config.get_text_config())
            given |= {"distributed_config": DistributedConfig(tp_plan=tp_plan)}
        model = _load_weights(resolved, config=config, dtype=torch_dtype, **given)
        for layer in model.modules():
            if is_4bit(layer):
                # On processors with AVX512-BF16, bitsandbytes repacks 4-bit weights in the first pass in evaluation
                # mode. The product is then faster, rounds differently and has no gradient, also in later training.
                layer.support_avx512bf16_for_cpu = False
        if getattr(model.config.get_text_config(), RECORD, None) is not None:
            # Few models are extended.
            from lengthwise.checkpoints.extending import restore_extension

            restore_extension(model, resolved)
        tokenizer = read_tokenizer(resolved)
        _check_vocabulary(tokenizer, model.config.get_text_config().vocab_size, name_or_path)
        if adapter is not None:
            from lengthwise.checkpoints.extending import extend_for_adapter

            extend_for_adapter(model, adapter)
            model = add_saved_adapter(model, adapter)
    if device_map is None and tp_plan is None:
        model = model.to(torch_device)
    if model.device.type == "cpu":
        _warn_of_emulation(str(model.dtype).removeprefix("torch."), name_or_path)
    model.eval()
    return model, tokenizer, resolved.source


def _warn_of_emulation(dtype: str, name: str) -> None:
    """Warn where the processor has no instructions for half precision, which then takes tens of times as long."""
    if dtype in ("bfloat16", "float16") and (times := slowdown(dtype)) > EMULATED:
        logger.warning(
            "%s is in %s, in which this processor takes %.0f times as long as in float32: use --dtype float32",
            name,
            dtype,
            times,
        )


def check_splits(config: Any) -> None:
    """Raise UsageError unless transformers splits the layers of this text model over the processes of torchrun."""
    processes = process_count()
    if processes < 2:
        raise UsageError(
            "tp_plan spreads each layer over processes, and this is one",
            expected="torchrun --nproc-per-node N -m lengthwise ..., one process for each device",
        )
    plan = getattr(config, "base_model_tp_plan", None)
    if not plan:
        raise UsageError(
            f"transformers has no tensor parallel plan for {config.model_type}",
            fix="--device-map auto, or one process",
        )
    queries = config.num_attention_heads
    keys = getattr(config, "num_key_value_heads", None) or queries
    split = {name.rpartition(".")[2] for name, way in plan.items() if way == "colwise"}
    heads = math.gcd(*([queries] if "q_proj" in split else []), *([keys] if "k_proj" in split else []))
    if heads % processes:
        works = ", ".join(str(n) for n in range(2, heads + 1) if heads % n == 0) or "none but one"
        raise UsageError(
            f"{processes} processes cannot share {queries} heads of queries and {keys} of keys",
            expected=f"a number of processes that divides both: {works}",
        )


def quantization_config(method: str, compute_dtype: torch.dtype) -> Any:
    """The `quantization_config` with which transformers loads linear layers (not the head) in 4 or 8 bits.

    "nf4" (QLoRA, Dettmers et al. 2023; its products are in `compute_dtype`) or "int8" (LLM.int8), by bitsandbytes.
    MissingError without bitsandbytes, UsageError for another method.
    """
    if method not in ("nf4", "int8"):
        raise UsageError(f"unknown quantization {method!r}", expected="nf4 or int8")
    if importlib.util.find_spec("bitsandbytes") is None:
        raise MissingError("quantised weights need bitsandbytes", fix="pip install 'lengthwise[qlora]'")
    from transformers import BitsAndBytesConfig

    if method == "int8":
        return BitsAndBytesConfig(load_in_8bit=True)
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=compute_dtype,
    )


def is_4bit(module: nn.Module) -> bool:
    """Whether it is a linear layer with 4-bit weights. bitsandbytes is not imported for it."""
    return type(module).__name__ == "Linear4bit"


def _load_weights(resolved: ResolvedModel, **arguments: Any) -> Any:
    from transformers import AutoModelForCausalLM

    check_files(resolved)
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            resolved.location,
            output_loading_info=True,
            # What does not fit is named below: the error of transformers names nothing.
            ignore_mismatched_sizes=True,
            **resolved.arguments,
            **arguments,
        )
    except Exception as error:
        raise unloadable(resolved.name, resolved.location, error) from error
    model, info = loaded
    check_weights(model, resolved, info)
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


# What torch says of an embedding or a head; PEFT saves those of a vocabulary that was resized.
_OTHER_ROWS = re.compile(
    r"size mismatch for \S*(?:embed|wte|lm_head)\S*: .*?\[(\d+),[^]]*\]\) from checkpoint, .*?\[(\d+),"
)


# Of vectors that many layers share, and of a prompt's encoder, the files have one or none.
_SHARED = ("vblora_vector_bank", "prompt_encoder", "tinylora_v", "unilora_theta_d")


def add_saved_adapter(model: Any, adapter: str) -> nn.Module:
    """The model with a saved PEFT adapter.

    MissingError if there is none, a file of it is damaged, or PEFT is missing; UsageError if it is of another model:
    it has tensors without a place, or too few.
    """
    from lengthwise.versions import need

    need("peft")
    folder = Path(adapter).expanduser()
    if (folder / "adapter_config.json").is_file() and not [*folder.glob("adapter_model.*")]:
        raise MissingError(f"the adapter {adapter} has no adapter_model.safetensors", fix="save it again")
    try:
        with quiet_transformers():
            from peft import PeftModel

            adapted = PeftModel.from_pretrained(model, str(folder) if folder.exists() else adapter)
            # Again, for what it says of the tensors: the first time they are loaded it says nothing of most.
            found = adapted.load_adapter(str(folder) if folder.exists() else adapter, "default")
    # PEFT raises whatever a wrong value in adapter_config.json leads it to.
    except Exception as error:
        if (other := _OTHER_ROWS.search(str(error))) and other[1] != other[2]:
            raise UsageError(
                f"the adapter {adapter} has {other[1]} rows of the vocabulary, and the model {other[2]}",
                expected="the model that it was trained on, with its vocabulary",
                fix=f"resize the model as before the training: resize_token_embeddings({other[1]}), save_pretrained",
            ) from error
        misfit = UsageError if isinstance(error, RuntimeError) else MissingError
        raise unloadable(
            f"the adapter {adapter}",
            str(folder),
            error,
            otherwise=misfit,
            expected="an adapter of PEFT that was trained on this model",
        ) from error
    lost = [name for name in found.missing_keys if not any(each in name for each in _SHARED)]
    # Of a prompt, what its encoder made before it was saved.
    surplus = [name for name in found.unexpected_keys if name != "prompt_embeddings"]
    if lost or surplus:
        words = {"the model has no place for": surplus, "there are no weights for": lost}
        problem = "; ".join(f"{what} {shown(', '.join(names))}" for what, names in words.items() if names)
        raise UsageError(
            f"the adapter {adapter} does not fit: {problem}",
            expected="the model that it was trained on, and an adapter_config.json that names all that it changes",
            fix="load it with its own base model, or save it again",
        )
    return adapted


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
