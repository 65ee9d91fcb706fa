"""What one side of a comparison predicts in a window, and how far two sides are apart, row by row.

No tensor of [T, V] is made: hidden states are kept, and logits come a chunk of rows at a time from both sides.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lengthwise.checkpoints.head import NonFiniteLogits, require_finite
from lengthwise.subjects.reading import Reading, Rows, Want

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lengthwise.subjects import Predictor


TOP = 64
"""Tokens of each distribution that a log keeps."""


@dataclass
class Distributions:
    """What a model predicts in one window of T + 1 tokens; row i predicts token i + 1."""

    rows: Rows

    def __len__(self) -> int:
        return len(self.rows)

    def numbers(self, labels: Tensor, first: int) -> Numbers:
        """-log p of the labels of rows `first` to T, and their `TOP` likeliest tokens, on the CPU."""
        losses, found = [], []
        for some in self.rows.chunks(first):
            log_p = self.rows.log_p(some)
            losses.append(-_of_labels(log_p, labels[some]))
            found.append(log_p.topk(min(TOP, log_p.shape[1])))
        log_p, ids = (torch.cat([each.cpu() for each in parts]) for parts in zip(*found, strict=True))
        return Numbers(torch.cat(losses), (ids, log_p))

    def losses(self, labels: Tensor, first: int) -> Tensor:
        """-log p of the labels of rows `first` to T, fp64 on the CPU."""
        parts = [-_of_labels(self.rows.log_p(some), labels[some]) for some in self.rows.chunks(first)]
        return torch.cat(parts)


class Numbers(NamedTuple):
    """Predictions of the rows that count, as numbers: of an endpoint, or from a log."""

    values: Tensor
    """-log p of the label of each row, fp64."""
    likeliest: tuple[Tensor, Tensor] | None = None
    """Ids and log p of the likeliest tokens, if they are known."""
    cold: Tensor | None = None
    """`values` without the server's prefix cache, of an endpoint's decode path."""

    def numbers(self, labels: Tensor, first: int) -> Numbers:
        """As `Distributions.numbers`."""
        return self

    def losses(self, labels: Tensor, first: int) -> Tensor:
        """As `Distributions.losses`."""
        return self.values


Predictions = Distributions | Numbers


def predictions(
    model: Predictor, windows: NDArray[np.int64], views: NDArray[np.int64], first: int
) -> list[Predictions]:
    """What a model predicts in `windows` [B, T + 1], read along its path in one batch.

    It reads `views` [B, T], without the last token and with BOS. `first` is the first row that counts.
    """
    labels = windows[:, first + 1 :]
    want = Want.ROWS if Want.ROWS in model.gives else Want.LOSS
    readings = [Reading(tokens=view, labels=own, want=want) for view, own in zip(views, labels, strict=True)]
    return [
        Distributions(read.rows) if read.rows is not None else Numbers(read.losses, cold=read.cold)
        for read in model.read(readings)
    ]


class RowDifferences(NamedTuple):
    """How far two sides are apart in one window, each [T - first] on the CPU; nats."""

    own: NDArray[np.float64]
    """-log p of the labels, first side."""
    other: NDArray[np.float64]
    kl: NDArray[np.float64] | None = None
    """KL(first || second) of each row, fp64; a lower bound where `bounded`; None without distributions."""
    same_top: NDArray[np.bool_] | None = None
    bounded: bool = False


@torch.no_grad()
def difference(a: Predictions, b: Predictions, labels: Tensor, first: int) -> RowDifferences:
    """How far two sides are apart in one window; `labels` [T] are the tokens after each row.

    KL(p || q) = sum_v p_v (log p_v - log q_v), exactly where both sides give distributions. From their likeliest
    tokens alone it is the sum over those that both name, with all others as one token, which is never more.

    Raises:
        NonFiniteLogits: a number is NaN or infinite; its position is the row.
    """
    if isinstance(a, Distributions) and isinstance(b, Distributions):
        parts = [
            _exact(a.rows.log_p(some), b.rows.log_p(some), labels[some]) for some in a.rows.chunks(first)
        ]
        own, other, *apart = (torch.cat(each) for each in zip(*parts, strict=True))
        bounded = False
    else:
        (own, top_a, _), (other, top_b, _) = (each.numbers(labels, first) for each in (a, b))
        apart = [] if top_a is None or top_b is None else _bounded(top_a, top_b)
        bounded = bool(apart)
    _require_finite(torch.stack([own, other, *apart[:1]], dim=1), first)
    return RowDifferences(own.numpy(), other.numpy(), *(each.numpy() for each in apart), bounded=bounded)


def _exact(p: Tensor, q: Tensor, labels: Tensor) -> list[Tensor]:
    """Losses of both sides, KL and same top of a chunk of rows, from log p and log q [n, V]."""
    own, other = -_of_labels(p, labels), -_of_labels(q, labels)
    # A vocabulary may be padded on one side.
    both = min(p.shape[1], q.shape[1])
    p, q = p[:, :both], q[:, :both].to(p)
    top = p.max(dim=1).indices == q.max(dim=1).indices
    return [own, other, (p.exp() * (p - q)).sum(dim=1).cpu().double(), top.cpu()]


def _of_labels(log_p: Tensor, labels: Tensor) -> Tensor:
    return log_p.gather(1, labels[:, None].to(log_p.device))[:, 0].cpu().double()


def _bounded(a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor]) -> list[Tensor]:
    """The lower bound of KL from the likeliest tokens of both sides, and whether the first are the same."""
    (ids, p), (others, q) = ((names, values.double()) for names, values in (a, b))
    match = ids[:, :, None] == others[:, None, :]
    known = match.any(dim=2)
    # log q of the tokens that the first side names, where the second names them too.
    q_of = torch.where(match, q[:, None, :], 0.0).sum(dim=2)
    found = torch.where(known, p.exp() * (p - q_of), 0.0).sum(dim=1)
    rest_p, rest_q = (1 - torch.where(known, each.exp(), 0.0).sum(dim=1) for each in (p, q_of))
    rest_p, rest_q = rest_p.clamp(min=1e-12), rest_q.clamp(min=1e-12)
    return [(found + rest_p * (rest_p / rest_q).log()).clamp(min=0), ids[:, 0] == others[:, 0]]


def _require_finite(rows: Tensor, first: int) -> None:
    try:
        require_finite(rows)
    except NonFiniteLogits as error:
        raise NonFiniteLogits(first + error.position) from error


@torch.no_grad()
def kept(predicted: Predictions, labels: Tensor, first: int) -> dict[str, str]:
    """Predictions as a record of a log: losses as float32, likeliest tokens as int32 and float32, each in base64.

    Raises:
        NonFiniteLogits: a loss is NaN or infinite; its position is the row.
    """
    losses, top, _ = predicted.numbers(labels, first)
    _require_finite(losses, first)
    record = {"losses": _packed(losses, np.float32)}
    if top is not None:
        record |= {"top_ids": _packed(top[0], np.int32), "top_log_p": _packed(top[1], np.float32)}
    return record


def read_kept(record: dict[str, str]) -> Numbers:
    """The predictions of a record that `kept` made."""
    losses = _unpacked(record["losses"], np.float32).double()
    if "top_ids" not in record:
        return Numbers(losses)
    ids, log_p = _unpacked(record["top_ids"], np.int32), _unpacked(record["top_log_p"], np.float32).double()
    return Numbers(losses, (ids.reshape(len(losses), -1), log_p.reshape(len(losses), -1)))


def _packed(values: Tensor, kind: Any) -> str:
    return base64.b64encode(values.numpy().astype(kind).tobytes()).decode()


def _unpacked(text: str, kind: Any) -> Tensor:
    return torch.from_numpy(np.frombuffer(base64.b64decode(text), dtype=kind).copy())
