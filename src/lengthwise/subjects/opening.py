"""A model opened by its name: its weights loaded, its endpoint asked, or its GGUF file given to llama.cpp."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from torch import nn

from lengthwise.checkpoints.hidden import unwrap
from lengthwise.checkpoints.loading import load_weights
from lengthwise.errors import UsageError
from lengthwise.settings import Dtype, Subject
from lengthwise.subjects.loaded_model import LoadedModel
from lengthwise.subjects.path import cache_maker, reading_path
from lengthwise.subjects.reading import Predictor

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
        case _ if not isinstance(model, tuple) and hasattr(model, "read"):
            return model
        case _:
            raise UsageError(
                f"a {type(model).__name__} is not a model",
                expected="a LoadedModel, a name or path, or a pair (model, tokenizer)",
            )


def open_model(subject: Subject, *, tokenizer: Any = None) -> Predictor:
    """The model of a subject, loaded, or its endpoint or GGUF file, opened; `tokenizer` for these if they name none.

    Raises:
        UsageError, MissingError: as `load`, `Endpoint` or `LlamaCpp`.
    """
    if subject.kind == "llama.cpp":
        from lengthwise.subjects.llama_cpp import LlamaCpp

        return LlamaCpp(subject, tokenizer=tokenizer)
    path, cache = reading_path(subject), cache_maker(subject)
    model: Any
    if subject.kind == "endpoint":
        from lengthwise.subjects.endpoint import Endpoint

        model = Endpoint(
            subject.model,
            served_model=subject.served_model,
            tokenizer=subject.tokenizer or tokenizer,
            server=subject.of_server(),
        )
    else:
        same = subject.model_dump(include={"dtype", "device", "adapter", "device_map", "tp_plan"})
        how = {"quantization": subject.quantize, "attn_implementation": subject.attn}
        model = load(subject.model, **how, **same)
        model.cache = cache
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
    """Load a causal LM and its tokenizer. (A served model is opened with `lengthwise.subjects.Endpoint`.)

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
    model, tokenizer, source = load_weights(
        name_or_path,
        dtype=dtype,
        device=device,
        adapter=adapter,
        revision=revision,
        attn_implementation=attn_implementation,
        quantization=quantization,
        device_map=device_map,
        tp_plan=tp_plan,
    )
    return LoadedModel(model, tokenizer, name_or_path, source, adapter)
