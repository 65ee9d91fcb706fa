"""The objective from hidden states and head, without ever holding the logits of all rows.

Rows are taken a chunk at a time: their logits by one matrix product, loss and gradient with respect to the
logits in place (`tile.py`), then the gradients of hidden states and head by two more products. So gradients
are formed in the forward pass, each logit is computed once, and beside the results only one chunk of logits
is in memory. Backward multiplies them by the incoming gradient, a scalar.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from lengthwise.alignment.backend import kernels_pass, tile_on
from lengthwise.alignment.chunks import Chunk, ChunkSchedule, Index
from lengthwise.alignment.divergences import Objective, Rule
from lengthwise.alignment.formulas import FORMULAS, PairStatistics, PairSums
from lengthwise.alignment.fused_head import FusedHead
from lengthwise.alignment.geometry import PairGeometry
from lengthwise.alignment.loss_output import Divisors
from lengthwise.alignment.tile import Activation, Tiles, sum_dtype, wide_dtype
from lengthwise.errors import UsageError

if TYPE_CHECKING:
    from lengthwise.alignment.triton import TritonTiles

# Bytes of logits in a chunk. On a CPU products of fewer than about 500 rows leave speed behind, because each
# reads and writes the whole head gradient. The value for other devices is not measured.
_CHUNK_BYTES = {"cpu": 96 * 2**20}
_CHUNK_BYTES_ELSEWHERE = 512 * 2**20

# Logits of one view in a tile. On a CPU its four to eight scratch tensors of this size have to stay in the
# cache that each thread has.
_TILE_LOGITS_A_THREAD = 2**16
_TILE_LOGITS_ELSEWHERE = 2**23


@dataclass(frozen=True)
class Settings:
    """What the pass needs beside tensors; the meaning of each as in `alignment_loss`."""

    geometry: PairGeometry
    objective: Objective
    activation: Activation
    divisors: Divisors
    ignore_index: int
    chunk_size: int | None
    accumulate_dtype: torch.dtype | None
    compute_dtype: torch.dtype


class Parts(NamedTuple):
    """The parts of the objective, each divided by its divisor; scalars without gradient."""

    cross_entropy_long: Tensor
    cross_entropy_short: Tensor
    entropy: Tensor
    jeffreys: Tensor
    divergence: Tensor


def fused_objective(
    hidden_long: Tensor,
    hidden_short: Tensor,
    head_weight: Tensor,
    head_bias: Tensor | None,
    labels_long: Tensor,
    labels_short: Tensor,
    settings: Settings,
) -> tuple[Tensor, Parts]:
    """The loss, differentiable once in the first four arguments, and its parts. The input must be checked."""
    loss, parts = _Fused.apply(  # pyright: ignore[reportGeneralTypeIssues]
        hidden_long,
        hidden_short,
        head_weight,
        head_bias,
        labels_long,
        labels_short,
        settings,
        torch.is_grad_enabled(),
    )
    return loss, Parts(*parts.unbind())


def default_chunk_size(vocabulary: int, dtype: torch.dtype, device: torch.device) -> int:
    """Pairs in a chunk when the caller leaves it open: what a fixed number of bytes of logits holds."""
    budget = _CHUNK_BYTES.get(device.type, _CHUNK_BYTES_ELSEWHERE)
    return max(16, budget // (2 * vocabulary * dtype.itemsize))


def _tile_logits(device: torch.device) -> int:
    return _TILE_LOGITS_A_THREAD * torch.get_num_threads() if device.type == "cpu" else _TILE_LOGITS_ELSEWHERE


def _tiles_on(device: torch.device, vocabulary: int, rule: Rule) -> Callable[..., Tiles | TritonTiles]:
    if tile_on(device.type) == "triton" and kernels_pass(device):
        from lengthwise.alignment.triton import SOURCES, TritonTiles

        if rule.source in SOURCES:
            return TritonTiles
    return partial(Tiles, max(1, _tile_logits(device) // vocabulary))


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[Tensor, Tensor]:
        *tensors, settings, differentiable = arguments
        needed = [differentiable and need for need in ctx.needs_input_grad[:4]]
        with torch.autocast(tensors[0].device.type, enabled=False):
            work = _Pass(*tensors, settings=settings, needed=needed)
            parts = work.run()
        ctx.gradients, ctx.unit = work.gradients(), work.unit
        named, objective = Parts(*parts.unbind()), settings.objective
        loss = objective.trained_cross_entropy(named.cross_entropy_long, named.cross_entropy_short)
        loss = loss + objective.alpha * named.divergence
        parts = parts.to(wide_dtype(settings.compute_dtype))
        ctx.mark_non_differentiable(parts)
        return loss.to(parts.dtype), parts

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
        return *gradients, None, None, None, None


class _Pass:
    """One pass over all rows: the parts of the loss and, where needed, gradients.

    Gradients are held `unit` times their size, a power of two near the number of positions: in fp16 the
    gradient of a mean over thousands of positions would underflow before a loss scale, applied in backward,
    can save it.
    """

    def __init__(
        self,
        hidden_long: Tensor,
        hidden_short: Tensor,
        head_weight: Tensor,
        head_bias: Tensor | None,
        labels_long: Tensor,
        labels_short: Tensor,
        *,
        settings: Settings,
        needed: Sequence[bool],
    ) -> None:
        dtype, device, vocabulary = settings.compute_dtype, hidden_long.device, head_weight.shape[0]
        divisors = settings.divisors
        largest = max(divisors.labels_long, divisors.labels_short, divisors.paired_positions)
        self.unit = 2.0 ** math.ceil(math.log2(largest))
        # The tiles give gradients with respect to the scaled linear output.
        factor = self.unit * settings.activation.scale
        self._settings = settings
        objective = settings.objective
        self._trains = objective.trains
        needed = [need and trained for need, trained in zip(needed, (*self._trains, True, True), strict=True)]
        shares = [factor * share for share in objective.ce_shares]
        self._long = _View(hidden_long, labels_long, shares[0] / divisors.labels_long, needed[0], settings)
        self._short = _View(
            hidden_short, labels_short, shares[1] / divisors.labels_short, needed[1], settings
        )
        self._schedule = ChunkSchedule(
            labels_long,
            labels_short,
            geometry=settings.geometry,
            ignore_index=settings.ignore_index,
            pairs=settings.chunk_size or default_chunk_size(vocabulary, dtype, device),
        )
        self._head = FusedHead(
            head_weight,
            head_bias,
            dtype=dtype,
            accumulate_dtype=settings.accumulate_dtype,
            needed=needed[2:],
            chunks=len(self._schedule),
        )
        self._tiles = _tiles_on(device, vocabulary, objective.rule)(
            vocabulary,
            dtype=dtype,
            device=device,
            activation=settings.activation,
            rule=objective.rule,
            weight=factor * objective.alpha / divisors.paired_positions,
            gradient=any(needed),
        )
        self._sum_dtype = sum_dtype(device)

    def run(self) -> Tensor:
        """The numbers of `Parts`."""
        device = self._long.hidden.device
        sums = torch.zeros(len(Parts._fields), dtype=self._sum_dtype, device=device)
        buffer = self._head.empty_logits(self._schedule.most_rows)
        for chunk in self._schedule:
            hidden, logits = self._logits(chunk, buffer)
            sums += self._take_loss(chunk, logits)
            # Now `logits` holds their gradients.
            self._add_hidden_gradients(chunk, logits)
            self._add_head_gradient(chunk, logits, hidden)
        divisors = self._settings.divisors
        labels, paired = [divisors.labels_long, divisors.labels_short], divisors.paired_positions
        return sums / sums.new_tensor([*labels, *3 * [paired]])

    def gradients(self) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
        """Of both views' hidden states and the head's weight and bias, `unit` times their size."""
        return self._long.gradient, self._short.gradient, *self._head.gradients()

    def _logits(self, chunk: Chunk, buffer: Tensor) -> tuple[Tensor, Tensor]:
        """Hidden states and linear outputs of a chunk; the latter in `buffer`."""
        hidden = chunk.join(self._long.hidden[chunk.long], self._short.hidden[chunk.short]).to(buffer.dtype)
        return hidden, self._head.linear(hidden, out=buffer[: len(hidden)])

    def _targets(self, chunk: Chunk) -> list[Tensor]:
        """Labels, whether there is one, and their weights in the gradient: of a chunk's rows [n, 1] each."""
        long, short = self._long.targets(chunk.long), self._short.targets(chunk.short)
        return [chunk.join(*both) for both in zip(long, short, strict=True)]

    def _take_loss(self, chunk: Chunk, logits: Tensor) -> Tensor:
        """The sums over one chunk; leaves the gradient in `logits`, which come as linear outputs."""
        labels, valid, weights = self._targets(chunk)
        # Taken now, before the tiles write over it.
        label_logit = self._settings.activation.apply_(logits.gather(1, labels).to(self._sum_dtype))
        if chunk.paired:
            pairs = self._tiles.pairs(*(rows.unflatten(0, (-1, 2)) for rows in (logits, labels, weights)))
            top, total = pairs.top.flatten(0, 1), pairs.total.flatten(0, 1)
            others = self._divergences(pairs)
        else:
            top, total = self._tiles.rows(logits, labels, weights)
            others = [label_logit.new_zeros(())] * 3
        cross_entropy = (total.to(self._sum_dtype).log() + top - label_logit).where(valid, 0)
        return torch.stack([*(part.sum() for part in chunk.split(cross_entropy)), *others])

    def _divergences(self, pairs: PairStatistics) -> list[Tensor]:
        """Sums of entropy, jeffreys and the chosen divergence over pairs of rows."""
        sums = PairSums(pairs, self._sum_dtype)
        objective = self._settings.objective
        chosen = FORMULAS[objective.divergence].from_sums(sums, int(objective.detach == "short"))
        return [sums.entropy, sums.jeffreys, chosen]

    def _add_hidden_gradients(self, chunk: Chunk, logit_gradient: Tensor) -> None:
        long, short = self._long.gradient, self._short.gradient
        if long is not None and short is not None:
            long_part, short_part = chunk.split(self._head.hidden_gradient(logit_gradient))
            long[chunk.long] = long_part.to(long.dtype)
            short[chunk.short] = short_part.to(short.dtype)
            return
        for gradient, index, part in zip(
            (long, short), (chunk.long, chunk.short), chunk.split(logit_gradient), strict=True
        ):
            if gradient is not None:
                gradient[index] = self._head.hidden_gradient(part).to(gradient.dtype)

    def _add_head_gradient(self, chunk: Chunk, logit_gradient: Tensor, hidden: Tensor) -> None:
        if all(self._trains):
            self._head.add_gradient(logit_gradient, hidden)
            return
        for trained, *part in zip(
            self._trains, chunk.split(logit_gradient), chunk.split(hidden), strict=True
        ):
            if trained and len(part[0]):
                self._head.add_gradient(*part)


class _View:
    """Hidden states and labels of one view, and the gradient of the former where it is needed."""

    def __init__(
        self, hidden: Tensor, labels: Tensor, label_weight: float, needed: bool, settings: Settings
    ) -> None:
        self.hidden = hidden
        # Zero for rows that take no part; made row-major, whatever the layout of the hidden states.
        self.gradient = (
            torch.zeros(hidden.shape, dtype=hidden.dtype, device=hidden.device) if needed else None
        )
        self._labels = labels
        self._label_weight = label_weight
        self._ignore_index = settings.ignore_index
        self._dtype = wide_dtype(settings.compute_dtype)

    def targets(self, index: Index) -> tuple[Tensor, Tensor, Tensor]:
        """Labels, whether there is one, and their weights in the gradient [n, 1]; without one both are 0."""
        labels = self._labels[index].unsqueeze(1)
        valid = labels != self._ignore_index
        return labels.where(valid, 0), valid, valid.to(self._dtype) * self._label_weight
