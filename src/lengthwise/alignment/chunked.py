"""The objective from hidden states and head, without ever holding the logits of all rows.

Rows are taken a chunk at a time: their logits by one matrix product, loss and gradient with respect to the
logits in place (`tile.py`), then the gradients of hidden states and head by two more products. So gradients
are formed in the forward pass, each logit is computed once, and beside the results only one chunk of logits
is in memory. Backward multiplies them by the incoming gradient, a scalar.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from lengthwise.alignment.divergences import DIVERGENCES, NO_LABEL, Objective, Rule
from lengthwise.alignment.formulas import FORMULAS
from lengthwise.alignment.fused_head import FusedHead
from lengthwise.alignment.geometry import Chunk, PairGeometry, chunks_of
from lengthwise.alignment.tile import Activation, Tiles, sum_dtype, wide_dtype
from lengthwise.errors import UsageError

if TYPE_CHECKING:
    from lengthwise.alignment.triton import TritonTiles

# Bytes of logits in a chunk, and pairs. Each chunk reads and writes the whole head gradient, whose share of the time
# depends on the rows alone. On a CPU fewer than about 500 leave speed behind. On an H100 (bf16, summed in fp32) 2,048
# rows took 22 % more time than the products without that sum, 4,096 rows 11 %; the next half would be small, and its
# logits larger than the head at d = 4,096. docs/evidence/performance.md has the sweep.
_CHUNK_BYTES = {"cpu": 96 * 2**20}
_CHUNK_BYTES_ELSEWHERE = 2**30
_CHUNK_PAIRS_ELSEWHERE = 2048

# Logits of one view in a tile. On a CPU its four to eight scratch tensors of this size have to stay in the
# cache that each thread has.
_TILE_LOGITS_A_THREAD = 2**16
_TILE_LOGITS_ELSEWHERE = 2**23

# Device types with a tile of their own, where triton is installed. All others have the torch tile.
TRITON_DEVICES = {"cuda"}

# The trial of `kernels_pass`: a size that no block divides, and the two longest ways through the kernels.
_PAIRS, _VOCABULARY = 3, 5003
_TRIALS = (("sce", Activation()), ("js", Activation(scale=0.5, soft_cap=20.0)))

# Of the largest gradient: rounding of the arithmetic, and of 16-bit results.
_TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 2e-2}


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
    factor = unit * activation.scale
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
        head = FusedHead(
            head_weight,
            head_bias,
            dtype=compute_dtype,
            accumulate_dtype=accumulate_dtype,
            needed=needed[2:],
            chunks=len(chunks),
        )
        tiles = _tiles_on(device, vocabulary, objective.rule)(
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
            label_logit = activation.apply_(logits.gather(1, label).to(sums.dtype))
            if chunk.paired:
                found = tiles.pairs(*(each.unflatten(0, (-1, 2)) for each in (logits, label, weight)))
                found = found.to(sums.dtype)
                top, total = found.top.flatten(0, 1), found.total.flatten(0, 1)
                term = from_pairs(found, int(objective.detach == "short"))
                sums[2:] += torch.stack([found.entropy(), found.jeffreys(), term])
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
    trains: tuple[bool, bool], chunk: Chunk, logit_gradient: Tensor, rows: Tensor, head: FusedHead
) -> None:
    if all(trains):
        head.add_gradient(logit_gradient, rows)
        return
    for trained, *part in zip(trains, chunk.split(logit_gradient), chunk.split(rows), strict=True):
        if trained and len(part[0]):
            head.add_gradient(*part)


def _add_hidden_gradients(
    gradients: Sequence[Tensor | None], chunk: Chunk, logit_gradient: Tensor, head: FusedHead
) -> None:
    both = all(gradient is not None for gradient in gradients)
    parts = chunk.split(head.hidden_gradient(logit_gradient) if both else logit_gradient)
    for gradient, index, part in zip(gradients, chunk.rows, parts, strict=True):
        if gradient is not None:
            gradient[index] = (part if both else head.hidden_gradient(part)).to(gradient.dtype)


def tile_on(device_type: str) -> Literal["torch", "triton"]:
    """The tile for a torch device type. Both compute the same formulas in the same precision."""
    return "triton" if device_type in TRITON_DEVICES and find_spec("triton") else "torch"


@functools.cache
def kernels_pass(device: torch.device) -> bool:
    """Whether `TritonTiles` agrees with `Tiles` on `device`; tried once a process.

    The kernels have run on one kind of GPU and with one version of Triton. So the first objective on a device
    compares the two tiles on a few rows. Kernels that fail or disagree are not used in this process, and a warning
    says so.
    """
    try:
        worst = max(
            _error(device, dtype, *trial) / bound for dtype, bound in _TOLERANCE.items() for trial in _TRIALS
        )
        if worst <= 1:
            return True
        problem = f"their gradients are off by {worst:.2g} times what rounding explains"
    except Exception as error:  # Whatever a compiler or driver raises: the torch tile needs neither.
        problem = f"{type(error).__name__}: {error}"
    warnings.warn(
        f"the objective's Triton kernels fail on {device} ({problem}); the torch tile is used, slower and "
        "with the same results. Please report this with your GPU and the versions of torch and triton.",
        RuntimeWarning,
        stacklevel=2,
    )
    return False


def _error(device: torch.device, dtype: torch.dtype, divergence: str, activation: Activation) -> float:
    """The largest difference of gradients and statistics, as a share of the largest value."""
    from lengthwise.alignment.triton import TritonTiles

    generator = torch.Generator().manual_seed(0)
    logits = (3 * torch.randn(_PAIRS, 2, _VOCABULARY, generator=generator)).to(device, dtype)
    labels = torch.randint(_VOCABULARY, (_PAIRS, 2, 1), generator=generator).to(device)
    weights = torch.ones(_PAIRS, 2, 1, dtype=wide_dtype(dtype), device=device)
    settings = {
        "dtype": dtype,
        "device": device,
        "activation": activation,
        "rule": DIVERGENCES[divergence].rule,
        "weight": 0.5,
        "gradient": True,
    }
    found, expected = logits.clone(), logits.clone()
    theirs = TritonTiles(_VOCABULARY, **settings).pairs(found, labels, weights)
    ours = Tiles(_PAIRS, _VOCABULARY, **settings).pairs(expected, labels, weights)
    both = [(found, expected), (theirs.total, ours.total), (theirs.own, ours.own), (theirs.cross, ours.cross)]
    errors = [((a.double() - b.double()).abs().max() / b.double().abs().max()).item() for a, b in both]
    # NaN compares false with everything, and has to lose.
    return max(error if error == error else float("inf") for error in errors)


def _tiles_on(device: torch.device, vocabulary: int, rule: Rule) -> Callable[..., Tiles | TritonTiles]:
    if tile_on(device.type) == "triton" and kernels_pass(device):
        from lengthwise.alignment.triton import SOURCES, TritonTiles

        if rule.source in SOURCES:
            return TritonTiles
    on_cpu = device.type == "cpu"
    logits = _TILE_LOGITS_A_THREAD * torch.get_num_threads() if on_cpu else _TILE_LOGITS_ELSEWHERE
    return functools.partial(Tiles, max(1, logits // vocabulary))
