"""A head that predicts the next position id by pointing at an earlier token: its id, or the one after it."""

from __future__ import annotations

import torch
from torch import Tensor


def pointed_ids(query: Tensor, keys: Tensor, bias: Tensor, ids: Tensor, classes: int) -> Tensor:
    """Log-probabilities of the next id [S, B, T, classes].

    P(id) = sum of softmax(q_t . k_j^o / sqrt(K))_(j, o) over tokens j <= t and o in {0, 1} with id_j + o = id. An id
    that nothing points at has the least positive probability.

    Args:
        query: [S, B, T, K].
        keys: [S, B, T, 2 K], for a token's own id and for the one after it.
        bias: [T, T], minus infinity where the key is after the query.
        ids: [S or 1, B, T], each below `classes`; the id after the last class is that class.
        classes: ids there are.
    """
    own, following = keys.chunk(2, dim=-1)
    scores = torch.cat([query @ own.mT + bias, query @ following.mT + bias], dim=-1)
    chances = (scores * query.shape[-1] ** -0.5).softmax(-1)
    pointed = torch.cat([ids, ids + 1], dim=-1).clamp(max=classes - 1)
    totals = torch.zeros(*chances.shape[:-1], classes, dtype=chances.dtype, device=chances.device)
    totals = totals.scatter_add(-1, pointed.unsqueeze(-2).expand(chances.shape), chances)
    return totals.clamp(min=torch.finfo(chances.dtype).tiny).log()
