"""The objective from hidden states and head, without ever holding the logits of all rows.

Rows are taken a chunk at a time: their logits by one matrix product, loss and gradient with respect to the
logits in place (`tile.py`), then the gradients of hidden states and head by two more products. So gradients
are formed in the forward pass, each logit is computed once, and beside the results only one chunk of logits
is in memory. Backward multiplies them by the incoming gradient, a scalar.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lengthwise.alignment.divergences import NO_LABEL, Objective
from lengthwise.alignment.formulas import FORMULAS, entropy_of_pairs, jeffreys_of_pairs
from lengthwise.alignment.geometry import PairGeometry
from lengthwise.alignment.kernels import tiles_on
from lengthwise.alignment.tile import Activation, activate_, sum_dtype, wide_dtype
from lengthwise.errors import UsageError

# Bytes of logits in a chunk, and pairs. Each chunk reads and writes the whole head gradient, whose share of the time
# depends on the rows alone. On a CPU fewer than about 500 leave speed behind. On an H100 (bf16, summed in fp32) 2,048
# rows took 22 % more time than the products without that sum, 4,096 rows 11 %; the next half would be small, and its
# logits larger than the head at d = 4,096. docs/evidence/performance.md has the sweep.
_CHUNK_BYTES = {"cpu": 96 * 2**20}
_CHUNK_BYTES_ELSEWHERE = 2**30
_CHUNK_PAIRS_ELSEWHERE = 2048

# Rows of the weight's gradient that are added at a time where its sum has another dtype than the products.
_VOCABULARY_BLOCK = 8192

# A 16-bit weight's gradient is summed in 16 bits over this many chunks at most: each sum rounds again.
_CHUNKS_IN_16_BITS = 3


def fused_objective(
    hidden: tuple[Tensor, Tensor],
    head_weight: Tensor,
    head_bias: Tensor | None,
    labels: tuple[Tensor, Tensor],
    *,
    geometry: PairGeometry,
    objective: Objective,
    activation: Activation,
    divisors: tuple[float, float, float],
    chunk_size: int | None,
    accumulate_dtype: torch.dtype | None,
    compute_dtype: torch.dtype,
) -> tuple[Tensor, Sequence[Tensor]]:
    """The loss, differentiable once in hidden states and head, and its parts, which have no gradient.

    The parts are both cross entropies, entropy, jeffreys and the divergence, each divided by its divisor. Pairs of
    tensors are (long, short). The input must be checked; the meaning of each argument is as in `alignment_loss`.
    """
    tensors = (*hidden, head_weight, head_bias)
    # Gradients are held `unit` times their size, a power of two near the number of positions: in fp16 the gradient of
    # a mean over thousands of positions would underflow before a loss scale, applied in backward, can save it.
    unit = 2.0 ** math.ceil(math.log2(max(divisors)))
    # The tiles give gradients with respect to the scaled linear output.
    factor = unit * activation[0]
    trains, device, vocabulary = objective.trains, head_weight.device, len(head_weight)
    dtype = wide_dtype(compute_dtype)
    needed = [
        torch.is_grad_enabled() and tensor is not None and tensor.requires_grad and trained
        for tensor, trained in zip(tensors, (*trains, True, True), strict=True)
    ]
    with torch.no_grad(), torch.autocast(device.type, enabled=False):
        valid = [label != NO_LABEL for label in labels]
        targets = [label.where(there, 0) for label, there in zip(labels, valid, strict=True)]
        weights = [
            there.to(dtype) * (factor * share / divisor)
            for there, share, divisor in zip(valid, objective.ce_shares, divisors[:2], strict=True)
        ]
        # Zero for rows that take no part; row-major, whatever the layout of the hidden states.
        hidden_gradients = [
            torch.zeros_like(rows, memory_format=torch.contiguous_format) if need else None
            for rows, need in zip(hidden, needed[:2], strict=True)
        ]
        pairs = chunk_size or default_chunk_size(vocabulary, compute_dtype, device)
        chunks = chunks_of(*labels, geometry=geometry, pairs=pairs)
        head = _Head(
            head_weight,
            head_bias,
            dtype=compute_dtype,
            accumulate_dtype=accumulate_dtype,
            needed=needed[2:],
            chunks=len(chunks),
        )
        tiles = tiles_on(device, vocabulary, objective.rule)(
            vocabulary,
            dtype=compute_dtype,
            device=device,
            activation=activation,
            rule=objective.rule,
            weight=factor * objective.alpha / divisors[2],
            gradient=any(needed),
        )
        _, from_pairs = FORMULAS[objective.divergence]
        sums = torch.zeros(5, dtype=sum_dtype(device), device=device)
        most = max(map(len, chunks), default=0)
        buffer = torch.empty(most, vocabulary, dtype=compute_dtype, device=device)
        for chunk in chunks:
            rows = chunk.take(hidden).to(compute_dtype)
            logits = head.linear(rows, out=buffer[: len(rows)])
            label, has_label, weight = (chunk.take(each).unsqueeze(1) for each in (targets, valid, weights))
            # Taken now, before the tiles write the gradient over the logits.
            label_logit = activate_(logits.gather(1, label).to(sums.dtype), activation)
            if chunk.paired:
                found = tiles.pairs(*(each.unflatten(0, (-1, 2)) for each in (logits, label, weight)))
                found = found.to(sums.dtype)
                top, total = found[:2].flatten(1, 2)
                term = from_pairs(found, int(objective.detach == "short"))
                sums[2:] += torch.stack([entropy_of_pairs(found), jeffreys_of_pairs(found), term])
            else:
                top, total = tiles.rows(logits, label, weight)
            cross_entropy = (total.to(sums.dtype).log() + top - label_logit).where(has_label, 0)
            sums[:2] += torch.stack([part.sum() for part in chunk.split(cross_entropy)])
            _add_hidden_gradients(hidden_gradients, chunk, logits, head)
            _add_head_gradient(trains, chunk, logits, rows, head)
        parts = sums / sums.new_tensor([*divisors, divisors[2], divisors[2]])
        loss = objective.trained_cross_entropy(parts[0], parts[1]) + objective.alpha * parts[4]
        gradients = [*hidden_gradients, *head.gradients()]
        loss, parts = loss.to(dtype), parts.to(dtype)
    if any(needed):
        loss = _WithGradients.apply(loss, unit, gradients, *tensors)
    return loss, parts.unbind()


def default_chunk_size(vocabulary: int, dtype: torch.dtype, device: torch.device) -> int:
    """Pairs in a chunk when the caller leaves it open: what some bytes of logits hold; off the CPU at most 2,048."""
    budget = _CHUNK_BYTES.get(device.type, _CHUNK_BYTES_ELSEWHERE)
    pairs = max(16, budget // (2 * vocabulary * dtype.itemsize))
    return pairs if device.type in _CHUNK_BYTES else min(pairs, _CHUNK_PAIRS_ELSEWHERE)


Index = tuple[Tensor, Tensor]
"""Samples and rows, [n] each: `hidden[index]` is [n, d]."""


@dataclass(frozen=True)
class _Chunk:
    """Rows whose logits are in memory together: long's, then short's; alternating if `paired`."""

    rows: tuple[Index, Index]
    paired: bool

    def __len__(self) -> int:
        return sum(len(sample) for sample, _ in self.rows)

    def take(self, views: Sequence[Tensor]) -> Tensor:
        """The chunk's rows of both views [B, L, ...], in the chunk's order: [n, ...]."""
        sides = [view[index] for view, index in zip(views, self.rows, strict=True)]
        return torch.stack(sides, dim=1).flatten(0, 1) if self.paired else torch.cat(sides)

    def split(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Values of rows in the chunk's order as those of the long and of the short rows, without a copy."""
        if self.paired:
            long, short = values.unflatten(0, (-1, 2)).unbind(1)
            return long, short
        rows_of_long = len(self.rows[0][0])
        return values[:rows_of_long], values[rows_of_long:]


