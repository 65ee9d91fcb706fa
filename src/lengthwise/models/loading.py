"""`load`: a causal LM with its tokenizer, its output head and the facts that every result records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Union, get_args

import torch
from torch import nn

from lengthwise.errors import UsageError, nearest
from lengthwise.files import is_url, named_path
from lengthwise.machine import usable_device
from lengthwise.models.extension import restore_extension
from lengthwise.models.extension.extending import extend_as_recorded
from lengthwise.models.extension.extension_record import adapter_extension, read_tensors
from lengthwise.models.hidden import unwrap
from lengthwise.models.loaded_model import LoadedModel
from lengthwise.models.placement import check_placement, check_splits
from lengthwise.models.quantization import keep_layout, quantization_config
from lengthwise.models.quiet import quiet_transformers
from lengthwise.models.resolve import ResolvedModel, check_served, read_config, read_tokenizer, resolve
from lengthwise.models.saved_weights import add_saved_adapter, check_vocabulary, load_weights
from lengthwise.settings import Dtype, Subject

if TYPE_CHECKING:
    from lengthwise.models.predictor import Predictor

DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in get_args(Dtype) if name != "auto"}

ModelLike = Union["Predictor", str, Path, tuple[Any, Any]]
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


def open_model(subject: Subject) -> Predictor:
    """The model of a subject, loaded, or its endpoint, opened.

    Raises:
        UsageError, MissingError: as `load` or `Endpoint`; or a setting that only the other of the two has.
    """
    check_served(subject)
    if is_url(subject.model):
        from lengthwise.models.served.endpoint import Endpoint

        return Endpoint(subject.model, served_model=subject.served_model, tokenizer=subject.tokenizer)
    return load(
        subject.model,
        dtype=subject.dtype,
        device=subject.device,
        adapter=subject.adapter,
        quantization=subject.quantize,
        device_map=subject.device_map,
        tp_plan=subject.tp_plan,
    )


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
        quantization: "nf4" or "int8"; or what is passed to transformers as `quantization_config`
            (`lengthwise.models.quantization.nf4_config`). The weights are then placed on `device` at once.
        device_map: spreads whole layers over the devices of this process, the processor and the disk: "auto",
            "balanced", "balanced_low_0", "sequential", or a dict of module names (accelerate's).
        tp_plan: "auto" splits every layer over the processes of torchrun, all of which then run the same inputs.

    Raises:
        MissingError: the model, part of it, its tokenizer or a package is missing.
        UsageError: not a causal LM, a tokenizer that does not fit, an unknown dtype or device, an endpoint.
    """
    torch_dtype = _dtype(dtype)
    check_placement(device, device_map, tp_plan)
    torch_device = torch.device(usable_device(device))
    if adapter is not None:
        named_path(adapter, what="the adapter")
    resolved = resolve(name_or_path, revision=revision)
    with quiet_transformers(bars=resolved.kind == "hub"):
        others: dict[str, Any] = {"attn_implementation": attn_implementation}
        if quantization is not None:
            if isinstance(quantization, str):
                quantization = quantization_config(quantization, _compute_dtype(torch_dtype, resolved))
            others |= {"quantization_config": quantization, "device_map": {"": torch_device}}
        if device_map is not None:
            others |= {"device_map": device_map}
        if tp_plan is not None:
            from transformers.distributed.configuration_utils import DistributedConfig

            check_splits(read_config(resolved).get_text_config())
            others |= {"distributed_config": DistributedConfig(tp_plan=tp_plan)}
        model = load_weights(resolved, torch_dtype, others)
        keep_layout(model)
        restore_extension(model, lambda names: read_tensors(resolved, names))
        tokenizer = read_tokenizer(resolved)
        check_vocabulary(tokenizer, model.config.get_text_config().vocab_size, name_or_path)
        if adapter is not None:
            extension = adapter_extension(adapter)
            if extension is not None:
                extend_as_recorded(model, extension, source=f"the adapter {adapter}")
            model = add_saved_adapter(model, adapter)
    if device_map is None and tp_plan is None:
        model = model.to(torch_device)
    model.eval()
    return LoadedModel(model, tokenizer, name_or_path, resolved.source, adapter)


def _dtype(name: str) -> torch.dtype | str:
    if name == "auto":
        return name
    if name not in DTYPES:
        raise UsageError(f"unknown dtype {name!r}", expected=nearest(name, ["auto", *DTYPES]))
    return DTYPES[name]


def _compute_dtype(dtype: torch.dtype | str, resolved: ResolvedModel) -> torch.dtype:
    """The dtype in which quantised weights are multiplied: the given one, or that of the configuration."""
    return dtype if isinstance(dtype, torch.dtype) else read_config(resolved).dtype or torch.float32
