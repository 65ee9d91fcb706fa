"""The elementwise part of the fused objective as GPU kernels: the contract and formulas of `tile.py`.

The tests run the kernels in Triton's interpreter, on a CPU, and `checks/gpu.sh` on a GPU. On an H100 the loss
takes 0.56 of its time with the torch tile (docs/evidence/performance.md).

One program works on one pair of rows, or on one row without a partner. It sweeps over them in blocks of the
vocabulary. The first sweep takes the maxima and all sums at once, and rescales the sums when a maximum
grows. The last sweep reads the logits again and writes their gradients over them. Jensen-Shannon needs one
more in between, because the mixture of p and q is unknown before both are normalized. No other program
touches these rows, and a gradient depends on all that was read before, so working in place is safe.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from lengthwise.alignment.divergences import Divergence
from lengthwise.alignment.tile import Activation, wide_dtype

# The sources that the kernels know. Divergences of other sources run on the torch tile.
SOURCES = ("own", "other", "long", "difference", "mixture")

# Columns in a block, between these powers of two. The smaller is at least the number of threads: a column
# held by two threads could be read by one after the other has written it.
_SMALLEST_BLOCK = 256
_LARGEST_BLOCK = 4096

# Where a maximum starts: below all logits but finite, since the difference of two infinities is NaN.
_FLOOR = tl.constexpr(-1e30)
_LOG_2 = tl.constexpr(0.6931471805599453)


class TritonTiles:
    """`Tiles` for tensors on a GPU; arguments as there."""

    def __init__(
        self,
        vocabulary: int,
        *,
        dtype: torch.dtype,
        device: torch.device,
        activation: Activation,
        rule: Divergence,
        weight: float,
        gradient: bool,
    ) -> None:
        self._vocabulary = vocabulary
        self._dtype = wide_dtype(dtype)
        self._mixture = rule.source == "mixture"
        # A tensor: as a number it would be rounded to fp32, as a constant each new value would be compiled.
        self._weight = torch.full((1,), weight, dtype=self._dtype, device=device)
        rule = rule.keep(bool(weight), bool(weight))
        block = min(max(triton.next_power_of_2(vocabulary), _SMALLEST_BLOCK), _LARGEST_BLOCK)
        self._constants: dict[str, Any] = {
            "SCALE": activation[0],
            "SOFT_CAP": activation[1],
            "GRADIENT": gradient,
            "BLOCK": block,
            # Eight columns a thread: 16 bytes of 16-bit logits, one load. Not measured.
            "num_warps": max(block // 256, 4),
            # Set, because its default is about to change.
            "enable_fp_fusion": True,
        }
        self._pair_constants: dict[str, Any] = {
            "SOURCE": rule.source,
            "K_LONG": rule.k[0],
            "K_SHORT": rule.k[1],
            "SIGN_LONG": rule.sign[0],
            "SIGN_SHORT": rule.sign[1],
            "MIXTURE": self._mixture,
        }

    def pairs(self, logits: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
        """As `Tiles.pairs`: logits [n, 2, V] in place, labels and weights [n, 2, 1]; all contiguous."""
        found = self._launch(_pairs, 5, logits, labels, weights, self._weight, **self._pair_constants)
        return found if self._mixture else found[:4]

    def rows(self, logits: Tensor, labels: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """As `Tiles.rows`: logits [n, V] in place, labels and weights [n, 1]; all contiguous."""
        top, total = self._launch(_rows, 2, logits, labels, weights).unbind()
        return top, total

    def _launch(self, kernel: Any, count: int, logits: Tensor, *rows: Tensor, **constants: Any) -> Tensor:
        """What a kernel finds [count, ...], after a look at what it takes for granted."""
        labels, weights = rows[:2]
        assert logits.shape == (*labels.shape[:-1], self._vocabulary)
        assert weights.shape == labels.shape
        assert weights.dtype == self._dtype
        assert all(tensor.is_contiguous() for tensor in (logits, labels, weights))
        found = weights.new_empty(count, *labels.shape)
        # Triton launches on the current device, which need not be that of the tensors.
        with torch.cuda.device_of(logits):
            kernel[(len(logits),)](logits, *rows, found, self._vocabulary, **constants, **self._constants)
        return found


@triton.jit
def _tanh(x):
    """From exp alone, which loses the digits of small x in fp32: there, its series."""
    decay = tl.exp(-2.0 * tl.abs(x))
    size = 1.0 - 2.0 * decay / (1.0 + decay)
    result = tl.where(x < 0.0, -size, size)
    if x.dtype != tl.float64:
        square = x * x
        series = 1.0 + square * (-1 / 3 + square * (2 / 15 + square * (-17 / 315 + square * (62 / 2835))))
        result = tl.where(tl.abs(x) < 0.25, x * series, result)
    return result


@triton.jit
def _load_logits(linear, inside, WIDE: tl.constexpr, SCALE: tl.constexpr, SOFT_CAP: tl.constexpr):
    """Logits from the head's linear outputs; those outside are finite and mean nothing."""
    z = tl.load(linear, mask=inside, other=0.0).to(WIDE)
    if SOFT_CAP is not None:
        z = SOFT_CAP * _tanh(z * (SCALE / SOFT_CAP))
    elif SCALE != 1.0:
        z = z * SCALE
    return z


