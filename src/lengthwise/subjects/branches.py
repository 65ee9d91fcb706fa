"""A text read once, and several continuations of parts of it.

Read plainly, each continuation is one pass over its part of the text and itself. Two shortcuts are proven before they
are taken: a text is continued from its cache, and continuations take one pass together, under a mask by which each
token sees the text before its continuation, and the tokens of its continuation before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from lengthwise.subjects.pieces import PieceReader, made_cache
from lengthwise.subjects.reading import Branch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lengthwise.subjects.reading import Reading
    from lengthwise.subjects.weights import Weights

TOGETHER = "several continuations in one pass"
CONTINUED = "continuation of a text from its cache"
_MOST_NODES = 512
"""Tokens of continuations in one pass. With a text of 131,072 tokens the mask then takes 135 MB in 16 bits."""


def read_with_branches(model: Weights, reading: Reading) -> tuple[Tensor, list[Tensor]]:
    """What the head takes for the tokens of a reading [T, ...], and for those of each of its branches [M, ...]."""
    tokens, branches = reading.tokens, reading.branches
    if not model.path.in_one_pass:
        return _along_the_path(model, tokens, branches)
    far = max(range(len(branches)), key=lambda index: _length(branches[index]))
    place = branches[far].place

    @cache
    def alone() -> Tensor:
        return _plainly(model, tokens, branches[far])

    method = model.rope_by_length
    if method is not None and not model.proofs.failed(CONTINUED):
        why = f"the frequencies of {method} rope depend on how many tokens are read in one go"
        model.proofs.refuse(CONTINUED, why, name=model.name)
    if not model.proofs.failed(CONTINUED):
        kept: list[tuple[Tensor, list[Tensor]]] = []
        for shortcut, read in ((TOGETHER, _together), (CONTINUED, _one_by_one)):

            def fast(read: Any = read) -> Tensor:
                text, found = read(model, tokens, branches)
                kept.append((text, found))
                return torch.cat([text[:place], found[far]])

            if model.proofs.take(shortcut, _length(branches[far]), fast, alone, name=model.name):
                return kept[-1]
    rows = model.hidden_states(torch.from_numpy(tokens)[None])[0] if len(reading.labels) else alone()[:0]
    return rows, [
        (alone() if index == far else _plainly(model, tokens, each))[each.place :]
        for index, each in enumerate(branches)
    ]


def _length(branch: Branch) -> int:
    """Tokens that a branch needs, with those of the text before it."""
    return branch.place + len(branch.tokens)


def _sequence(tokens: NDArray[Any], branch: Branch) -> NDArray[np.int64]:
    return np.concatenate([tokens[: branch.place], branch.tokens]).astype(np.int64)


def _plainly(model: Weights, tokens: NDArray[Any], branch: Branch) -> Tensor:
    """The tokens of a branch and the text before them, in one pass."""
    return model.hidden_states(torch.from_numpy(_sequence(tokens, branch))[None])[0]


def _one_by_one(
    model: Weights, tokens: NDArray[Any], branches: Sequence[Branch]
) -> tuple[Tensor, list[Tensor]]:
    """The text up to each place, and there each branch by itself."""
    reader, text, found = PieceReader(model), [], []
    places = [branch.place for branch in branches]
    for begin, end in pairwise(sorted({0, len(tokens), *places})):
        text.append(reader.read(tokens[None, begin:end])[0])
        found += [reader.fork().read(branch.tokens[None])[0] for branch in branches if branch.place == end]
    return torch.cat(text), found


def _together(
    model: Weights, tokens: NDArray[Any], branches: Sequence[Branch]
) -> tuple[Tensor, list[Tensor]]:
    """The text in one pass; then the branches from the farthest on, while the text is forgotten.

    So no branch is compared with a text of more than twice its own, and the mask stays small.
    """
    reader = PieceReader(model)
    text = reader.read(tokens[None])[0]
    left, found = list(branches), list[Tensor]()
    while left:
        some = _of_one_pass(left)
        left = left[: len(left) - len(some)]
        reader.cut(some[-1].place)
        found = _in_one_pass(reader, some, some[-1].place) + found
    return text, found


class _Tree:
    """Branches of one pass: those that begin alike at a place share these tokens."""

    def __init__(self) -> None:
        self.nodes: dict[tuple[int, int], int] = {}
        """(the node before it, or -1 - the place of the branch; the token) -> the node."""
        self.places: list[int] = []
        self.depths: list[int] = []

    def path(self, branch: Branch) -> list[int]:
        """The nodes of a branch, new ones added."""
        path, before = list[int](), -1 - branch.place
        for depth, token in enumerate(branch.tokens.tolist()):
            before = self.nodes.setdefault((before, token), len(self.nodes))
            if before == len(self.places):
                self.places.append(branch.place)
                self.depths.append(depth)
            path.append(before)
        return path


def _of_one_pass(branches: Sequence[Branch]) -> list[Branch]:
    """The last of the branches: those of a doubling of the place, of at most `_MOST_NODES` tokens together."""
    farthest, tree, some = branches[-1].place, _Tree(), list[Branch]()
    for branch in reversed(branches):
        tree.path(branch)
        if some and (2 * branch.place <= farthest or len(tree.nodes) > _MOST_NODES):
            break
        some.insert(0, branch)
    return some


def _in_one_pass(reader: PieceReader, branches: Sequence[Branch], read: int) -> list[Tensor]:
    """Branches [M, ...] each, after a text of `read` tokens."""
    tree = _Tree()
    paths = [tree.path(branch) for branch in branches]
    sees = torch.zeros(len(tree.nodes), len(tree.nodes), dtype=torch.bool)
    for path in paths:
        own = torch.tensor(path)
        sees[own[:, None], own] = torch.ones(len(own), len(own), dtype=torch.bool).tril()
    places = torch.tensor(tree.places)
    text = torch.arange(read) < places[:, None]
    tokens = np.array([token for _, token in tree.nodes])
    positions = (places + torch.tensor(tree.depths)).numpy()
    found = reader.read_beside(tokens, positions, torch.cat([text, sees], dim=1))
    return [found[path] for path in paths]


def _along_the_path(
    model: Weights, tokens: NDArray[Any], branches: Sequence[Branch]
) -> tuple[Tensor, list[Tensor]]:
    """By the passes of the model's path, over the text and over each branch with the text before it.

    Passes that the text and a branch have in common are made once, which changes nothing.
    """
    most = max([len(tokens), *map(_length, branches)])
    passes, found = model.path.pieces(len(tokens)), dict[int, Tensor]()
    ends = np.cumsum([0, *passes]).tolist()
    shared: dict[int, list[int]] = {}
    for index, branch in enumerate(branches):
        own = np.cumsum([0, *model.path.pieces(_length(branch))]).tolist()
        same = sum(1 for one, other in zip(ends, own, strict=False) if one == other <= branch.place)
        shared.setdefault(same - 1, []).append(index)
    reader, text = PieceReader(model, cache=made_cache(model, most)), list[Tensor]()
    for step, begin in enumerate(ends):
        for index in shared.get(step, ()):
            sequence = _sequence(tokens, branches[index])
            fork = reader.fork() if begin else PieceReader(model, cache=made_cache(model, most))
            parts = [
                fork.read(piece[None])
                for piece in np.split(sequence[begin:], np.cumsum(_after(model, len(sequence), begin))[:-1])
            ]
            found[index] = torch.cat(parts, dim=1)[0, branches[index].place - begin :]
        if step < len(passes):
            text.append(reader.read(tokens[None, begin : begin + passes[step]])[0])
    return torch.cat(text), [found[index] for index in range(len(branches))]


def _after(model: Weights, length: int, begin: int) -> list[int]:
    """The passes over a sequence of `length` tokens from `begin` on, where one ends."""
    passes = model.path.pieces(length)
    ends = np.cumsum([0, *passes]).tolist()
    return passes[ends.index(begin) :]