def chunks_of(
    labels_long: Tensor, labels_short: Tensor, *, geometry: PairGeometry, pairs: int
) -> list[_Chunk]:
    """The chunks of a batch with labels [B, L]: pairs first, at most `pairs` in a chunk, then rows with a label only.

    Rows with neither label nor partner have no part in the loss: they are left out.
    """
    found, per_sample = [], geometry.paired_positions
    for start, stop in _bounds(len(labels_long) * per_sample, pairs):
        position = torch.arange(start, stop, device=labels_long.device)
        sample, pair = position // per_sample, position % per_sample
        long, short = pair + geometry.long_rows.start, pair + geometry.short_rows.start
        found.append(_Chunk(((sample, long), (sample, short)), paired=True))
    long, short = _unpaired(labels_long, geometry.long_rows), _unpaired(labels_short, geometry.short_rows)
    first_short = len(long[0])
    for start, stop in _bounds(first_short + len(short[0]), 2 * pairs):
        sides = _cut(long, start, stop), _cut(short, start - first_short, stop - first_short)
        found.append(_Chunk(sides, paired=False))
    return found


def _unpaired(labels: Tensor, paired_rows: slice) -> Index:
    has_label = labels != NO_LABEL
    has_label[:, paired_rows] = False
    sample, row = has_label.nonzero(as_tuple=True)
    return sample, row


