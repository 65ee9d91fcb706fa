"""Position encodings: seven ways to tell a small Transformer the place of a token; one class each.

An encoding acts at one of three places: it adds a vector to the token's embedding, turns queries and
keys, or adds a bias to the attention scores. The rest of the model is the same for all of them.

Shapes: S models side by side, B samples, T tokens, H heads, D width, K width of a head. Position ids are
[S, B, T]; a first or second dimension of 1 means "the same for all".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from lengthwise.errors import UsageError
from lengthwise_studies.synthetic import named

ROTARY_BASE = 10000.0
T5_BUCKETS = 32
T5_MAX_DISTANCE = 128


@dataclass(frozen=True)
class Encoding:
    """No encoding (NoPE): only the causal mask tells the order of tokens.

    Args:
        width: D.
        heads: H.
        table: how many positions a learned or randomised encoding has.
    """

    width: int
    heads: int
    table: int

    @property
    def longest(self) -> int | None:
        """The longest sequence in tokens that has positions; None where there is no limit."""
        return None

    def weights(self) -> dict[str, tuple[int, ...]]:
        """Shapes of this encoding's own parameters, for one model."""
        return {}

    def draw(self, count: int, length: int, generator: torch.Generator) -> Tensor | None:
        """Position ids [count, length] where they are drawn for each sample; None for 0, 1, 2, ..."""
        return None

    def embed(self, weights: Mapping[str, Tensor], positions: Tensor) -> Tensor | None:
        """What is added to the token embeddings: [S or 1, B or 1, T, D], or None."""
        return None

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """Queries or keys [S, B, H, T, K] with their positions in them."""
        return x

    def bias(self, weights: Mapping[str, Tensor], positions: Tensor) -> Tensor | None:
        """What is added to the attention scores: [S or 1, B or 1, H, T, T] (query, key), or None."""
        return None


class Learned(Encoding):
    """A learned vector for each position; rows beyond the training length stay as initialised."""

    @property
    def longest(self) -> int | None:
        """The size of the table."""
        return self.table

    def weights(self) -> dict[str, tuple[int, ...]]:
        """One table [positions, D]."""
        return {"positions": (self.table, self.width)}

    def embed(self, weights: Mapping[str, Tensor], positions: Tensor) -> Tensor | None:
        """Rows of the table."""
        return stacked_embedding(positions, weights["positions"])


class Sinusoidal(Encoding):
    """Fixed vectors: sines and cosines of p / 10000^(2i/D) (Vaswani et al. 2017, Sec. 3.5)."""

    def embed(self, weights: Mapping[str, Tensor], positions: Tensor) -> Tensor | None:
        """Sines in the first half of the D entries, cosines in the second."""
        angles = positions.unsqueeze(-1) * _frequencies(self.width, positions.device)
        return torch.cat([angles.sin(), angles.cos()], dim=-1)


class Randomised(Sinusoidal):
    """Sinusoidal vectors of random ids: distinct, sorted, drawn from the table (Ruoss et al. 2023).

    Each sample has its own draw, in training and at test, so that ids as large as those of a long test
    sequence occur in training.
    """

    @property
    def longest(self) -> int | None:
        """As many distinct ids as the table has."""
        return self.table

    def draw(self, count: int, length: int, generator: torch.Generator) -> Tensor | None:
        """`length` distinct ids out of the table, in order, for each of `count` samples."""
        keys = torch.rand(count, self.table, generator=generator)
        return keys.topk(length, dim=-1).indices.sort(dim=-1).values


class Rotary(Encoding):
    """Queries and keys turned by angles that grow with the position (Su et al. 2024), as in Llama.

    Scores depend on the difference of two positions alone.
    """

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """Entry i and entry i + K/2 are turned together by p / 10000^(2i/K)."""
        angles = positions[:, :, None, :, None] * _frequencies(x.shape[-1], x.device)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        first, second = x.chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


class Alibi(Encoding):
    """A penalty on the score that grows with the distance, with a slope for each head (Press et al. 2021)."""

    def bias(self, weights: Mapping[str, Tensor], positions: Tensor) -> Tensor | None:
        """-slope * (position of the query - position of the key)."""
        slopes = alibi_slopes(self.heads).to(positions.device)
        return -slopes[:, None, None] * _distances(positions).unsqueeze(2)


