"""One small causal Transformer, many of them side by side.

A stack of S models (seeds, learning rates) trains as one program: every weight has a leading dimension S
and every matrix product is one batched product. Model s sees its own samples and gives what it would
give alone.

Shapes: S models, B samples, T tokens, D width, H heads, V tokens in the vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lengthwise_studies.synthetic.encodings import ENCODINGS, Encoding, stacked_embedding


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """What is built: a body, and the heads that read it.

    Args:
        vocabulary: V, the number of input tokens.
        encoding, table: a name of `encodings.ENCODINGS`, and positions of a learned or randomised one.
        value: a feed-forward head that reads one number off the last token.
        tokens: classes of the head for the next token; 0 for none.
        id_table: rows of a learned table of position ids that is added to the embedding, which begins as
            `id_vectors` (position coupling); 0 for none.
        ids: classes of the head for the next position id; 0 for none.
        pointing: that head points at an earlier token and takes its id or the one after it; else one class an id.
        width, layers, heads, hidden: of the body.
    """

    vocabulary: int
    encoding: str = "none"
    table: int = 64
    value: bool = False
    tokens: int = 0
    id_table: int = 0
    ids: int = 0
    pointing: bool = False
    width: int = 32
    layers: int = 2
    heads: int = 4
    hidden: int = 128

    def build_encoding(self) -> Encoding:
        """The encoding of the body."""
        return ENCODINGS[self.encoding](width=self.width, heads=self.heads, table=self.table)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Every parameter of one model by name. A matrix is [in, out]."""
        d, h = self.width, self.hidden
        shapes: dict[str, tuple[int, ...]] = {"embedding": (self.vocabulary, d)}
        shapes |= self.build_encoding().weights()
        for layer in range(self.layers):
            # No bias on queries, keys and values: that of the keys has no effect, and its gradient is noise.
            shapes |= {f"{layer}.qkv": (d, 3 * d), f"{layer}.out": (d, d)}
            shapes |= _with_bias(f"{layer}.up", d, h) | _with_bias(f"{layer}.down", h, d)
        if self.value:
            shapes |= _with_bias("value.up", d, d) | _with_bias("value.down", d, 1)
        if self.tokens:
            shapes |= _with_bias("tokens", d, self.tokens)
        if self.id_table:
            shapes |= {"ids.table": (self.id_table, d)}
        if self.ids and self.pointing:
            shapes |= {"ids.query": (d, d), "ids.key": (d, 2 * d)}
        elif self.ids:
            shapes |= _with_bias("ids", d, self.ids)
        return shapes


def _with_bias(name: str, rows: int, columns: int) -> dict[str, tuple[int, ...]]:
    return {name: (rows, columns), f"{name}.bias": (columns,)}


