"""Other people's fused losses, called as their documentation says; each is imported only when its row is built.

The cross entropies are of both views. A divergence is of the paired rows, with the long view as the teacher: none of
these has a gradient through both sides, so each divergence does half of what `alignment_loss` does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # Left to the worker: importing it takes seconds, and the time of a run counts from its start.
    from torch import Tensor

    Loss = Callable[[], Tensor]


def peer(row: str, leaves: Sequence[Tensor], labels: Tensor, paired: tuple[slice, slice]) -> Loss:
    """The loss of a row. `leaves` are both views' hidden states [1, L, d] and the head's weight [V, d]."""
    long, short, weight = leaves[0][0], leaves[1][0], leaves[2]
    return MAKERS[row](long, short, weight, (labels[0, 0], labels[1, 0]), paired)


def versions() -> dict[str, str]:
    """Of those that are installed."""
    found = {}
    for name in ("liger-kernel", "cut-cross-entropy", "trl"):
        try:
            found[name] = version(name)
        except ModuleNotFoundError:
            continue
    return found


def _mean(
    one: Callable[[Tensor, Tensor], Tensor], long: Tensor, short: Tensor, labels: Sequence[Tensor]
) -> Loss:
    return lambda: (one(long, labels[0]) + one(short, labels[1])) / 2


def _liger_ce(long: Tensor, short: Tensor, weight: Tensor, labels: Sequence[Tensor], paired: object) -> Loss:
    from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss

    loss = LigerFusedLinearCrossEntropyLoss()
    return _mean(lambda hidden, label: loss(weight, hidden, label), long, short, labels)


def _liger_divergence(beta: float) -> Callable[..., Loss]:
    """Liger's Triton kernels: Jensen-Shannon at 0.5, KL at 0."""

    def make(
        long: Tensor, short: Tensor, weight: Tensor, labels: object, paired: tuple[slice, slice]
    ) -> Loss:
        from liger_kernel.transformers.fused_linear_jsd import LigerFusedLinearJSD

        loss = LigerFusedLinearJSD(jsd_beta=beta)
        return lambda: loss(short[paired[1]], weight, long[paired[0]].detach(), weight.detach(), None)

    return make


def _cce(long: Tensor, short: Tensor, weight: Tensor, labels: Sequence[Tensor], paired: object) -> Loss:
    from cut_cross_entropy import linear_cross_entropy

    return _mean(lambda hidden, label: linear_cross_entropy(hidden, weight, label), long, short, labels)


def _trl_ce(long: Tensor, short: Tensor, weight: Tensor, labels: Sequence[Tensor], paired: object) -> Loss:
    from trl.kernels.chunked_logprob import ChunkedLogProbFunction
    from trl.trainer import utils

    columns = utils._CHUNKED_LOGPROB_CHUNK_SIZE

    def one(hidden: Tensor, label: Tensor) -> Tensor:
        return -ChunkedLogProbFunction.apply(hidden, weight, None, label, 1.0, columns, None, 1.0, ())[
            0
        ].mean()

    return _mean(one, long, short, labels)


def _trl_jsd(
    long: Tensor, short: Tensor, weight: Tensor, labels: object, paired: tuple[slice, slice]
) -> Loss:
    from trl.kernels.chunked_divergence import ChunkedDivergenceFunction

    def loss() -> Tensor:
        student, teacher = short[paired[1]], long[paired[0]].detach()
        return ChunkedDivergenceFunction.apply(
            student, weight, None, teacher, weight.detach(), None, 0.5
        )[0].mean()  # fmt: skip

    return loss


MAKERS: dict[str, Callable[..., Loss]] = {
    "liger_ce": _liger_ce,
    "liger_jsd": _liger_divergence(0.5),
    "liger_kl": _liger_divergence(0.0),
    "cce": _cce,
    "trl_ce": _trl_ce,
    "trl_jsd": _trl_jsd,
}
