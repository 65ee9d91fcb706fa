"""The tile through `torch.compile`: the formulas of `tile.py`, with all of a row's arithmetic in a few loops.

The torch tile makes some twenty passes over a pair of rows, each an operation of its own; compiled they are
three loops: maxima, sums, gradients. Where matrix products are fast (bf16 units of a CPU) those passes are a
good part of the whole. The price is a C++ compiler and some seconds at the first call of a process with a new
divergence or dtype, so this tile is used only where it is asked for.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from lengthwise.alignment.tile import Activation, PairStatistics, Rule, Tiles, wide_dtype

# Logits of one view in a call: enough rows that the call itself costs nothing, few enough to keep buffers small.
_LOGITS_IN_A_CALL = 2**20


class CompiledTiles:
    """`Tiles` through torch.compile; arguments and results as there."""

    def __init__(
        self,
        vocabulary: int,
        *,
        dtype: torch.dtype,
        device: torch.device,
        activation: Activation,
        rule: Rule,
        weight: float,
        mixture: bool,
        gradient: bool,
    ) -> None:
        self.dtype = wide_dtype(dtype)
        self._pairs_in_a_call = max(1, _LOGITS_IN_A_CALL // vocabulary)
        self._mixture = mixture
        # A tensor, because each new Python number would be compiled anew.
        self._weight = torch.tensor(weight, dtype=self.dtype, device=device)
        rule = rule if weight else replace(rule, k=(0, 0), sign=(0, 0))
        self._pair_step = _pair_step(rule, activation, mixture, gradient)
        # torch 2.13 cannot compile the few operations of a row without partner in fp32 (inductor fails with a
        # KeyError where they write over their input), and there is little to gain: they are few passes.
        self._without_partner = Tiles(
            1,
            vocabulary,
            dtype=dtype,
            device=device,
            activation=activation,
            rule=rule,
            weight=weight,
            mixture=False,
            gradient=gradient,
        )

    def pairs(self, logits: Tensor, labels: Tensor, weights: Tensor) -> PairStatistics:
        """As `Tiles.pairs`."""
        parts = zip(
            *(tensor.split(self._pairs_in_a_call) for tensor in (logits, labels.int(), weights)), strict=True
        )
        found = [
            self._pair_step(
                *logits.unbind(1), labels=labels.unbind(1), weights=weights.unbind(1), weight=self._weight
            )
            for logits, labels, weights in parts
        ]
        top, total, own, cross, mixture = (torch.cat(of_all) for of_all in zip(*found, strict=True))
        return PairStatistics(top, total, own, cross, mixture if self._mixture else None)

    def rows(self, logits: Tensor, labels: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """As `Tiles.rows`."""
        return self._without_partner.rows(logits, labels, weights)


Step = Callable[..., tuple[Tensor, ...]]


@functools.cache
def _pair_step(rule: Rule, activation: Activation, mixture: bool, gradient: bool) -> Step:
    """The compiled function of pairs, [n, V] each; writes gradients over the logits if `gradient`."""

    # Two tensors, not one of pairs: writing into a part of an argument the compiler copies all of it.
    def step(
        long: Tensor,
        short: Tensor,
        *,
        labels: tuple[Tensor, Tensor],
        weights: tuple[Tensor, Tensor],
        weight: Tensor,
    ) -> tuple[Tensor, ...]:
        views = [_View(logits, activation) for logits in (long, short)]
        difference = views[0].shifted - views[1].shifted
        cross = [view.mean(difference) for view in views]
        own = [view.mean(view.shifted) for view in views]
        scores = _mixture_scores(difference, views) if mixture else None
        mixed = (
            own if scores is None else [view.mean(score) for view, score in zip(views, scores, strict=True)]
        )
        if gradient:
            sources, means = _sources(rule, views, difference, scores, own, cross, mixed)
            gradients = []
            for side, view in enumerate(views):
                k, sign = rule.k[side], rule.sign[side]
                factor = weights[side] + weight * k - weight * sign * means[side]
                if sign:
                    factor = factor + weight * sign * sources[side]
                found = view.probability * factor
                if k:
                    found = found - weight * views[1 - side].probability
                gradients.append(view.finish(found, labels[side], weights[side]))
            for view, found in zip(views, gradients, strict=True):
                view.logits.copy_(found)

        def both(values: list[Tensor]) -> Tensor:
            return torch.stack(values, dim=1)

        return (
            both([view.top for view in views]),
            both([view.total for view in views]),
            both(own),
            both(cross),
            both(mixed),
        )

    # Each of these functions counts its own recompilations: they share their code, not their meaning.
    return torch.compile(step, fullgraph=True, isolate_recompiles=True)  # pyright: ignore[reportCallIssue]


class _View:
    """The rows of one view, and what their softmax is made of. Seen by the compiler only."""

    def __init__(self, logits: Tensor, activation: Activation) -> None:
        self.logits = logits
        z = logits.to(wide_dtype(logits.dtype))
        self._slope = None
        if activation.soft_cap is not None:
            bounded = torch.tanh(z * (activation.scale / activation.soft_cap))
            self._slope = 1.0 - bounded * bounded
            z = bounded * activation.soft_cap
        elif activation.scale != 1.0:
            z = z * activation.scale
        self.top = z.amax(dim=-1, keepdim=True)
        self.shifted = z - self.top
        self._exponential = self.shifted.exp()
        self.total = self._exponential.sum(dim=-1, keepdim=True)

    @property
    def probability(self) -> Tensor:
        return self._exponential * self.total.reciprocal()

    def mean(self, values: Tensor) -> Tensor:
        """<p, values> [n, 1]; divided after the sum, so that one loop makes all sums."""
        return (self._exponential * values).sum(dim=-1, keepdim=True) / self.total

    def finish(self, gradient: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
        """With the label's part, back through the soft cap."""
        columns = torch.arange(gradient.shape[-1], dtype=torch.int32, device=gradient.device)
        gradient = gradient - torch.where(columns == labels, weights, 0.0)
        return gradient if self._slope is None else gradient * self._slope


def _mixture_scores(difference: Tensor, views: list[_View]) -> list[Tensor]:
    """(log p - log m) / 2 and (log q - log m) / 2, as in `tile.py`."""
    log_ratio = difference - (views[0].total.log() - views[1].total.log())
    return [(math.log(2) - F.softplus(x, threshold=40)) / 2 for x in (-log_ratio, log_ratio)]


def _sources(
    rule: Rule,
    views: list[_View],
    difference: Tensor,
    scores: list[Tensor] | None,
    own: list[Tensor],
    cross: list[Tensor],
    mixed: list[Tensor],
) -> tuple[list[Tensor], list[Any]]:
    """The rule's source of both sides and <p, source>."""
    shifted = [view.shifted for view in views]
    match rule.source:
        case "own":
            return shifted, own
        case "other":
            return shifted[::-1], [own[0] - cross[0], own[1] + cross[1]]
        case "difference":
            return [difference, difference], cross
        case _:
            assert scores is not None
            return scores, mixed
