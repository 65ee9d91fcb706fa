"""`load`: a causal LM with its tokenizer, its output head and the facts that every result records."""

from __future__ import annotations

import importlib.util
import logging
import math
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import nn

from lengthwise.errors import MissingError, UsageError, nearest, shown
from lengthwise.files import LLAMA_CPP, is_url, named_path
from lengthwise.machine import process_count, slowdown, usable_device
from lengthwise.models.extending import extend_for_adapter, restore_extension
from lengthwise.models.extension import read_extension
from lengthwise.models.hidden import unwrap
from lengthwise.models.loaded_model import LoadedModel, Predictor
from lengthwise.models.reading_path import cache_maker, reading_path
from lengthwise.models.resolve import (
    ResolvedModel,
    check_served,
    quiet_transformers,
    read_config,
    read_tokenizer,
    resolve,
    unloadable,
)
from lengthwise.settings import Dtype, Subject

logger = logging.getLogger(__name__)

DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in get_args(Dtype) if name != "auto"}

EMULATED = 4
"""How many times as long as float32 a dtype must take for `load` to warn of it."""

ModelLike = Predictor | str | Path | tuple[Any, Any]
"""A loaded model, an endpoint, its URL, the name or path of a model, or a pair (model, tokenizer)."""


def as_model(model: ModelLike) -> Predictor:
    """The model that is given by itself, by its name, path or URL, or as a pair (model, tokenizer).

    Raises:
        UsageError, MissingError: as `open_model`; or it is something else.
    """
    match model:
        case str() | Path():
            return open_model(Subject(model=str(model)))
        case (nn.Module() as module, tokenizer) if hasattr(tokenizer, "decode"):
            name: str = unwrap(module).name_or_path or type(unwrap(module)).__name__
            return LoadedModel(module, tokenizer, name, "memory")
        case _ if not isinstance(model, tuple) and hasattr(model, "token_losses"):
            return model
        case _:
            raise UsageError(
                f"a {type(model).__name__} is not a model",
                expected="a LoadedModel, a name or path, or a pair (model, tokenizer)",
            )


def open_model(subject: Subject, *, tokenizer: Any = None) -> Predictor:
    """The model of a subject, loaded, or its endpoint or GGUF file, opened; `tokenizer` for these if they name none.

    Raises:
        UsageError, MissingError: as `load`, `Endpoint` or `LlamaCpp`; or a setting that only another of them has.
    """
    check_served(subject)
    if subject.model.startswith(LLAMA_CPP):
        from lengthwise.models.llama_cpp import LlamaCpp

        return LlamaCpp(subject, tokenizer=tokenizer)
    path, make_cache = reading_path(subject), cache_maker(subject)
    model: Any
    if is_url(subject.model):
        from lengthwise.models.served.endpoint import Endpoint

        model = Endpoint(
            subject.model, served_model=subject.served_model, tokenizer=subject.tokenizer or tokenizer
        )
    else:
        same = subject.model_dump(include={"dtype", "device", "adapter", "device_map", "tp_plan"})
        how = {"quantization": subject.quantize, "attn_implementation": subject.attn}
        model = load(subject.model, **how, **same)
        model.make_cache = make_cache
    model.path = path
    return model


def load(
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
) -> LoadedModel:
    """Load a causal LM and its tokenizer. (A served model is opened with `lengthwise.models.Endpoint`.)

    A model that lengthwise extended and saved is extended again; a base model is extended as its adapter needs.

    Args:
        name_or_path: a hub id, a folder, a .gguf file, or an embedded name (`smollm2-135m`, `tiny-books`).
        dtype: of the weights; "auto" keeps the one they were saved in.
        device: a torch device; "auto" uses CUDA if there is one.
        adapter: a PEFT adapter (folder or hub id), added after the extension that it was trained with.
        revision: branch, tag or commit of a hub model.
        attn_implementation: passed to transformers ("sdpa", "eager", ...); None means its default.
        quantization: "nf4" or "int8", or a `quantization_config` of transformers. The weights go to `device` at once.
        device_map: spreads whole layers over the devices of this process, the processor and the disk: "auto",
            "balanced", "balanced_low_0", "sequential", or a dict of module names (accelerate's).
        tp_plan: "auto" splits every layer over the processes of torchrun, all of which then run the same inputs.

    Raises:
        MissingError: the model, part of it, its tokenizer or a package is missing.
        UsageError: not a causal LM, a tokenizer that does not fit, an unknown dtype or device, an endpoint.
    """
    if dtype != "auto" and dtype not in DTYPES:
        raise UsageError(f"unknown dtype {dtype!r}", expected=nearest(dtype, ["auto", *DTYPES]))
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
        if (extension := read_extension(model.config)) is not None:
            restore_extension(model, extension, resolved)
        tokenizer = read_tokenizer(resolved)
        _check_vocabulary(tokenizer, model.config.get_text_config().vocab_size, name_or_path)
        if adapter is not None:
            extend_for_adapter(model, adapter)
            model = add_saved_adapter(model, adapter)
    if device_map is None and tp_plan is None:
        model = model.to(torch_device)
    if model.device.type == "cpu":
        _warn_of_emulation(str(model.dtype).removeprefix("torch."), name_or_path)
    model.eval()
    return LoadedModel(model, tokenizer, name_or_path, resolved.source, adapter)


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

    Raises:
        MissingError: bitsandbytes is not installed.
        UsageError: another method.
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

    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            resolved.location, output_loading_info=True, **resolved.arguments, **arguments
        )
    except Exception as error:
        raise unloadable(resolved.name, resolved.location, error) from error
    model, info = loaded
    missing = [str(key) for key in (*sorted(info["missing_keys"]), *sorted(info["mismatched_keys"]))]
    if missing:
        raise MissingError(
            f"the checkpoint of {resolved.name} has no weights for {shown(', '.join(missing))}",
            expected="every weight of the model (missing ones would be random)",
            fix="download the model again, or save it with its output head",
        )
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


def add_saved_adapter(model: Any, adapter: str) -> nn.Module:
    """The model with a saved PEFT adapter.

    Raises:
        MissingError: there is none, or a file of it is damaged.
        UsageError: it is of another model.
    """
    folder = Path(adapter).expanduser()
    try:
        with quiet_transformers():
            from peft import PeftModel

            return PeftModel.from_pretrained(model, str(folder) if folder.exists() else adapter)
    # PEFT raises whatever a wrong value in adapter_config.json leads it to.
    except Exception as error:
        misfit = UsageError if isinstance(error, RuntimeError) else MissingError
        raise unloadable(
            f"the adapter {adapter}",
            str(folder),
            error,
            otherwise=misfit,
            expected="an adapter of PEFT that was trained on this model",
        ) from error
