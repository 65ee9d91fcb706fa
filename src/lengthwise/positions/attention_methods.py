"""Attention as a pure function of queries, keys and values after rope: S2-Attn, and EABF's factor on queries.

S2-Attn (Chen et al. 2023, "LongLoRA") is causal attention within groups of G tokens, which start G/2 later for the
second half of the heads. Heads 0 .. floor(H/2)-1 attend within [jG, (j+1)G), the others within [0, G/2),
[G/2, 3G/2), ..., so that information passes between groups. This is LongLoRA's flash-attention form. Its other form,
LongQLoRA's default, rolls the tokens: the last group then holds both ends of the text, and the start sees the end.
For training only: at inference such models use full attention. If the length of a row is not a multiple of G, its
last group is shorter.
"""

from __future__ import annotations

import math
from numbers import Real

import torch
import torch.nn.functional as F
from torch import Tensor

from lengthwise.errors import require, require_kind


def group_size(group: float, length: int) -> int:
    """G for a row of `length` tokens, at least 2.

    A `group` below 1 is a share of the row (LongLoRA: a quarter), rounded up; from 2 on a number of tokens.
    UsageError for any other.
    """
    require_kind("shifted_sparse", group, Real, "a share between 0 and 1, or whole tokens")
    share, count = 0 < group < 1, group >= 2 and float(group).is_integer()
    require(
        share or count, f"shifted_sparse = {group:g}", "a share between 0 and 1, or 2 or more whole tokens"
    )
    # In floating point 0.1 * 30 is more than 3.
    return int(group) if count else max(2, math.ceil(group * length - 1e-9))


def group_masks(length: int, heads: int, *, group: float) -> Tensor:
    """S2-Attn as a mask: bool [heads, length, length], True where a token (row) sees another (column)."""
    size = group_size(group, length)
    token = torch.arange(length)
    causal = token[:, None] >= token
    plain, shifted = (
        causal & (start[:, None] == start) for start in (token // size, (token + size - size // 2) // size)
    )
    return torch.stack([plain] * (heads // 2) + [shifted] * (heads - heads // 2))


def attend_in_groups(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    group: float,
    scale: float | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """S2-Attn of queries, keys and values after rope, one group at a time: the cost grows with T * G.

    Args:
        query: [B, H, T, D].
        key, value: [B, K, T, D]; K divides H, each key head serves H/K query heads.
        group: as in `group_size`.
        scale: factor on the logits; None is 1 / sqrt(D).
        dropout: share of the attention weights that is dropped.

    Returns:
        [B, H, T, D].
    """
    heads, length = query.shape[1:3]
    # Every query head needs its own copy of the keys: the group of a key depends on the query's head.
    key, value = (x.repeat_interleave(heads // x.shape[1], dim=1) for x in (key, value))
    size = group_size(group, length)
    half = size // 2

    def part(first: int, stop: int, start: int, end: int) -> Tensor:
        q, k, v = (_grouped(x[:, first:stop, start:end], size) for x in (query, key, value))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, dropout_p=dropout)
        return _ungrouped(out, len(query), end - start)

    middle = heads // 2
    plain = part(0, middle, 0, length)
    if length <= half:
        return torch.cat([plain, part(middle, heads, 0, length)], dim=1)
    shifted = torch.cat([part(middle, heads, 0, half), part(middle, heads, half, length)], dim=2)
    return torch.cat([plain, shifted], dim=1)


def query_scale(position_ids: Tensor, original_length: int) -> Tensor:
    """max(1, ln(i+1) / ln L0) at position i: float32, the shape of `position_ids`.

    Queries after rope times this keep attention as sharp over a longer context: EABF (Zhang et al. 2024). CLEX's
    `log_scale`, off in its training script, is ln(n) / ln L0 for an input of n tokens, for all positions and without
    the lower limit.
    """
    return ((position_ids.float() + 1).log() / math.log(original_length)).clamp(min=1)


def _grouped(x: Tensor, size: int) -> Tensor:
    """[B, H, T, D] -> [B * groups, H, G, D]; the last group is padded at its end, where no token attends."""
    x = F.pad(x, (0, 0, 0, -x.shape[2] % size))
    return x.unflatten(2, (-1, size)).transpose(1, 2).flatten(0, 1)


def _ungrouped(x: Tensor, batch: int, length: int) -> Tensor:
    return x.unflatten(0, (batch, -1)).transpose(1, 2).flatten(2, 3)[:, :, :length]
