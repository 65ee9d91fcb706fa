"""A text read once, and several continuations of parts of it.

The plain way is one pass for each continuation, over its part of the text and itself. Two shortcuts are proven before
they are taken: a text is continued from its cache; and several continuations share one pass, under a mask by which
each token sees only its part of the text and the earlier tokens of its own continuation.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lengthwise.subjects.pieces import PieceReader, made_cache, whole_cache
from lengthwise.subjects.reading import Branch

if TYPE_CHECKING:
    from lengthwise.subjects.reading import Reading
    from lengthwise.subjects.weights import Weights

TOGETHER = "several continuations in one pass"
ALONE = "continuation of a text that is cut"
CONTINUED = "continuation of a text from its cache"
_MOST_NODES = 512
"""Tokens of continuations in one pass. With a text of 131,072 tokens the mask then takes 135 MB in 16 bits."""


def read_with_branches(model: Weights, reading: Reading) -> tuple[Tensor, list[Tensor]]:
    """What the head takes for the tokens of a reading [T, ...], and for those of each of its branches [M, ...].

    Of a reading without labels, only the tokens before its last branch are read.
    """
    scored, branches = len(reading.labels) > 0, reading.branches
    tokens = reading.tokens if scored else reading.tokens[: branches[-1].place]
    if not model.path.in_one_pass:
        return _along_the_path(model, tokens, branches, scored=scored)
    apart = [model.plain_pass(each.tokens) for each in branches if not each.place]
    text, found = _shared(model, tokens, branches[len(apart) :], scored=scored)
    return text, apart + found


def _shared(
    model: Weights, tokens: NDArray[Any], branches: Sequence[Branch], *, scored: bool
) -> tuple[Tensor, list[Tensor]]:
    """A text, if it is `scored`, and those of its branches that continue a part of it."""

    @cache
    def text() -> Tensor:
        return model.plain_pass(tokens)

    if not branches:
        return text(), []
    far = max(range(len(branches)), key=lambda index: _length(branches[index]))
    place = branches[far].place
    beyond = scored and place < len(tokens)

    @cache
    def alone() -> Tensor:
        return model.plain_pass(branches[far].after(tokens))

    if model.may_continue(CONTINUED):
        if (found := _in_trees(model, tokens, branches)) is not None:
            return found
        kept: list[tuple[Tensor, list[Tensor]]] = []

        def fast() -> Tensor:
            kept.append(_one_by_one(model, tokens, branches))
            [(rows, found)] = kept
            return torch.cat([rows[:place], found[far], *([rows[place:]] if beyond else [])])

        def plain() -> Tensor:
            return torch.cat([alone(), *([text()[place:]] if beyond else [])])

        most = max(_length(branches[far]), len(tokens))
        if model.proofs.take(CONTINUED, most, fast, plain, name=model.name):
            return kept[0]
    # A text by itself, not the beginning of a longer sequence: there the frequencies of rope may be others.
    rows = text() if scored else alone()[:0]
    own = [
        alone() if index == far else model.plain_pass(each.after(tokens))
        for index, each in enumerate(branches)
    ]
    return rows, [each[branch.place :] for each, branch in zip(own, branches, strict=True)]


def _length(branch: Branch) -> int:
    """Tokens that a branch needs, with those of the text before it."""
    return branch.place + len(branch.tokens)


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


def _in_trees(
    model: Weights, tokens: NDArray[Any], branches: Sequence[Branch]
) -> tuple[Tensor, list[Tensor]] | None:
    """The text in one pass, and its branches in a few; None where this is not proven, or brings nothing.

    The proof compares the longest branch with a plain pass. Where that branch is the first of its pass, nothing is
    masked from it. Then the longest branch that has another one before it is compared too.
    """
    passes = _passes(branches)
    behind = [index for one in passes for index in one.paths if one.is_behind(index)]
    if not behind:
        return None

    @cache
    def read() -> tuple[Tensor, list[Tensor]]:
        return _together(model, tokens, branches, passes)

    asked = {TOGETHER: max(behind, key=lambda index: _length(branches[index]))}
    far = max(range(len(branches)), key=lambda index: _length(branches[index]))
    if _length(branches[far]) > _length(branches[asked[TOGETHER]]):
        asked[ALONE] = far
    for shortcut, index in asked.items():
        branch = branches[index]

        def fast(index: int = index, branch: Branch = branch) -> Tensor:
            text, found = read()
            return torch.cat([text[: branch.place], found[index]])

        plain = partial(model.plain_pass, branch.after(tokens))
        if not model.proofs.take(shortcut, _length(branch), fast, plain, name=model.name):
            return None
    return read()


def _together(
    model: Weights, tokens: NDArray[Any], branches: Sequence[Branch], passes: Sequence[_Pass]
) -> tuple[Tensor, list[Tensor]]:
    """The text in one pass; then the branches, the farthest first, while the cache forgets the end of the text.

    So no branch is read beside a text of more than twice its own, and the mask stays small.
    """
    reader = PieceReader(model, cache=whole_cache(model))
    text, found = reader.read(tokens[None])[0], dict[int, Tensor]()
    for one in passes:
        reader.cut(one.read)
        states = reader.read_beside(*one.given)
        found |= {index: states[path] for index, path in one.paths.items()}
    return text, [found[index] for index in range(len(branches))]


class _Pass:
    """Branches of one pass, after `read` tokens of the text: those that begin alike at a place share these tokens."""

    def __init__(self, branches: Sequence[tuple[int, Branch]]) -> None:
        self.read = max(branch.place for _, branch in branches)
        ordered = sorted(branches, key=lambda each: (each[1].place, len(each[1].tokens)))
        nodes: _Nodes = {}
        self.paths = {index: _path(nodes, branch) for index, branch in ordered}
        """By branch: its nodes."""
        self._tokens = np.array([token for _, token in nodes])
        self._places, self._positions = np.empty((2, len(nodes)), dtype=np.int64)
        for index, branch in ordered:
            path = self.paths[index]
            self._places[path] = branch.place
            self._positions[path] = branch.place + np.arange(len(path))

    def is_behind(self, index: int) -> bool:
        """Whether tokens that a branch must not see stand between its part of the text and itself."""
        path = self.paths[index]
        return bool((self._positions[path] != self.read + np.array(path)).any())

    @property
    def given(self) -> tuple[NDArray[np.int64], NDArray[np.int64], Tensor]:
        """What `PieceReader.read_beside` takes."""
        count = len(self._tokens)
        sees = torch.zeros(count, count, dtype=torch.bool)
        for path in self.paths.values():
            own = torch.tensor(path)
            sees[own[:, None], own] = torch.ones(len(own), len(own), dtype=torch.bool).tril()
        text = torch.arange(self.read) < torch.from_numpy(self._places)[:, None]
        return self._tokens, self._positions, torch.cat([text, sees], dim=1)


_Nodes = dict[tuple[int, int], int]
"""(the node before it, or -1 - the place of the branch; the token) -> the node."""


def _path(nodes: _Nodes, branch: Branch) -> list[int]:
    """The nodes of a branch; those that are not there yet are added."""
    path, before = list[int](), -1 - branch.place
    for token in branch.tokens.tolist():
        before = nodes.setdefault((before, token), len(nodes))
        path.append(before)
    return path


def _passes(branches: Sequence[Branch]) -> list[_Pass]:
    """The farthest first: each has those of a doubling of the place, of at most `_MOST_NODES` tokens together."""
    found, some, nodes = list[_Pass](), list[tuple[int, Branch]](), _Nodes()
    for index, branch in reversed(list(enumerate(branches))):
        _path(nodes, branch)
        if some and (2 * branch.place <= some[0][1].place or len(nodes) > _MOST_NODES):
            found.append(_Pass(some))
            some, nodes = [], _Nodes()
            _path(nodes, branch)
        some.append((index, branch))
    return [*found, _Pass(some)]


def _along_the_path(
    model: Weights, tokens: NDArray[Any], branches: Sequence[Branch], *, scored: bool
) -> tuple[Tensor, list[Tensor]]:
    """By the passes of the model's path, over the text and over each branch with the text before it.

    Passes that the text and a branch have in common are made once, which changes no number. A text that is not
    `scored` is read no farther than branches share it.
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
    for step, begin in enumerate(ends if scored else ends[: max(shared) + 1]):
        for index in shared.get(step, ()):
            sequence = branches[index].after(tokens)
            fork = reader.fork() if begin else PieceReader(model, cache=made_cache(model, most))
            parts = fork.read_passes(sequence[None, begin:], model.path.pieces(len(sequence), begin))
            found[index] = torch.cat(parts, dim=1)[0, branches[index].place - begin :]
        if step < (len(passes) if scored else max(shared)):
            text.append(reader.read(tokens[None, begin : begin + passes[step]])[0])
    return torch.cat(text) if text else found[0][:0], [found[index] for index in range(len(branches))]