class T5Bias(Encoding):
    """A learned bias for each head and bucket of distances (Raffel et al. 2020), one table for all layers."""

    def weights(self) -> dict[str, tuple[int, ...]]:
        """One table [buckets, H]."""
        return {"distances": (T5_BUCKETS, self.heads)}

    def bias(self, weights: Mapping[str, Tensor], positions: Tensor) -> Tensor | None:
        """The bias of each pair's bucket."""
        buckets = t5_buckets(_distances(positions))
        biases = stacked_embedding(buckets.flatten(2), weights["distances"])
        return biases.unflatten(2, buckets.shape[2:]).permute(0, 1, 4, 2, 3)


ENCODINGS: dict[str, type[Encoding]] = {
    "none": Encoding,
    "learned": Learned,
    "alibi": Alibi,
    "rotary": Rotary,
    "randomised": Randomised,
    "t5": T5Bias,
    "sinusoidal": Sinusoidal,
}


def encoding(name: str, *, width: int, heads: int, table: int) -> Encoding:
    """The encoding of that name.

    Raises:
        UsageError: there is none of that name; a width of a head that rotary cannot halve.
    """
    kind = named(ENCODINGS, name, "position encoding")
    if name == "rotary" and (width // heads) % 2:
        raise UsageError(f"rotary positions with heads of width {width // heads}", expected="an even width")
    return kind(width=width, heads=heads, table=table)


def check_length(name: str, longest: int | None, tokens: int) -> None:
    """Refuse a sequence that is longer than an encoding's table.

    Raises:
        UsageError: `tokens` is more than `longest`.
    """
    if longest is not None and tokens > longest:
        raise UsageError(
            f"a sequence of {tokens} tokens (markers included), but the {name} encoding has {longest} positions",
            expected=f"at most {longest} tokens",
            fix="test shorter sequences, or give the model a larger table",
        )


def alibi_slopes(heads: int) -> Tensor:
    """Slopes [H]: 2^(-8/H), 2^(-16/H), ...; for an H that is no power of two, every other slope of 2H' is added."""
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * (index + 1) / power) for index in range(power)]
    slopes += [2 ** (-4 * (index + 1) / power) for index in range(0, 2 * (heads - power), 2)]
    return torch.tensor(slopes)


def t5_buckets(distances: Tensor) -> Tensor:
    """The bucket of each distance back: one each up to half of the buckets, then logarithmic ones."""
    exact = T5_BUCKETS // 2
    back = distances.clamp(min=0)
    ratio = (back.clamp(min=1).float() / exact).log() / math.log(T5_MAX_DISTANCE / exact)
    far = exact + (ratio * (T5_BUCKETS - exact)).long()
    return torch.where(back < exact, back, far.clamp(max=T5_BUCKETS - 1))


def id_vectors(rows: int, width: int) -> Tensor:
    """sqrt(2) times sines and cosines of id * f_i, [rows, D]: what a table of position ids begins as.

    f_i = pi * frac((i + 1) * golden ratio) fills (0, pi) evenly. So the id after this one is one rotation for all
    ids, as with sinusoidal positions, but neighbours are as different as distant ids.
    """
    golden = (5**0.5 - 1) / 2
    frequencies = torch.arange(1, width // 2 + 1, dtype=torch.float64).mul(golden).frac() * math.pi
    angles = torch.arange(rows).unsqueeze(1) * frequencies
    return (torch.cat([angles.sin(), angles.cos()], dim=1) * 2**0.5).float()


def stacked_embedding(ids: Tensor, table: Tensor) -> Tensor:
    """Rows of each model's own table: ids [S or 1, ...] and table [S, V, D] give [S, ..., D]."""
    stack, rows, width = table.shape
    first = torch.arange(stack, device=ids.device).view(-1, *[1] * (ids.dim() - 1)) * rows
    return F.embedding(ids + first, table.reshape(stack * rows, width))


def _distances(positions: Tensor) -> Tensor:
    """[S, B, T (query), T (key)]: the distance back to the key."""
    return positions.unsqueeze(-1) - positions.unsqueeze(-2)


def _frequencies(width: int, device: torch.device) -> Tensor:
    return ROTARY_BASE ** (-torch.arange(0, width, 2, device=device) / width)
