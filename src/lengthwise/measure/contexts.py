"""The same tokens predicted with all of their context and with the end of it: losses and disagreement by row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from lengthwise.measure.rows import NonFiniteRow, chunks, target_losses

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lengthwise.models import LoadedModel


@torch.no_grad()
def compare_contexts(
    model: LoadedModel, whole: Tensor, cut: Tensor, labels: NDArray[np.integer], *, first: int
) -> Tensor:
    """Loss with all context, loss with its end, and Jeffreys of the two predictions: fp64 [rows, 3], nats.

    Args:
        model: whose head takes the rows.
        whole: rows with all context, [rows, ...].
        cut: the same rows with the end of their context.
        labels: the tokens that follow them, [rows].
        first: place of the first row in the text, which only errors name.

    Raises:
        NonFiniteRow: with the place in the text.
    """
    targets = torch.from_numpy(np.asarray(labels, dtype=np.int64)).to(whole.device)[:, None]
    parts = []
    for some in chunks(len(whole), model.vocab_size):
        log_p = model.head.logits(whole[some]).log_softmax(dim=-1)
        log_q = model.head.logits(cut[some]).log_softmax(dim=-1)
        losses = [-each.gather(-1, targets[some])[:, 0] for each in (log_p, log_q)]
        jeffreys = ((log_p.exp() - log_q.exp()) * log_p.sub_(log_q)).sum(dim=-1)
        scores = torch.stack([*losses, jeffreys], dim=-1).double().cpu()
        finite = torch.isfinite(scores).all(dim=-1)
        if not bool(finite.all()):
            raise NonFiniteRow(first + some.start + int((~finite).nonzero()[0, 0]))
        parts.append(scores)
    return torch.cat(parts)


@torch.no_grad()
def losses_of(model: LoadedModel, hidden: Tensor, labels: NDArray[np.integer], *, first: int) -> Tensor:
    """Loss of each row's label: fp64 [rows], nats. Arguments and errors as `compare_contexts`."""
    targets = torch.from_numpy(np.asarray(labels, dtype=np.int64)).to(hidden.device)
    parts = [torch.empty(0, dtype=torch.float64)]
    for some in chunks(len(hidden), model.vocab_size):
        try:
            parts.append(target_losses(model.head.logits(hidden[some]), targets[some]).double().cpu())
        except NonFiniteRow as error:
            raise NonFiniteRow(first + some.start + error.row) from error
    return torch.cat(parts)
