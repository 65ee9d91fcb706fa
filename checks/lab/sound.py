"""Pairs that are the same in other words: no fault may be seen in them."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from checks.lab.cache_faults import through
from checks.lab.rope_faults import at, by_length
from checks.lab.server_faults import server
from checks.lab.sides import EQUAL, Base, Pair, Side, loaded, reads
from lengthwise.subjects import LoadedModel


def kernel(name: str, read: str = "prefill") -> Side:
    """A side with another implementation of attention."""

    def side(base: Base) -> LoadedModel:
        other = copy.deepcopy(base.model.model)
        other.set_attn_implementation(name)
        return through(None, read)(Base(loaded(other, base.model), base.scale))

    return side


def in_dtype(dtype: str) -> Side:
    """A side in another dtype."""
    return lambda base: loaded(base.cast(dtype).model.model, base.model)


def _beside_others(read: Any, ids: Tensor) -> Tensor:
    return read(torch.cat([ids, ids.flip(1)]))[: len(ids)]


def _one_by_one(read: Any, ids: Tensor) -> Tensor:
    return torch.cat([read(row[None]) for row in ids])


def _padded(read: Any, ids: Tensor) -> Tensor:
    """Padding on the right is never seen."""
    return read(torch.cat([ids, torch.zeros_like(ids[:, :24])], dim=1))[:, : ids.shape[1]]


DECODED: dict[str, Any] = {"lengths": (128, 256), "windows": 2}
WAYS: dict[str, tuple[Side, dict[str, Any]]] = {
    "the same again": (lambda base: loaded(base.model.model, base.model), {}),
    "eager for sdpa": (kernel("eager"), {}),
    "eager for sdpa, windows of 256": (kernel("eager"), {"lengths": (256,), "windows": 6}),
    "passes of 64": (through(None, "chunks=64"), {}),
    "passes of 100": (through(None, "chunks=100"), {}),
    "decode": (through(None, "decode=16"), DECODED),
    "eager, decode": (kernel("eager", "decode=16"), DECODED),
    "static cache": (through("static"), {}),
    "static cache, decode": (through("static", "decode=16"), DECODED),
    "dynamic cache, passes of 128": (through("dynamic", "chunks=128"), {}),
    "whole cache, passes of 50": (through("full", "chunks=50"), {}),
    "beside other texts": (reads(_beside_others), {}),
    "one by one": (reads(_one_by_one), {"windows": 6}),
    "padded on the right": (reads(_padded), {}),
}
"""Ways to read that give the same, for every model."""
SHIFTED = {
    "positions from 512 on": (at(lambda p: p + 512), {}),
    "positions from 64 on, one document": (at(lambda p: p + 64), {"windows": 1}),
}
"""The same for models with a rope."""
SERVED = {"served": (server(), {"lengths": (256,)})}


def pairs(base: str, ways: dict[str, tuple[Side, dict[str, Any]]], *dtypes: str) -> list[Pair]:
    """A pair for each way and dtype."""
    return [
        Pair(f"{base}: {what}, {dtype}", EQUAL, b, dtype=dtype, base=base, **how)
        for dtype in dtypes
        for what, (b, how) in ways.items()
    ]


def _some(*names: str) -> dict[str, tuple[Side, dict[str, Any]]]:
    return {name: WAYS[name] for name in names}


BOTH = ("float32", "bfloat16")
KERNEL, CHUNKS, DECODE, WHOLE = "eager for sdpa", "passes of 100", "decode", "whole cache, passes of 50"
PAIRS = (
    *pairs("tiny-books", WAYS | SHIFTED | SERVED, *BOTH),
    *pairs("tiny-books", {"float64 for float32": (in_dtype("float64"), {})}, "float32"),
    *(
        Pair(
            f"tiny-books: a rope that depends on the length, {what}, {dtype}",
            EQUAL,
            b,
            a=by_length(),
            dtype=dtype,
        )
        for dtype in BOTH
        for what, b in (("read again", by_length()), ("one by one", reads(_one_by_one, by_length())))
    ),
    *pairs("llama", _some(KERNEL, CHUNKS, DECODE), *BOTH),
    *pairs("llama, large weights", _some(KERNEL, CHUNKS, WHOLE), *BOTH),
    *pairs("mistral", _some(KERNEL, CHUNKS, DECODE, WHOLE), *BOTH),
    *pairs("qwen2", _some(KERNEL, CHUNKS, DECODE), *BOTH),
    *pairs("gemma2", _some(CHUNKS, DECODE), *BOTH),
    *pairs("gemma3", _some(KERNEL, CHUNKS, WHOLE), *BOTH),
    *pairs("gpt-neox", _some(KERNEL, CHUNKS, DECODE), *BOTH),
    *pairs("falcon-alibi", _some(CHUNKS, WHOLE), *BOTH),
    *pairs("gpt2", _some(KERNEL, CHUNKS), *BOTH),
)