@triton.jit
def _largest(z, inside):
    return tl.max(tl.where(inside, z, _FLOOR), axis=0)


@triton.jit
def _sum(values) -> Any:
    return tl.sum(values, axis=0)


@triton.jit
def _exp_inside(z, inside):
    return tl.where(inside, tl.exp(z), 0.0)


@triton.jit
def _mixture_score(log_ratio):
    """(log p - log m) / 2, finite where p and q underflow, of log p - log q."""
    # log p - log m = log 2 - log(1 + q/p), and the latter is softplus(-log_ratio).
    softplus = tl.maximum(-log_ratio, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(log_ratio)))
    return 0.5 * (_LOG_2 - softplus)


@triton.jit
def _pair_gradient(
    own, other, source, is_label, label_weight, divergence_weight, K: tl.constexpr, SIGN: tl.constexpr
):
    """p * (w + a (k + s - <p, s>)) - a k q - w onehot(label); `source` is less its mean under p."""
    factor = label_weight + divergence_weight * K
    if SIGN != 0:
        factor = factor + divergence_weight * SIGN * source
    gradient = own * factor - tl.where(is_label, label_weight, 0.0)
    if K != 0:
        gradient = gradient - divergence_weight * other
    return gradient


@triton.jit
def _store_gradient(out, gradient, logits, inside, SOFT_CAP: tl.constexpr):
    """Go back through the soft cap and put the gradient where the logits were."""
    if SOFT_CAP is not None:
        tangent = logits * (1.0 / SOFT_CAP)
        gradient = gradient * (1.0 - tangent * tangent)
    tl.store(out, gradient, mask=inside)


