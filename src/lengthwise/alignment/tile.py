"""The elementwise part of the fused objective, a few rows at a time: logits in, gradients out, in place.

For a pair of rows with logits z1, z2, p = softmax(z1) and q = softmax(z2), every divergence of the
objective has a gradient of one form (and the mirrored one for z2):

    d/dz1 = p * (k + s - <p, s>) - k * q

where k is 1 or 0 and s, the *score*, is a vector over the vocabulary: see `Divergence`.

The cross entropy adds w * (p - onehot(label)). Nothing changes when a constant is added to s or to the
logits of a row, so all is computed on logits minus the row's maximum: exp(z - logsumexp) would carry the
rounding of the logsumexp into every entry. Arithmetic is fp32 for 16-bit logits, in which p - q would be
mostly rounding.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lengthwise.alignment.divergences import Divergence
from lengthwise.alignment.formulas import SCORES

Activation = tuple[float, float | None]
"""The scale and the soft cap that lead from the head's linear output u to logits (`activate_`)."""


def activate_(linear: Tensor, activation: Activation, *, slope: Tensor | None = None) -> Tensor:
    """u to z = soft_cap * tanh(scale * u / soft_cap), or scale * u, in place; `slope` gets dz/du / scale of a cap."""
    scale, soft_cap = activation
    if soft_cap is None:
        return linear if scale == 1.0 else linear.mul_(scale)
    linear.mul_(scale / soft_cap).tanh_()
    if slope is not None:
        torch.mul(linear, linear, out=slope).neg_().add_(1.0)
    return linear.mul_(soft_cap)


