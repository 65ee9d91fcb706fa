"""Whether the weights that were loaded are numbers, and those that the files mean: with their scales."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import nn

from lengthwise.checkpoints.resolve import ResolvedModel, checkpoint_file
from lengthwise.errors import UsageError

PLAIN = {"F64", "F32", "F16", "BF16", "float64", "float32", "float16", "bfloat16"}
"""What weights are kept in that need no scale, as safetensors and torch name it."""
_NUMBERS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
_SCALE = re.compile("scale|absmax|SCB", re.IGNORECASE)


def check_stored(model: Any, resolved: ResolvedModel, config: Any) -> None:
    """Raise UsageError for weights in 8 bits, or whole numbers, that have no scale beside them, or none that is read.

    transformers casts them: without their scales they are other weights. `config` is as config.json has it.
    """
    quantized = getattr(config, "quantization_config", None) is not None
    floats = {name for name, tensor in model.state_dict().items() if tensor.is_floating_point()}
    prefix = model.base_model_prefix
    kinds = {name: kind for file in weight_files(resolved) for name, kind in kinds_in(file)}
    scaled = {name.rpartition(".")[0] for name in kinds if _SCALE.search(name)} if quantized else set[str]()
    for name, kind in kinds.items():
        places = {name, f"{prefix}.{name}", name.removeprefix(f"{prefix}.")}
        if kind not in PLAIN and places & floats and name.rpartition(".")[0] not in scaled:
            lacks = "scales of it" if quantized else "quantization_config"
            raise UsageError(
                f"{resolved.name} has {name} in {kind}, and no {lacks}",
                expected="weights in 16 or 32 bits, or quantization_config and the scales beside them",
                fix="download the model again, whole",
            )


def weight_files(resolved: ResolvedModel) -> list[Path]:
    """The files of weights that transformers reads, of a model that was loaded: safetensors before pickles."""

    def file(name: str) -> Path | None:
        return checkpoint_file(resolved.location, name, **resolved.where)

    for single, index in (("model.safetensors",) * 2, ("pytorch_model.bin",) * 2):
        index += ".index.json"
        if (found := file(single)) is not None:
            return [found]
        if (found := file(index)) is not None:
            shards = sorted({*json.loads(found.read_bytes())["weight_map"].values()})
            return [each for each in map(file, shards) if each is not None]
    return []


def kinds_in(file: Path) -> Iterator[tuple[str, str]]:
    """The name of each tensor in a file, and how its numbers are kept."""
    if file.suffix == ".safetensors":
        with safe_open(file, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118 - it is no dict
                yield name, tensors.get_slice(name).get_dtype()
        return
    for name, tensor in torch.load(file, map_location="meta", weights_only=True).items():
        yield name, str(tensor.dtype).removeprefix("torch.")


def check_finite(model: nn.Module, name: str, *, besides: Collection[int] = ()) -> None:
    """Raise UsageError for weights that are NaN or infinite; `besides` has the `id` of those that are known."""
    weight: Any
    for place, weight in model.named_parameters():
        # Of a tensor that is split over processes, each looks at its own part.
        values = weight.to_local() if hasattr(weight, "to_local") else weight
        if id(weight) in besides or values.is_meta or values.dtype not in _NUMBERS or not values.numel():
            continue
        if not all(bool(end.isfinite()) for end in values.detach().aminmax()):
            raise UsageError(
                f"{name} has weights that are NaN or infinite: {place}",
                expected="finite weights",
                fix="save or download it again; --dtype bfloat16 or float32 where float16 is too narrow",
            )