@triton.jit
def _pairs(
    logits,
    labels,
    weights,
    divergence_weight,
    found,
    vocabulary,
    SOURCE: tl.constexpr,
    K_LONG: tl.constexpr,
    K_SHORT: tl.constexpr,
    SIGN_LONG: tl.constexpr,
    SIGN_SHORT: tl.constexpr,
    MIXTURE: tl.constexpr,
    SCALE: tl.constexpr,
    SOFT_CAP: tl.constexpr,
    GRADIENT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    WIDE: tl.constexpr = found.dtype.element_ty
    # A chunk can hold more than 2^31 logits.
    pair = tl.program_id(0).to(tl.int64)
    long_row = logits + pair * 2 * vocabulary
    short_row = long_row + vocabulary
    block = tl.arange(0, BLOCK)

    # Sums are kept for each column of the block and added up at the end. Primes are logits less their
    # row's maximum so far: a maximum that grows by g takes own to e^-g (own - g total), and cross likewise.
    top_long = tl.full((), _FLOOR, WIDE)
    top_short = tl.full((), _FLOOR, WIDE)
    total_long = tl.zeros((BLOCK,), WIDE)
    total_short = tl.zeros((BLOCK,), WIDE)
    own_long = tl.zeros((BLOCK,), WIDE)
    own_short = tl.zeros((BLOCK,), WIDE)
    cross_long = tl.zeros((BLOCK,), WIDE)
    cross_short = tl.zeros((BLOCK,), WIDE)
    for start in range(0, vocabulary, BLOCK):
        columns = start + block
        inside = columns < vocabulary
        z_long = _load_logits(long_row + columns, inside, WIDE, SCALE, SOFT_CAP)
        z_short = _load_logits(short_row + columns, inside, WIDE, SCALE, SOFT_CAP)

        before_long, before_short = top_long, top_short
        top_long = tl.maximum(top_long, _largest(z_long, inside))
        top_short = tl.maximum(top_short, _largest(z_short, inside))
        growth_long, growth_short = top_long - before_long, top_short - before_short
        growth_apart = growth_long - growth_short
        decay_long, decay_short = tl.exp(-growth_long), tl.exp(-growth_short)

        z_long, z_short = z_long - top_long, z_short - top_short
        exp_long, exp_short = _exp_inside(z_long, inside), _exp_inside(z_short, inside)
        apart = z_long - z_short
        own_long = decay_long * (own_long - growth_long * total_long) + exp_long * z_long
        own_short = decay_short * (own_short - growth_short * total_short) + exp_short * z_short
        cross_long = decay_long * (cross_long - growth_apart * total_long) + exp_long * apart
        cross_short = decay_short * (cross_short - growth_apart * total_short) + exp_short * apart
        total_long = decay_long * total_long + exp_long
        total_short = decay_short * total_short + exp_short

    sum_long, sum_short = _sum(total_long), _sum(total_short)
    mean_own_long = _sum(own_long) / sum_long
    mean_own_short = _sum(own_short) / sum_short
    mean_cross_long = _sum(cross_long) / sum_long
    mean_cross_short = _sum(cross_short) / sum_short
    log_ratio_of_sums = tl.log(sum_long) - tl.log(sum_short)

    mean_score_long = tl.zeros((), WIDE)
    mean_score_short = tl.zeros((), WIDE)
    if MIXTURE:
        scores_long = tl.zeros((BLOCK,), WIDE)
        scores_short = tl.zeros((BLOCK,), WIDE)
        for start in range(0, vocabulary, BLOCK):
            columns = start + block
            inside = columns < vocabulary
            z_long = _load_logits(long_row + columns, inside, WIDE, SCALE, SOFT_CAP) - top_long
            z_short = _load_logits(short_row + columns, inside, WIDE, SCALE, SOFT_CAP) - top_short
            log_ratio = z_long - z_short - log_ratio_of_sums
            scores_long += _exp_inside(z_long, inside) * _mixture_score(log_ratio)
            scores_short += _exp_inside(z_short, inside) * _mixture_score(-log_ratio)
        mean_score_long = _sum(scores_long) / sum_long
        mean_score_short = _sum(scores_short) / sum_short

    # [statistic, pair, side]
    plane = 2 * tl.num_programs(0).to(tl.int64)
    long_out = found + pair * 2
    short_out = long_out + 1
    tl.store(long_out, top_long)
    tl.store(short_out, top_short)
    tl.store(long_out + plane, sum_long)
    tl.store(short_out + plane, sum_short)
    tl.store(long_out + 2 * plane, mean_own_long)
    tl.store(short_out + 2 * plane, mean_own_short)
    tl.store(long_out + 3 * plane, mean_cross_long)
    tl.store(short_out + 3 * plane, mean_cross_short)
    tl.store(long_out + 4 * plane, mean_score_long)
    tl.store(short_out + 4 * plane, mean_score_short)

    if GRADIENT:
        label_long = tl.load(labels + pair * 2).to(tl.int32)
        label_short = tl.load(labels + pair * 2 + 1).to(tl.int32)
        weight_long = tl.load(weights + pair * 2)
        weight_short = tl.load(weights + pair * 2 + 1)
        weight = tl.load(divergence_weight)
        for start in range(0, vocabulary, BLOCK):
            columns = start + block
            inside = columns < vocabulary
            logits_long = _load_logits(long_row + columns, inside, WIDE, SCALE, SOFT_CAP)
            logits_short = _load_logits(short_row + columns, inside, WIDE, SCALE, SOFT_CAP)
            z_long, z_short = logits_long - top_long, logits_short - top_short
            p, q = tl.exp(z_long) / sum_long, tl.exp(z_short) / sum_short

            if SOURCE == "own":
                source_long, source_short = z_long - mean_own_long, z_short - mean_own_short
            elif SOURCE == "other":
                # <p, z2'> = <p, z1'> - <p, z1' - z2'>, and <q, z1'> = <q, z2'> + <q, z1' - z2'>.
                source_long = z_short - (mean_own_long - mean_cross_long)
                source_short = z_long - (mean_own_short + mean_cross_short)
            elif SOURCE == "long":
                source_long = z_long - mean_own_long
                source_short = z_long - (mean_own_short + mean_cross_short)
            elif SOURCE == "difference":
                apart = z_long - z_short
                source_long, source_short = apart - mean_cross_long, apart - mean_cross_short
            else:
                log_ratio = z_long - z_short - log_ratio_of_sums
                source_long = _mixture_score(log_ratio) - mean_score_long
                source_short = _mixture_score(-log_ratio) - mean_score_short

            gradient_long = _pair_gradient(
                p, q, source_long, columns == label_long, weight_long, weight, K_LONG, SIGN_LONG
            )
            gradient_short = _pair_gradient(
                q, p, source_short, columns == label_short, weight_short, weight, K_SHORT, SIGN_SHORT
            )
            _store_gradient(long_row + columns, gradient_long, logits_long, inside, SOFT_CAP)
            _store_gradient(short_row + columns, gradient_short, logits_short, inside, SOFT_CAP)


@triton.jit
def _rows(
    logits,
    labels,
    weights,
    found,
    vocabulary,
    SCALE: tl.constexpr,
    SOFT_CAP: tl.constexpr,
    GRADIENT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    WIDE: tl.constexpr = found.dtype.element_ty
    index = tl.program_id(0).to(tl.int64)
    row = logits + index * vocabulary
    block = tl.arange(0, BLOCK)

    top = tl.full((), _FLOOR, WIDE)
    total = tl.zeros((BLOCK,), WIDE)
    for start in range(0, vocabulary, BLOCK):
        columns = start + block
        inside = columns < vocabulary
        z = _load_logits(row + columns, inside, WIDE, SCALE, SOFT_CAP)
        before = top
        top = tl.maximum(top, _largest(z, inside))
        total = tl.exp(before - top) * total + _exp_inside(z - top, inside)
    total_sum = _sum(total)
    tl.store(found + index, top)
    tl.store(found + tl.num_programs(0) + index, total_sum)

    if GRADIENT:
        label = tl.load(labels + index).to(tl.int32)
        weight = tl.load(weights + index)
        for start in range(0, vocabulary, BLOCK):
            columns = start + block
            inside = columns < vocabulary
            z = _load_logits(row + columns, inside, WIDE, SCALE, SOFT_CAP)
            gradient = tl.exp(z - top) / total_sum * weight - tl.where(columns == label, weight, 0.0)
            _store_gradient(row + columns, gradient, z, inside, SOFT_CAP)
