"""Position encodings: seven ways to tell a small Transformer the place of a token; one class each.

An encoding adds a vector to the token's embedding, turns queries and keys, or adds a bias to the attention scores.

Shapes: S models side by side, B samples, T tokens, H heads, D width, K width of a head. Position ids are
[S, B, T]; a first or second dimension of 1 means "the same for all".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from lengthwise.errors import UsageError

ROTARY_BASE = 10000.0
T5_BUCKETS = 32
T5_MAX_DISTANCE = 128


@dataclass(frozen=True)
class Encoding:
    """No encoding (NoPE): only the causal mask tells the order of tokens.

    `table` is how many positions a learned or randomised encoding has.
    """

    width: int
    heads: int
    table: int
    limited: ClassVar[bool] = False
    """Whether a sequence has at most as many tokens as the table has positions."""

    def check(self, tokens: int) -> None:
        """Refuse a sequence that is longer than the table (`UsageError`)."""
        if self.limited and tokens > self.table:
            name = type(self).__name__.lower()
            raise UsageError(
                f"a sequence of {tokens} tokens, but the {name} encoding has {self.table} positions",
                expected=f"at most {self.table} tokens",
            )

    def weights(self) -> dict[str, tuple[int, ...]]:
        """Shapes of this encoding's own parameters, for one model."""
        return {}

    def draw(self, count: int, length: int, generator: torch.Generator) -> Tensor | None:
        """Position ids [count, length] where they are drawn for each sample; None for 0, 1, 2, ..."""
        return None

    def embed(self, x: Tensor, weights: Mapping[str, Tensor], positions: Tensor) -> Tensor:
        """Token embeddings [S, B, T, D] with their positions."""
        return x

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """Queries or keys [S, B, H, T, K] with their positions."""
        return x

    def bias(self, causal: Tensor, weights: Mapping[str, Tensor], positions: Tensor) -> Tensor:
        """What is added to the scores [S or 1, B or 1, H, T, T] (query, key), beside the causal mask [T, T]."""
        return causal


class Learned(Encoding):
    """A learned vector for each position; rows beyond the training length stay as initialised."""

    limited = True

    def weights(self) -> dict[str, tuple[int, ...]]:
        """One table."""
        return {"encoding.positions": (self.table, self.width)}

    def embed(self, x: Tensor, weights: Mapping[str, Tensor], positions: Tensor) -> Tensor:
        """Rows of the table are added."""
        return x + stacked_embedding(positions, weights["encoding.positions"])


class Sinusoidal(Encoding):
    """Fixed vectors: sines and cosines of p / 10000^(2i/D) (Vaswani et al. 2017, Sec. 3.5)."""

    def embed(self, x: Tensor, weights: Mapping[str, Tensor], positions: Tensor) -> Tensor:
        """Sines are added to the first half of the D entries, cosines to the second."""
        angles = positions.unsqueeze(-1) * _frequencies(self.width)
        return x + torch.cat([angles.sin(), angles.cos()], dim=-1).to(x.dtype)


class Randomised(Sinusoidal):
    """Sinusoidal vectors of random ids (Ruoss et al. 2023), so that the large ones of tests occur in training."""

    limited = True

    def draw(self, count: int, length: int, generator: torch.Generator) -> Tensor | None:
        """`length` distinct ids out of the table, in order, for each of `count` samples."""
        keys = torch.rand(count, self.table, generator=generator)
        return keys.topk(length, dim=-1).indices.sort(dim=-1).values


class Rotary(Encoding):
    """Queries and keys turned by angles that grow with the position (Su et al. 2024), as in Llama."""

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """Entry i and entry i + K/2 are turned together by p / 10000^(2i/K)."""
        angles = positions[:, :, None, :, None] * _frequencies(x.shape[-1])
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        first, second = x.chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


class Alibi(Encoding):
    """A penalty on the score that grows with the distance (Press et al. 2021).

    The slopes of the H heads, a power of two, are 2^(-8/H), 2^(-16/H), ...
    """

    def bias(self, causal: Tensor, weights: Mapping[str, Tensor], positions: Tensor) -> Tensor:
        """-slope * (position of the query - position of the key)."""
        slopes = torch.tensor([2.0 ** (-8 * (head + 1) / self.heads) for head in range(self.heads)])
        return causal + (-slopes[:, None, None] * _distances(positions).unsqueeze(2)).to(causal.dtype)


class T5(Encoding):
    """A learned bias for each head and bucket of distances (Raffel et al. 2020), one table for all layers."""

    def weights(self) -> dict[str, tuple[int, ...]]:
        """One table."""
        return {"encoding.distances": (T5_BUCKETS, self.heads)}

    def bias(self, causal: Tensor, weights: Mapping[str, Tensor], positions: Tensor) -> Tensor:
        """The bias of each pair's bucket."""
        buckets = t5_buckets(_distances(positions))
        biases = stacked_embedding(buckets.flatten(2), weights["encoding.distances"])
        return causal + biases.unflatten(2, buckets.shape[2:]).permute(0, 1, 4, 2, 3)


ENCODINGS: dict[str, type[Encoding]] = {
    "none": Encoding,
    "learned": Learned,
    "alibi": Alibi,
    "rotary": Rotary,
    "randomised": Randomised,
    "t5": T5,
    "sinusoidal": Sinusoidal,
}


def t5_buckets(distances: Tensor) -> Tensor:
    """The bucket of each distance back: one each up to half of the buckets, then logarithmic ones."""
    exact = T5_BUCKETS // 2
    back = distances.clamp(min=0)
    ratio = (back.clamp(min=1).float() / exact).log() / math.log(T5_MAX_DISTANCE / exact)
    far = exact + (ratio * (T5_BUCKETS - exact)).long()
    return torch.where(back < exact, back, far.clamp(max=T5_BUCKETS - 1))


def stacked_embedding(ids: Tensor, table: Tensor) -> Tensor:
    """Rows of each model's own table: ids [S or 1, ...] and table [S, V, D] give [S, ..., D]."""
    stack, rows, width = table.shape
    first = torch.arange(stack).view(-1, *[1] * (ids.dim() - 1)) * rows
    return F.embedding(ids + first, table.reshape(stack * rows, width))


def _distances(positions: Tensor) -> Tensor:
    """[S, B, T (query), T (key)]: the distance back to the key."""
    return positions.unsqueeze(-1) - positions.unsqueeze(-2)


def _frequencies(width: int) -> Tensor:
    return ROTARY_BASE ** (-torch.arange(0, width, 2) / width)
