"""A text read once, and several continuations of it: one after each of its places, or many after its end.

Continuations take one forward pass together, under a mask by which each sees the text before it and itself. A model
proves this on its first text, and again on every longer pass (`LoadedModel.branches`): the last continuation must be
what it is by itself. A model that fails, such as one with sliding windows, reads one continuation at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from lengthwise.checkpoints.head import Head
from lengthwise.checkpoints.position_limits import rope_by_input_length
from lengthwise.errors import reason
from lengthwise.subjects.pieces import PieceReader, differs, reader_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lengthwise.subjects.weights import LoadedModel

logger = logging.getLogger(__name__)

_MOST_NODES = 512
"""Tokens of a tree in one pass. With a text of 131,072 tokens the mask then takes 135 MB in 16 bits."""


def read_with_branches(
    model: LoadedModel,
    tokens: NDArray[np.integer],
    branches: Sequence[NDArray[np.integer]],
    places: Sequence[int],
    *,
    piece: int,
) -> tuple[Tensor, Tensor]:
    """Read a text and, after each of its places, a branch.

    The text takes one forward pass, and the branches of a doubling another. A model that cannot read them together is
    read by `read_branch_by_branch`.

    Args:
        model: the model.
        tokens: the text, ids [T].
        branches: the tokens of each branch, ids [N], equally many.
        places: the tokens before each branch, ascending, 1 .. T.
        piece: the most tokens in a pass where the text is read branch by branch.

    Returns:
        What `model.head.logits` takes, of the text [T, ...] and of the branches [K, N, ...].
    """
    reader = reader_of(model)
    if reader.cached and not places:
        text = model.hidden_states(torch.from_numpy(tokens)[None])[0]
        return text, text[:0]
    if reader.cached and model.branches != 0:
        text = reader.read(tokens[None])[0]

        def last_alone() -> Tensor:
            alone = reader.fork()
            alone.cut(places[-1])
            return alone.read(branches[-1][None])[0]

        found = _proven(
            model,
            places[-1] + len(branches[-1]),
            lambda: [*_by_doubling(reader.fork(), branches, places)],
            last_alone,
        )
        if found is not None:
            return text, torch.stack(found)
    return read_branch_by_branch(model, tokens, branches, places, piece=piece)


def read_branch_by_branch(
    model: LoadedModel,
    tokens: NDArray[np.integer],
    branches: Sequence[NDArray[np.integer]],
    places: Sequence[int],
    *,
    piece: int,
) -> tuple[Tensor, Tensor]:
    """`read_with_branches` by its definition: the text up to each place, then the branch."""
    reader, text, found = reader_of(model), [], []
    for begin, end in pairwise(sorted({0, len(tokens), *range(piece, len(tokens), piece), *places})):
        text.append(reader.read(tokens[None, begin:end])[0])
        for branch, place in zip(branches, places, strict=True):
            if place == end:
                found.append(reader.fork().read(branch[None])[0])
    return torch.cat(text), torch.stack(found) if found else text[0][:0]


def _by_doubling(
    reader: PieceReader, branches: Sequence[NDArray[np.integer]], places: Sequence[int]
) -> Tensor:
    """The branches [K, N, ...], from the farthest to the nearest; the text is forgotten on the way.

    So no branch is compared with a text of more than twice its own, and the mask stays small.
    """
    found: list[Tensor] = []
    left = list(places)
    while left:
        some = [place for place in left if 2 * place > left[-1]]
        left = left[: -len(some)]
        reader.cut(some[-1])
        found.insert(0, _in_one_pass(reader, branches[len(left) : len(left) + len(some)], some, some[-1]))
    return torch.cat(found)


def _in_one_pass(
    reader: PieceReader, branches: Sequence[NDArray[np.integer]], places: Sequence[int], read: int
) -> Tensor:
    """The branches [K, N, ...] of a text of `read` tokens."""
    size, before = len(branches[0]), torch.tensor(places)[:, None]
    text = (torch.arange(read) < before).repeat_interleave(size, dim=0)
    own = torch.ones(size, size, dtype=torch.bool).tril()
    mask = torch.cat([text, torch.block_diag(*[own] * len(places))], dim=1)
    positions = (before + torch.arange(size)).flatten().numpy()
    return reader.read_beside(np.concatenate(branches), positions, mask).unflatten(0, (-1, size))


def read_tree(
    model: LoadedModel, reader: PieceReader, rows: Sequence[tuple[int, ...]], read: int
) -> list[Tensor] | None:
    """Continue a text with each of several rows, as if that row came alone.

    Rows that begin alike share these tokens: a token sees the text and the tokens of its row before it.

    Args:
        model: the model.
        reader: has read the text, and stays as it is.
        rows: the tokens of each row, sorted, none empty.
        read: the tokens of the text.

    Returns:
        What `model.head.logits` takes for the tokens of each row, [len(row), ...]; None if this model cannot.
    """
    # Full logits of every token, rather than hidden states, would fill the memory.
    together = isinstance(model.head, Head) and rope_by_input_length(model.config) is None
    if not read or model.branches == 0 or not together:
        return None
    passes = _of_one_pass(rows)
    return _proven(
        model,
        read + max(map(_nodes, passes)),
        lambda: [states for some in passes for states in _tree(reader.fork(), some, read)],
        lambda: reader.fork().read(np.array([rows[-1]]))[0],
    )


def alike(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens both begin with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _nodes(rows: Sequence[tuple[int, ...]]) -> int:
    """The tokens of a tree of sorted rows."""
    return sum(len(row) - alike(before, row) for before, row in pairwise([(), *rows]))


def _of_one_pass(rows: Sequence[tuple[int, ...]]) -> list[list[tuple[int, ...]]]:
    """Groups of sorted rows, each of at least one, and else of at most `_MOST_NODES` tokens."""
    groups: list[list[tuple[int, ...]]] = []
    for row in rows:
        if not groups or _nodes([*groups[-1], row]) > _MOST_NODES:
            groups.append([])
        groups[-1].append(row)
    return groups


def _tree(reader: PieceReader, rows: Sequence[tuple[int, ...]], read: int) -> list[Tensor]:
    """Sorted rows in one pass, after a text of `read` tokens."""
    tokens: list[int] = []
    depths: list[int] = []
    paths: list[list[int]] = [[]]
    """The places of each row's tokens in `tokens`."""
    for before, row in pairwise([(), *rows]):
        same = alike(before, row)
        paths.append([*paths[-1][:same], *range(len(tokens), len(tokens) + len(row) - same)])
        tokens += row[same:]
        depths += range(same, len(row))
    sees = torch.zeros(len(tokens), len(tokens), dtype=torch.bool)
    for path in paths[1:]:
        own = torch.tensor(path)
        sees[own[:, None], own] = torch.ones(len(own), len(own), dtype=torch.bool).tril()
    text = torch.ones(len(tokens), read, dtype=torch.bool)
    found = reader.read_beside(np.array(tokens), read + np.array(depths), torch.cat([text, sees], dim=1))
    return [found[path] for path in paths[1:]]


def _proven(
    model: LoadedModel,
    tokens: int,
    together: Callable[[], list[Tensor]],
    last_alone: Callable[[], Tensor],
) -> list[Tensor] | None:
    """The continuations `together()`, if the model can; `model.branches` keeps whether.

    A window hidden in a layer counts places in the pass, so a pass of more `tokens`, those of the text included, is
    proven again.
    """
    if model.branches is not None and tokens <= model.branches:
        return together()
    found: list[Tensor] | None = None
    try:
        found = together()
        why = differs(found[-1], last_alone())
    # A model may fail in many ways under a mask and positions that it was not made for.
    except Exception as error:
        why = reason(error)
    if why is not None:
        logger.info("%s: every continuation is read by itself (slower): together %s", model.name, why)
        found = None
    model.branches = 0 if found is None else tokens
    return found
