"""The files of weights of a checkpoint, and what tensors are in them."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from lengthwise.checkpoints.resolve import ResolvedModel
from lengthwise.errors import UsageError

NUMBERS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
PLAIN = {
    **dict(zip(("F64", "F32", "F16", "BF16"), NUMBERS, strict=True)),
    **{str(dtype).removeprefix("torch."): dtype for dtype in NUMBERS},
}
"""What weights are kept in that need no scale, as safetensors and torch name it."""


def weight_files(resolved: ResolvedModel) -> list[Path]:
    """The files of weights that transformers reads, of a model that was loaded: safetensors before pickles."""
    for name in ("model.safetensors", "pytorch_model.bin"):
        if (found := resolved.file(name)) is not None:
            return [found]
        if shards := shards_of(resolved, name):
            return [each for each in map(resolved.file, shards) if each is not None]
    return []


def shards_of(resolved: ResolvedModel, name: str) -> list[str]:
    """The files that the index of `name` gives; a damaged index is named where the weights are loaded."""
    index = resolved.file(f"{name}.index.json")
    with suppress(ValueError, LookupError, TypeError, AttributeError):
        return [] if index is None else sorted({*json.loads(index.read_bytes())["weight_map"].values()})
    return []


def tensors_in(file: Path, named: re.Pattern[str]) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a file with such a name."""
    if file.suffix == ".safetensors":
        with safe_open(file, framework="pt") as tensors:
            for name in filter(named.fullmatch, tensors.keys()):
                yield name, tensors.get_tensor(name)
        return
    # torch maps no file of before version 1.6.
    with suppress(RuntimeError):
        stored = torch.load(file, map_location="cpu", mmap=True, weights_only=True)
        yield from ((name, tensor) for name, tensor in stored.items() if named.fullmatch(name))


def kinds_in(file: Path) -> Iterator[tuple[str, str]]:
    """The name of each tensor in a file, and how its numbers are kept; UsageError if it holds something else."""
    if file.suffix == ".safetensors":
        with safe_open(file, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118 - it is no dict
                yield name, tensors.get_slice(name).get_dtype()
        return
    held = torch.load(file, map_location="meta", weights_only=True)
    if not isinstance(held, Mapping) or not all(isinstance(each, Tensor) for each in held.values()):
        raise UsageError(f"{file} holds more than tensors", expected="tensors by name", fix="save them alone")
    yield from ((name, str(tensor.dtype).removeprefix("torch.")) for name, tensor in held.items())


def tensors_named(resolved: ResolvedModel, names: list[str]) -> dict[str, Tensor]:
    """The tensors of these names that a safetensors checkpoint has."""
    found: dict[str, Tensor] = {}
    for file in weight_files(resolved):
        if file.suffix != ".safetensors":
            continue
        with safe_open(file, framework="pt") as tensors:
            for saved, name in itertools.product(tensors.keys(), names):
                # A model with towers saves its language model under another name than it has in memory.
                if saved == name or (saved.endswith(_tail(name)) and name not in found):
                    found[name] = tensors.get_tensor(saved)
    return found


def _tail(name: str) -> str:
    """The module and the tensor, as rotary_emb.frequencies.up: a model has one with this end."""
    return "." + ".".join(name.split(".")[-3:])
