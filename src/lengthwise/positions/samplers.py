"""Position ids for training: a short window at positions of a longer context.

A sampler is a function of a generator, L = length of the training window and T = target_length, the number of
positions to be learned; its keywords are the options. Positions [L] ascend strictly within 0 .. T - 1, so a window
keeps its order. Pass an all-ones attention mask with them: without one, transformers takes every step other than +1
for a boundary between packed documents.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Annotated, Any, Literal

import numpy as np
import torch
from annotated_types import Ge, Le
from torch import Tensor

from lengthwise.errors import require, require_integer
from lengthwise.settings import Count, Finite, Positive

_Generator = np.random.Generator


def draw(
    formula: Callable[..., Tensor],
    generator: _Generator,
    length: int,
    target_length: int,
    **options: Any,
) -> Tensor:
    """One draw of a sampler: position ids [L] within 0 .. T - 1, int64 (float32 where positions are divided).

    UsageError unless 2 <= L <= T, or if the sampler has no positions for these lengths.
    """
    require_integer("length", length, low=2)
    require_integer("target_length", target_length, low=2)
    require(
        target_length >= length,
        f"target_length = {target_length} is shorter than the window of {length} tokens",
        f"{length} or more tokens",
    )
    return formula(generator, length, target_length, **options)


def random_positions(generator: _Generator, length: int, target_length: int) -> Tensor:
    """A sorted subset of 0 .. T-1 of L elements, every subset equally likely.

    The original method also draws at test time. Language models are evaluated at consecutive positions, where
    it is a weak baseline for context extension. Ruoss et al. 2023, "Randomized Positional Encodings Boost Length
    Generalization".
    """
    return torch.from_numpy(np.sort(generator.choice(target_length, size=length, replace=False)))


def pose(generator: _Generator, length: int, target_length: int) -> Tensor:
    """Two chunks: the first at 0 .. r-1, the second after a gap of u.

    r ~ U{1 .. floor((L+1)/2)}, u ~ U{0 .. T-L}, as in the later released code, where the first chunk begins at 0. The
    released code can also take the two chunks from different places in the text; here the text is contiguous. Zhu et
    al. 2023, "PoSE: Efficient Context Window Extension ... via Positional Skip-wise Training".
    """
    first = int(generator.integers(1, (length + 1) // 2 + 1))
    gap = int(generator.integers(0, target_length - length + 1))
    positions = torch.arange(length)
    positions[first:] += gap
    return positions


def skip(
    generator: _Generator,
    length: int,
    target_length: int,
    *,
    max_gap: Count | None = None,
    spread: Literal["uniform", "log"] = "uniform",
    skips: Count = 1,
    share: Annotated[Finite, Ge(0), Le(1)] = 1.0,
    shifted: Annotated[Finite, Ge(0), Le(1)] = 0.0,
) -> Tensor:
    """L tokens in order, with `skips` jumps of their positions, all within 0 .. T - 1.

    Their places are drawn without replacement from 1 .. L - 1; a total of u = 1 .. min(max_gap, T - L) positions is
    left out and split among them at random. `uniform` draws u itself, `log` its logarithm, so that each factor of
    two is as likely as the next. With probability 1 - `share` nothing is left out. With probability `shifted` the
    text begins at a random position of those that are still free, else at 0. PoSE within the trained length is this
    with one skip; RoPE-perturbed self-distillation (arXiv 2604.14339) has one skip of at most L (`max_gap`).

    Args:
        max_gap: the most positions left out in all, in tokens; null is T - L.
        spread: how the number of positions left out is drawn.
        skips: jumps in a window.
        share: share of the draws that skip; the others are contiguous.
        shifted: share of the draws whose text begins at a random position.
    """
    free = target_length - length
    positions = torch.arange(length)
    if free == 0:
        return positions
    most = free if max_gap is None else min(max_gap, free)
    require(
        skips <= most and skips < length,
        f"{skips} skips in {length} tokens at {target_length} positions",
        "fewer skips than tokens, and a position to leave out for each",
    )
    total = 0
    # Skip this draw when share is 1, so that old seeds reproduce.
    if share == 1 or generator.random() < share:
        if spread == "uniform":
            total = int(generator.integers(skips, most + 1))
        else:
            # The share of [u, u + 1) on a logarithmic scale from `skips` to `most` + 1.
            total = int(skips * ((most + 1) / skips) ** generator.random())
        places = np.sort(generator.choice(length - 1, size=skips, replace=False)) + 1
        # Every jump leaves out one position at least.
        inner = np.sort(generator.choice(total - 1, size=skips - 1, replace=False)) + 1
        for place, size in zip(places, np.diff([0, *inner, total]), strict=True):
            positions[place:] += int(size)
    if generator.random() < shifted:
        positions += int(generator.integers(0, free - total + 1))
    return positions


def cream_ratios(factor: int, *, sigma: float = 3.0, legacy: bool = False) -> np.ndarray:
    """CREAM's P(r) for r = 2 .. 2f, float64 [2f - 1].

    A Gaussian around 1 + f, normalised over these integers. `legacy`: the released code inverts the Gaussian's
    distribution function on 2 .. 2f without normalising it and rounds down, so r = 2 also gets all mass below
    and r = 2f all mass above; for f = 2 the middle is then the least likely.
    """
    ratios = np.arange(2, 2 * factor + 1)
    if legacy and factor > 1:
        edges = [NormalDist(1 + factor, sigma).cdf(float(ratio)) for ratio in ratios]
        edges[0] = 0.0
        return np.diff([*edges, 1.0])
    weights = np.exp(-(((ratios - 1 - factor) / sigma) ** 2) / 2)
    return weights / weights.sum()


def cream(
    generator: _Generator, length: int, target_length: int, *, sigma: Positive = 3.0, legacy: bool = False
) -> Tensor:
    """A head at the first positions, a tail at the last, and a chunk between them that favours the middle.

    With f = T/L: head and tail have floor(L/3) tokens, or 4f, each with probability 1/2; the middle has the other
    m = L - 2h. The middle's last position is even over {floor(h + (m-1) r/2) .. floor(rL/2) - h - 1}, where r in
    {2 .. 2f} has the probabilities of `cream_ratios`. T has to be a multiple of L, and L above 8 f.

    h is drawn every time (in the released code: once per 3000 examples), and the text is contiguous (the released
    code takes the tokens at these positions where a document has them). Wu et al. 2024, "An Efficient Recipe for Long
    Context Extension via Middle-Focused Positional Encoding".

    Args:
        sigma: standard deviation of r before it is cut to 2 .. 2f.
        legacy: draw r as the released code does, where both ends collect the mass of the tails.
    """
    factor, rest = divmod(target_length, length)
    require(
        not rest,
        f"target_length = {target_length} is no multiple of the window of {length} tokens",
        f"{factor * length} or {(factor + 1) * length} for CREAM",
    )
    require(
        length > 8 * factor,
        f"a window of {length} tokens has no middle at {factor} times its length",
        f"more than {8 * factor} tokens: CREAM's head and tail have 4 * {factor} each",
    )
    edge = int(generator.choice([length // 3, 4 * factor]))
    middle = length - 2 * edge
    probabilities = cream_ratios(factor, sigma=sigma, legacy=legacy)
    ratio = int(generator.choice(np.arange(2, 2 * factor + 1), p=probabilities))
    lowest = math.floor(edge + (middle - 1) * ratio / 2)
    highest = math.floor(ratio * length / 2) - edge - 1
    last = int(generator.integers(lowest, highest + 1))
    return torch.cat(
        [
            torch.arange(edge),
            torch.arange(last - middle + 1, last + 1),
            torch.arange(target_length - edge, target_length),
        ]
    )


def clex_positions(
    generator: _Generator, length: int, target_length: int, *, original_length: Count | None = None
) -> Tensor:
    """Random positions within a random extent, whose first and last are fixed.

    t ~ U{1 .. floor(T / L0)}. Then 0, a sorted random subset of 1 .. tL-2 of L-2 elements, and tL-1; where the window
    is longer than the original context, all are divided by L / L0 (float32). They reach to t L0, so a model
    extended by `clex` infers exactly this t from them, for both views. L must be a multiple of L0. Chen et al. 2023,
    "CLEX: Continuous Length Extrapolation for Large Language Models".

    Args:
        original_length: L0: context in tokens that the model was trained for; None is the window's length.
    """
    original = original_length or length
    share, rest = divmod(length, original)
    # The released code rounds L / L0 down, which exceeds the target where it is not an integer.
    require(
        not rest,
        f"a window of {length} tokens is no multiple of the original context of {original}",
        f"original_length = {length}, or a divisor of it",
    )
    extent = int(generator.integers(1, target_length // original + 1)) * length
    inner = 1 + np.sort(generator.choice(extent - 2, size=length - 2, replace=False))
    positions = torch.from_numpy(np.concatenate([[0], inner, [extent - 1]]))
    return positions if share == 1 else positions / share


def first_gap(positions: Tensor) -> int:
    """The first row whose position does not follow on from the rows before it; L if all do.

    Rows before it are predicted from the same tokens at the same distances as in a contiguous window.
    """
    contiguous = positions[0] + torch.arange(len(positions), device=positions.device)
    moved = (positions != contiguous).nonzero()
    return int(moved[0]) if len(moved) else len(positions)


def largest_gap(positions: Tensor) -> int:
    """The row behind the largest step of more than 1, the first of several; L if all rows follow on."""
    steps = positions.diff()
    largest = int(steps.argmax())
    return largest + 1 if steps[largest] > 1 else len(positions)