class StackedTransformer(nn.Module):
    """S models of one architecture, each initialised from its own seed.

    Pre-norm blocks of causal attention and a ReLU layer. The norms have no gain: the matrix that follows each
    can hold it. All weights of a model lie in one row of `flat` [S, P], so that an optimizer is a few
    operations on one tensor. Models of equal seeds begin equal.
    """

    def __init__(self, architecture: Architecture, seeds: Sequence[int]) -> None:
        super().__init__()
        self.architecture = architecture
        self.encoding = architecture.build_encoding()
        self._shapes = architecture.shapes()
        self.flat = nn.Parameter(torch.stack([_initial(architecture, seed) for seed in seeds]))

    @property
    def stack(self) -> int:
        """S, the number of models."""
        return self.flat.shape[0]

    def weights(self) -> dict[str, Tensor]:
        """Every parameter of all models by name, [S, *shape], as views of `flat`."""
        # One split, because its gradient is one concatenation.
        parts = self.flat.split([math.prod(shape) for shape in self._shapes.values()], dim=1)
        named = zip(self._shapes.items(), parts, strict=True)
        return {name: part.unflatten(1, shape) for (name, shape), part in named}

    def keep(self, indices: Sequence[int]) -> StackedTransformer:
        """A stack of copies of the models at these indices."""
        kept = StackedTransformer(self.architecture, [0] * len(indices))
        with torch.no_grad():
            kept.flat.copy_(self.flat[list(indices)])
        return kept

    def value(self, tokens: Tensor, last: Tensor, positions: Tensor | None = None) -> Tensor:
        """One number for each sample [S, B], read off the token at index `last` [S, B], whatever follows it."""
        weights = self.weights()
        hidden = self._body(weights, tokens, positions, last).squeeze(2)
        inner = _linear(_norm(hidden), weights, "value.up").relu()
        return _linear(inner, weights, "value.down").squeeze(-1)

    def heads(
        self, tokens: Tensor, positions: Tensor | None = None, ids: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Logits of the next token and, where the architecture has that head, of the next position id.

        All are [S or 1, B, T]. `positions` are the encoding's, 0, 1, 2, ... by default; `ids` are of the id table.
        """
        weights = self.weights()
        hidden = _norm(self._body(weights, tokens, positions, ids=ids))
        next_ids = _linear(hidden, weights, "ids") if "ids" in weights else None
        if self.architecture.pointing and ids is not None:
            query, keys = _linear(hidden, weights, "ids.query"), _linear(hidden, weights, "ids.key")
            bias = causal_bias(ids.shape[-1], hidden)
            next_ids = pointed_ids(query, keys, bias, ids, self.architecture.ids)
        return _linear(hidden, weights, "tokens"), next_ids

    def _body(
        self,
        weights: Mapping[str, Tensor],
        tokens: Tensor,
        positions: Tensor | None,
        last: Tensor | None = None,
        ids: Tensor | None = None,
    ) -> Tensor:
        """Residual stream after the last block [S, B, T, D], or only at `last` [S, B, 1, D]."""
        length = tokens.shape[-1]
        if positions is None:
            self.encoding.check(length)
            positions = torch.arange(length).view(1, 1, length)
        x = stacked_embedding(tokens, weights["embedding"])
        if ids is not None:
            x = x + stacked_embedding(ids, weights["ids.table"])
        x = self.encoding.embed(x, weights, positions)
        bias = self.encoding.bias(causal_bias(length, x), weights, positions)
        for layer in range(self.architecture.layers):
            qkv = _linear(_norm(x), weights, f"{layer}.qkv").unflatten(-1, (3, self.architecture.heads, -1))
            query, key, value = qkv.permute(3, 0, 1, 4, 2, 5)
            query, key = self.encoding.rotate(query, positions), self.encoding.rotate(key, positions)
            if last is not None and layer == self.architecture.layers - 1:
                # Nothing reads the last block anywhere else.
                bias, query, x = _at(bias.expand(*query.shape[:-1], -1), last), _at(query, last), _at(x, last)
            # Keys before queries: a softmax over the last of few entries takes four times as long on a CPU.
            scores = key @ query.transpose(-1, -2) * query.shape[-1] ** -0.5 + bias.transpose(-1, -2)
            mixed = scores.softmax(dim=-2).transpose(-1, -2) @ value
            x = x + _linear(mixed.transpose(2, 3).flatten(-2), weights, f"{layer}.out")
            x = x + _linear(_linear(_norm(x), weights, f"{layer}.up").relu(), weights, f"{layer}.down")
        return x


def _at(x: Tensor, last: Tensor) -> Tensor:
    """The rows of x [S, B, ..., T, D] at index `last` [S, B]: [S, B, ..., 1, D]."""
    index = last.view(*last.shape, *[1] * (x.dim() - 2))
    return x.gather(-2, index.expand(*x.shape[:-2], 1, x.shape[-1]))


def causal_bias(length: int, like: Tensor) -> Tensor:
    """[T, T]: 0 where the key is not after the query in the order of tokens, else minus infinity."""
    return torch.full((length, length), -math.inf, dtype=like.dtype).triu(1)


def pointed_ids(query: Tensor, keys: Tensor, bias: Tensor, ids: Tensor, classes: int) -> Tensor:
    """Log-probabilities of the next id [S, B, T, classes].

    P(id) = sum of softmax(q_t . k_j^o / sqrt(K))_(j, o) over tokens j <= t and o in {0, 1} with id_j + o = id. An id
    that nothing points at has the least positive probability.

    `query` is [S, B, T, K]; `keys` [S, B, T, 2 K] are for a token's own id and for the one after it; `bias` [T, T] is
    minus infinity where the key is after the query; `ids` [S or 1, B, T] are below `classes`, and the id after the
    last class is that class.
    """
    own, following = keys.chunk(2, dim=-1)
    scores = torch.cat([query @ own.mT + bias, query @ following.mT + bias], dim=-1)
    chances = (scores * query.shape[-1] ** -0.5).softmax(-1)
    pointed = torch.cat([ids, ids + 1], dim=-1).clamp(max=classes - 1)
    totals = torch.zeros(*chances.shape[:-1], classes, dtype=chances.dtype)
    totals = totals.scatter_add(-1, pointed.unsqueeze(-2).expand(chances.shape), chances)
    return totals.clamp(min=torch.finfo(chances.dtype).tiny).log()


def _norm(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:])


def _linear(x: Tensor, weights: Mapping[str, Tensor], name: str) -> Tensor:
    """x [S, ..., in] times each model's own matrix [S, in, out] of that name, plus the bias where it has one."""
    rows, matrix, bias = x.flatten(1, -2), weights[name], weights.get(f"{name}.bias")
    out = torch.bmm(rows, matrix) if bias is None else torch.baddbmm(bias.unsqueeze(1), rows, matrix)
    return out.unflatten(1, x.shape[1:-1])


def id_vectors(rows: int, width: int) -> Tensor:
    """sqrt(2) times sines and cosines of id * f_i, [rows, D]: what a table of position ids begins as.

    f_i = pi * frac((i + 1) * golden ratio) fills (0, pi) evenly. So the id after this one is one rotation for all
    ids, as with sinusoidal positions, but neighbours are as different as distant ids.
    """
    golden = (5**0.5 - 1) / 2
    frequencies = torch.arange(1, width // 2 + 1, dtype=torch.float64).mul(golden).frac() * math.pi
    angles = torch.arange(rows).unsqueeze(1) * frequencies
    return (torch.cat([angles.sin(), angles.cos()], dim=1) * 2**0.5).float()


def _initial(architecture: Architecture, seed: int) -> Tensor:
    """One model's weights [P]: matrices normal with variance 1 / in, embeddings standard normal, biases 0."""
    generator = torch.Generator().manual_seed(seed)

    def drawn(name: str, shape: tuple[int, ...]) -> Tensor:
        if name.endswith(".bias") or name == "encoding.distances":
            return torch.zeros(math.prod(shape))
        if name == "ids.table":
            return id_vectors(*shape).flatten()
        spread = 1.0 if name in ("embedding", "encoding.positions") else shape[0] ** -0.5
        return torch.randn(math.prod(shape), generator=generator) * spread

    return torch.cat([drawn(name, shape) for name, shape in architecture.shapes().items()])