def sum_dtype(device: torch.device) -> torch.dtype:
    """Of sums over many chunks, which must not lose digits: float64, or float32 on Apple GPUs, which have no fp64."""
    return torch.float32 if device.type == "mps" else torch.float64


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of the arithmetic on logits of `dtype`."""
    return torch.float64 if dtype == torch.float64 else torch.float32


class Tiles:
    """Works through rows of logits in tiles of `pairs`, with one set of scratch rows that stays in the cache.

    `activation` leads from the head's linear output to logits [n, V]. `weight` is the factor of the divergence's
    gradient (by its `rule`); 0 leaves it out. Gradients are written over the logits if `gradient`.
    """

    def __init__(
        self,
        pairs: int,
        vocabulary: int,
        *,
        dtype: torch.dtype,
        device: torch.device,
        activation: Activation,
        rule: Divergence,
        weight: float,
        gradient: bool,
    ) -> None:
        self.dtype = wide_dtype(dtype)
        self._pairs_in_a_tile = pairs
        self._activation = activation
        self._rule = rule.keep(bool(weight), bool(weight))
        self._weight = weight
        self._score = SCORES.get(rule.source)
        self._gradient = gradient

        def scratch(views: int = 2) -> Tensor:
            return torch.empty(pairs, views, vocabulary, dtype=self.dtype, device=device)

        self._probability, self._spare, self._difference = scratch(), scratch(), scratch(1)
        self._upcast = scratch() if dtype != self.dtype else None
        self._slope = scratch() if gradient and activation[1] is not None else None

        def sides(long: float, short: float) -> Tensor:
            return torch.tensor([[[long], [short]]], dtype=self.dtype, device=device)

        k, sign = self._rule.k, self._rule.sign
        self._weighted_k = sides(weight * k[0], weight * k[1])
        self._weighted_sign = sides(weight * sign[0], weight * sign[1])
        # <p, z2'> = <p, z1'> - <p, z1' - z2'>, and <q, z1'> = <q, z2'> + <q, z1' - z2'>.
        self._other_less_own = sides(-1.0, 1.0)

    def pairs(self, logits: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
        """Pairs [n, 2, V] (long, short), with labels and weights of their cross entropy [n, 2, 1].

        The logits come as the head's linear output u and leave as the gradient with respect to scale * u. A
        row without a label has weight 0 and any label. Returns the sums [4 or 5, n, 2, 1] that `formulas.py` names.
        """
        # Small tensors are made here for all tiles: in a tile each costs as much as a pass over a row.
        tensors = (logits, labels, weights + self._weighted_k, -weights)
        parts = zip(*(tensor.split(self._pairs_in_a_tile) for tensor in tensors), strict=True)
        found = zip(*(self._pair(*part) for part in parts), strict=True)
        return torch.stack([torch.cat(statistic) for statistic in found])

    def rows(self, logits: Tensor, labels: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Rows [n, V] that have a cross entropy only, labels and weights [n, 1]; else as `pairs`.

        Returns max z and sum exp(z'), [n, 1] each.
        """
        tensors = (logits, labels, weights, -weights)
        parts = zip(*(tensor.split(2 * self._pairs_in_a_tile) for tensor in tensors), strict=True)
        top, total = zip(*(self._row(*part) for part in parts), strict=True)
        return torch.cat(top), torch.cat(total)

    def _row(
        self, logits: Tensor, labels: Tensor, weights: Tensor, label_gradients: Tensor
    ) -> tuple[Tensor, Tensor]:
        n = len(logits)
        z = logits if self._upcast is None else self._upcast.flatten(0, 1)[:n].copy_(logits)
        slope = None if self._slope is None else self._slope.flatten(0, 1)[:n]
        top = _subtract_maximum_(activate_(z, self._activation, slope=slope))
        total = z.exp_().sum(dim=-1, keepdim=True)
        if self._gradient:
            z.mul_(weights / total)
            _finish(z, labels, label_gradients, slope, out=logits)
        return top, total

    def _pair(
        self, logits: Tensor, labels: Tensor, constants: Tensor, label_gradients: Tensor
    ) -> list[Tensor]:
        n = len(logits)
        z = logits if self._upcast is None else self._upcast[:n].copy_(logits)
        slope = None if self._slope is None else self._slope[:n]
        probability, difference, spare = self._probability[:n], self._difference[:n], self._spare[:n]

        top = _subtract_maximum_(activate_(z, self._activation, slope=slope))
        total = torch.exp(z, out=probability).sum(dim=-1, keepdim=True)
        probability.mul_(total.reciprocal())
        torch.sub(z[:, :1], z[:, 1:], out=difference)
        own, cross = _dot(probability, z, spare), _dot(probability, difference, spare)
        scores, score = None, None
        if self._score:
            scores = self._score(difference, total)
            score = _dot(probability, scores, spare)
        if self._gradient:
            sources, means = self._sources(z, difference, scores, own, cross, score)
            self._write_gradient(z, probability, constants, sources, means, spare)
            _finish(z, labels, label_gradients, slope, out=logits)
        return [top, total, own, cross] + ([] if score is None else [score])

    def _sources(
        self,
        z: Tensor,
        difference: Tensor,
        scores: Tensor | None,
        own: Tensor,
        cross: Tensor,
        score: Tensor | None,
    ) -> tuple[Sequence[Tensor], Tensor]:
        """The rule's source of both sides, [n, V] each, and <p, source> [n, 2, 1]."""
        match self._rule.source:
            case "own":
                return z.unbind(1), own
            case "other":
                return z.unbind(1)[::-1], torch.addcmul(own, cross, self._other_less_own)
            case "long":
                return (z[:, 0], z[:, 0]), torch.cat((own[:, :1], own[:, 1:] + cross[:, 1:]), dim=1)
            case "difference":
                return (difference[:, 0], difference[:, 0]), cross
            case _:
                assert scores is not None
                assert score is not None
                return scores.unbind(1), score

    def _write_gradient(
        self,
        out: Tensor,
        probability: Tensor,
        constants: Tensor,
        sources: Sequence[Tensor],
        means: Tensor,
        spare: Tensor,
    ) -> None:
        """p * (w + a (k + s - <p, s>)) - a k q for both sides; `constants` is w + a k, `out` may hold
        sources."""
        factors = list(torch.addcmul(constants, means, self._weighted_sign, value=-1).unbind(1))
        for side, (source, sign) in enumerate(zip(sources, self._rule.sign, strict=True)):
            if sign:
                factors[side] = torch.add(
                    factors[side], source, alpha=sign * self._weight, out=spare[:, side]
                )
        probabilities = probability.unbind(1)
        for side, (gradient, k) in enumerate(zip(out.unbind(1), self._rule.k, strict=True)):
            torch.mul(probabilities[side], factors[side], out=gradient)
            if k:
                gradient.add_(probabilities[1 - side], alpha=-self._weight)


def _subtract_maximum_(z: Tensor) -> Tensor:
    top = z.amax(dim=-1, keepdim=True)
    z.sub_(top)
    return top


def _dot(a: Tensor, b: Tensor, spare: Tensor) -> Tensor:
    """<a, b> over the last axis. Not by a matrix product: users allow those to run in TF32."""
    return torch.mul(a, b, out=spare).sum(dim=-1, keepdim=True)


def _finish(z: Tensor, labels: Tensor, label_gradients: Tensor, slope: Tensor | None, *, out: Tensor) -> None:
    """Add the label's gradient, go back through the soft cap, and put the rows where the logits were."""
    z.scatter_add_(-1, labels, label_gradients)
    if slope is not None:
        z.mul_(slope)
    if z is not out:
        out.copy_(z)
