"""How far a model differs from itself: the floor under every comparison, measured on the run's own tokens.

A model whose weights are here reads a text once more, rounded otherwise: of the output of every layer and of every
product with weights, three values in ten move by one unit in the last place. It reads the first three eighths alone,
so that kernels work in other shapes too. In 16 bits, sound pairs (eager for sdpa, positions with an offset) lie at
0.6 to 1.15 of the mean difference from itself: random models of several shapes and scales, tiny-books, SmolLM2-135M.

An endpoint is asked the same again, alone instead of in a batch; llama.cpp reads the shorter text.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from lengthwise.checkpoints.hidden import decoder_of
from lengthwise.subjects.reading import Read, Reading
from lengthwise.subjects.weights import Weights, layers_of

LEAST = {"float64": 1e-9, "float32": 1e-4, "float16": 1e-3, "bfloat16": 1e-3}
"""The least tolerance of a dtype: angles of far positions and other kernels round by so much in any model."""
LEAST_ELSEWHERE = 1e-3
"""The same of other software: that of 16 bits."""
MOST = {"float64": 1e-6, "float32": 2e-3, "float16": 0.1, "bfloat16": 0.25}
"""How far a model of a dtype is from itself at most by rounding; what is more, is no rounding."""
MOST_ELSEWHERE = 0.1
"""The same of answers to the same prompt."""
ELSEWHERE = 0.05
"""The floor of a side that cannot be read again otherwise: what bfloat16 gives SmolLM2-135M."""
_LEAST_READ = 256
_MOVED = 0.3
"""The share of values whose last place is rounded otherwise: as by a factor 1 + u, with |u| at most half of eps."""
_DRAWN = 1_048_583
"""Draws, used again for the next values: a prime number, so that they meet others."""
_INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def beginning(reading: Reading) -> Reading:
    """What is read again: three eighths, to save time, but at least 256 tokens; all, if only its end has labels."""
    size = min(len(reading.tokens), max(_LEAST_READ, len(reading.tokens) * 3 // 8 + 1))
    if len(reading.labels) < len(reading.tokens):
        return reading
    return replace(reading, tokens=reading.tokens[:size], labels=reading.labels[:size])


@torch.no_grad()
def read_otherwise(
    model: Weights,
    reading: Reading,
    read: Read,
    dtype: str,
    *,
    again: Callable[[Sequence[Reading]], list[Read]],
) -> list[tuple[Read, Read]]:
    """See `Predictor.again`; `read` has the rows of a model whose weights are here, and `again` is its `read`."""
    part = beginning(reading)
    tokens = torch.from_numpy(part.tokens[None])

    def rows(hidden: Tensor) -> Read:
        return Read(rows=model.rows(hidden))

    assert read.rows is not None
    assert read.rows.hidden is not None
    plain, pairs = rows(read.rows.hidden[: tokens.shape[1]]), []
    if not model.path.in_one_pass:
        # Values that rounding moves to another step of a quantized cache move by far more than rounding: so the
        # rounded reading below is without the cache. What the path itself does not repeat counts, too.
        pairs = [(plain, again([part])[0])]
        plain = rows(model.hidden_states(tokens)[0])
    with _rounded(model.model, getattr(torch, dtype)):
        pairs.append((plain, rows(model.hidden_states(tokens)[0])))
    return pairs


@contextlib.contextmanager
def _rounded(model: nn.Module, dtype: torch.dtype) -> Iterator[None]:
    """Round the output of every layer and product otherwise, as in a dtype. The draw is the same each time."""
    draw = random.Random(0)
    generator = torch.Generator().manual_seed(0)
    chosen = torch.rand(_DRAWN, generator=generator)
    steps = (chosen < _MOVED / 2).to(torch.int8) - (chosen > 1 - _MOVED / 2).to(torch.int8)

    def again(states: Tensor) -> Tensor:
        # The last place of a coarser dtype, where one is asked for.
        ratio = torch.finfo(dtype).eps / torch.finfo(states.dtype).eps
        integers = _INTEGERS[states.element_size()]
        begin, tokens = draw.randrange(_DRAWN), states.numel()
        drawn = steps.to(states.device).repeat(-(-(begin + tokens) // _DRAWN))[begin : begin + tokens]
        moved = states.contiguous().view(integers) + drawn.view(states.shape).to(integers) * round(ratio)
        # The neighbour of 0 on the other side is no number.
        return torch.where(states.abs() < torch.finfo(states.dtype).tiny, states, moved.view(states.dtype))

    def hook(_module: nn.Module, _inputs: Any, output: Any) -> Any:
        return (again(output[0]), *output[1:]) if isinstance(output, tuple) else again(output)

    decoder = decoder_of(model)
    products = [module for module in decoder.modules() if _multiplies(module)]
    handles = [
        module.register_forward_hook(hook) for module in dict.fromkeys([*layers_of(decoder), *products])
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _multiplies(module: nn.Module) -> bool:
    """Whether a module multiplies by a matrix of weights (torch's linear layers, those of GPT-2, of 4 and 8 bits)."""
    weight = getattr(module, "weight", None)
    return isinstance(weight, Tensor) and weight.ndim > 1 and not isinstance(module, nn.Embedding)