def _bounds(total: int, most: int) -> list[tuple[int, int]]:
    """0 .. total in equal parts of at most `most`; a small last part would waste a pass over the head."""
    parts = -(-total // most)
    edges = [total * part // parts for part in range(parts + 1)] if parts else []
    return list(itertools.pairwise(edges))


def _cut(index: Index, start: int, stop: int) -> Index:
    start, stop = max(start, 0), max(stop, 0)
    return index[0][start:stop], index[1][start:stop]


class _Head:
    """The output head: weight [V, d] and bias [V] in the `dtype` of the products, and their gradients where `needed`.

    The weight's gradient is summed in `accumulate_dtype`; None is fp32 for a 16-bit weight in more than a few
    `chunks` (how many times `add_gradient` will be called), else the weight's own.
    """

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor | None,
        *,
        dtype: torch.dtype,
        accumulate_dtype: torch.dtype | None,
        needed: Sequence[bool],
        chunks: int,
    ) -> None:
        if accumulate_dtype is None:
            accumulate_dtype = weight.dtype if chunks <= _CHUNKS_IN_16_BITS else wide_dtype(weight.dtype)
        self._weight_dtype, self._bias_dtype = weight.dtype, None if bias is None else bias.dtype
        self._weight = weight.to(dtype)
        self._bias = None if bias is None else bias.to(dtype)
        self._weight_sum = torch.zeros_like(weight, dtype=accumulate_dtype) if needed[0] else None
        self._bias_sum = None
        if bias is not None and needed[1]:
            self._bias_sum = torch.zeros_like(bias, dtype=wide_dtype(bias.dtype))

    def linear(self, hidden: Tensor, *, out: Tensor) -> Tensor:
        """hidden W^T + bias: [n, d] -> [n, V]."""
        if self._bias is None:
            return torch.mm(hidden, self._weight.t(), out=out)
        return torch.addmm(self._bias, hidden, self._weight.t(), out=out)

    def hidden_gradient(self, logit_gradient: Tensor) -> Tensor:
        """[n, V] -> [n, d]."""
        return logit_gradient @ self._weight

    def add_gradient(self, logit_gradient: Tensor, hidden: Tensor) -> None:
        """Add the share of rows [n, V] with hidden states [n, d]."""
        if self._bias_sum is not None:
            self._bias_sum += logit_gradient.sum(dim=0, dtype=self._bias_sum.dtype)
        total = self._weight_sum
        if total is None:
            return
        if total.dtype == logit_gradient.dtype:
            total.addmm_(logit_gradient.t(), hidden)
            return
        for block, columns in zip(
            total.split(_VOCABULARY_BLOCK), logit_gradient.split(_VOCABULARY_BLOCK, dim=1), strict=True
        ):
            block += columns.t() @ hidden

    def gradients(self) -> tuple[Tensor | None, Tensor | None]:
        """Of weight and bias, in their own dtypes."""
        weight = None if self._weight_sum is None else self._weight_sum.to(self._weight_dtype)
        bias = None if self._bias_sum is None else self._bias_sum.to(self._bias_dtype)
        return weight, bias


class _WithGradients(torch.autograd.Function):
    """A loss whose gradients are formed already, each `unit` times its size."""

    @staticmethod
    def forward(
        ctx: Any, loss: Tensor, unit: float, gradients: list[Tensor | None], *tensors: Tensor | None
    ) -> Tensor:
        ctx.unit, ctx.gradients = unit, gradients
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise UsageError(
                "the gradient of alignment_loss cannot be differentiated again (create_graph=True)",
                expected="a single backward pass",
                fix="use alignment_loss_from_logits where second derivatives are needed",
            )
        if ctx.gradients is None:
            raise UsageError(
                "this alignment_loss was differentiated before, and its gradients are formed only once",
                expected="one backward pass for each call",
                fix="call alignment_loss again, or add up losses before one backward",
            )
        gradients, ctx.gradients = ctx.gradients, None
        factor = upstream[0] / ctx.unit
        for gradient in gradients:
            if gradient is not None:
                gradient.mul_(factor)
        return None, None, None, *gradients


def _add_head_gradient(
    trains: tuple[bool, bool], chunk: _Chunk, logit_gradient: Tensor, rows: Tensor, head: _Head
) -> None:
    if all(trains):
        head.add_gradient(logit_gradient, rows)
        return
    for trained, *part in zip(trains, chunk.split(logit_gradient), chunk.split(rows), strict=True):
        if trained and len(part[0]):
            head.add_gradient(*part)


def _add_hidden_gradients(
    gradients: Sequence[Tensor | None], chunk: _Chunk, logit_gradient: Tensor, head: _Head
) -> None:
    both = all(gradient is not None for gradient in gradients)
    parts = chunk.split(head.hidden_gradient(logit_gradient) if both else logit_gradient)
    for gradient, index, part in zip(gradients, chunk.rows, parts, strict=True):
        if gradient is not None:
            gradient[index] = (part if both else head.hidden_gradient(part)).to(gradient.dtype)
