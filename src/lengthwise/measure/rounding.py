"""How far a side differs from itself: the floor under every comparison, measured on the run's own tokens.

A model whose weights are here reads a window once more, rounded otherwise: of the output of every layer and of every
product with weights, three values in ten move by one unit in the last place. It reads the first three eighths alone,
so that kernels work in other shapes too. In 16 bits, sound pairs (eager for sdpa, positions with an offset) lie at
0.6 to 1.15 of the mean difference from itself: random models of several shapes and scales, tiny-books, SmolLM2-135M.

An endpoint is asked the same again, alone instead of in a batch; llama.cpp reads the shorter text.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from lengthwise.checkpoints.hidden import decoder_of
from lengthwise.measure.predictions import Distributions, Numbers, Predictions, predictions
from lengthwise.subjects import LoadedModel
from lengthwise.subjects.endpoint import Endpoint
from lengthwise.subjects.weights import WeightsRows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lengthwise.measure.repeated_windows import Layout
    from lengthwise.subjects import Predictor

LEAST = {"float64": 1e-9, "float32": 1e-4, "float16": 1e-3, "bfloat16": 1e-3}
"""The least tolerance of a dtype: angles of far positions and other kernels round by so much in any model."""
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


def least_of(model: Predictor) -> float:
    """The least tolerance of a side, by its dtype; that of 16 bits where the dtype is not known."""
    return LEAST.get(str(getattr(getattr(model, "model", None), "dtype", "")).removeprefix("torch."), 1e-3)


def most_of(model: Predictor) -> float:
    """How far a side is from itself at most by rounding, by its dtype."""
    dtype = str(getattr(getattr(model, "model", None), "dtype", "")).removeprefix("torch.")
    return MOST.get(dtype, MOST_ELSEWHERE)


@torch.no_grad()
def own_rounding(
    model: Predictor,
    window: NDArray[np.int64],
    view: NDArray[np.int64],
    predicted: Predictions,
    layout: Layout,
    *,
    sixteen: bool = False,
) -> dict[str, Any] | None:
    """How far a side differs from itself in one window: sums of |d| by bin, tokens by bin, the largest.

    Args:
        model: the side.
        window, view: its tokens [T + 1], and what it reads of them [T].
        predicted: what it predicted there before.
        layout: the bins.
        sixteen: round as 16 bits do, to compare with software that computes in them; models with weights alone.

    Returns:
        None for a predictor of another kind.
    """
    first, size = layout.first, len(view)
    if not first and not isinstance(model, Endpoint):
        size = _read_again(size)
    cut = view[None, :size]
    pairs: list[tuple[Predictions, Predictions]] = []
    if isinstance(model, LoadedModel) and isinstance(predicted, Distributions):
        assert isinstance(predicted.rows, WeightsRows)
        plain = Distributions(WeightsRows(model, predicted.rows.hidden[:size]))
        if not model.path.in_one_pass:
            # Rounding moves what a quantized cache holds by its steps, and these are no rounding. What the path does
            # not repeat counts, too.
            [again] = predictions(model, window[None], cut, first)
            pairs = [(plain, again)]
            plain = Distributions(WeightsRows(model, model.hidden_states(torch.from_numpy(cut))[0]))
        with _rounded(model.model, torch.bfloat16 if sixteen else model.model.dtype):
            pairs.append(
                (plain, Distributions(WeightsRows(model, model.hidden_states(torch.from_numpy(cut))[0])))
            )
    elif isinstance(predicted, Distributions) or isinstance(model, Endpoint):
        [again] = predictions(model, window[None], cut, first)
        pairs = [(predicted, again)]
    found = [_apart(one, other, window, layout, size) for one, other in pairs]
    return max(found, key=lambda each: sum(each["sums"]), default=None)


def _apart(
    one: Predictions, other: Predictions, window: NDArray[np.int64], layout: Layout, size: int
) -> dict[str, Any]:
    """How far two readings of one window are apart in the rows that count, up to `size`."""
    first, labels = layout.first, torch.from_numpy(window[1:])
    if isinstance(one, Numbers) and isinstance(other, Numbers) and one.cold is not None:
        # What a prefix cache changes is found apart, beside this floor.
        one, other = (Numbers(each.values if each.cold is None else each.cold) for each in (one, other))
    known = [labels[: len(each)] if isinstance(each, Distributions) else labels for each in (one, other)]
    losses = [
        each.losses(following, first)[: size - first]
        for each, following in zip((one, other), known, strict=True)
    ]
    apart = np.abs((losses[1] - losses[0]).numpy())
    edges = [edge - first for edge in layout.edges if edge < size]
    tokens = np.diff([*edges, size - first])
    sums = np.add.reduceat(apart, edges)
    return {"sums": sums.tolist(), "tokens": tokens.tolist(), "largest": float(apart.max())}


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
    handles = [module.register_forward_hook(hook) for module in dict.fromkeys([*_layers(decoder), *products])]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _read_again(size: int) -> int:
    """How many tokens of a window are read again: three eighths, for the time; at least 256, for the mean."""
    return min(size, max(_LEAST_READ, size * 3 // 8 + 1))


def _multiplies(module: nn.Module) -> bool:
    """Whether a module multiplies by a matrix of weights (torch's linear layers, those of GPT-2, of 4 and 8 bits)."""
    weight = getattr(module, "weight", None)
    return isinstance(weight, Tensor) and weight.ndim > 1 and not isinstance(module, nn.Embedding)


def _layers(decoder: nn.Module) -> list[nn.Module]:
    """The layers of the decoder: its outermost list of modules, the longest of several."""
    lists = [
        (name.count("."), -len(module), module)
        for name, module in decoder.named_modules()
        if isinstance(module, nn.ModuleList)
    ]
    return list(min(lists, key=lambda each: each[:2])[2]) if lists else []
