"""A text read once, and the same continuation after several of its places, as if the text ended there."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from lengthwise.errors import reason
from lengthwise.models.reading import PieceReader, differs, reader_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lengthwise.models.loaded_model import LoadedModel

logger = logging.getLogger(__name__)


def read_with_branches(
    model: LoadedModel,
    tokens: NDArray[np.integer],
    branch: NDArray[np.integer],
    places: Sequence[int],
    *,
    piece: int,
) -> tuple[Tensor, Tensor]:
    """Read a text and, after each of its places, a branch.

    The text takes one forward pass. The branches of a doubling take another, under a mask by which each sees the text
    before its place and itself. The first text of a model proves this (`LoadedModel.branches`): of all branches in
    one pass, the last must give what it gives by itself. A model that fails, such as one with sliding windows, is
    read by `read_branch_by_branch`.

    Args:
        model: the model.
        tokens: the text, ids [T].
        branch: the tokens of every branch, ids [N].
        places: the tokens before each branch, ascending, 1 .. T.
        piece: the most tokens in a pass where the text is read branch by branch.

    Returns:
        What `model.head.logits` takes, of the text [T, ...] and of the branches [K, N, ...].
    """
    reader = reader_of(model)
    if reader.cached and not places:
        text = model.hidden_states(torch.from_numpy(tokens)[None])[0]
        return text, text[:0]
    if reader.cached and model.branches is not False:
        text = reader.read(tokens[None])[0]
        if model.branches:
            return text, _by_doubling(reader, branch, places)
        if (branches := _proven(model, reader, branch, places, len(tokens))) is not None:
            return text, branches
    return read_branch_by_branch(model, tokens, branch, places, piece=piece)


def read_branch_by_branch(
    model: LoadedModel,
    tokens: NDArray[np.integer],
    branch: NDArray[np.integer],
    places: Sequence[int],
    *,
    piece: int,
) -> tuple[Tensor, Tensor]:
    """`read_with_branches` by its definition: the text up to each place, then the branch."""
    reader, text, branches = reader_of(model), [], []
    for begin, end in pairwise(sorted({0, len(tokens), *range(piece, len(tokens), piece), *places})):
        text.append(reader.read(tokens[None, begin:end])[0])
        if end in places:
            branches.append(reader.fork().read(branch[None])[0])
    return torch.cat(text), torch.stack(branches) if branches else text[0][:0]


def _by_doubling(reader: PieceReader, branch: NDArray[np.integer], places: Sequence[int]) -> Tensor:
    """The branches [K, N, ...], from the farthest to the nearest; the text is forgotten on the way.

    So no branch is compared with a text of more than twice its own, and the mask stays small.
    """
    found: list[Tensor] = []
    left = list(places)
    while left:
        some = [place for place in left if 2 * place > left[-1]]
        left = left[: -len(some)]
        reader.cut(some[-1])
        found.insert(0, _in_one_pass(reader, branch, some, some[-1]))
    return torch.cat(found)


def _in_one_pass(
    reader: PieceReader, branch: NDArray[np.integer], places: Sequence[int], read: int
) -> Tensor:
    """The branches [K, N, ...] of a text of `read` tokens."""
    size, before = len(branch), torch.tensor(places)[:, None]
    text = (torch.arange(read) < before).repeat_interleave(size, dim=0)
    own = torch.ones(size, size, dtype=torch.bool).tril()
    mask = torch.cat([text, torch.block_diag(*[own] * len(places))], dim=1)
    positions = (before + torch.arange(size)).flatten().numpy()
    return reader.read_beside(np.tile(branch, len(places)), positions, mask).unflatten(0, (-1, size))


def _proven(
    model: LoadedModel, reader: PieceReader, branch: NDArray[np.integer], places: Sequence[int], read: int
) -> Tensor | None:
    """The branches of the first text, if they can be read together; `model.branches` keeps whether."""
    found: Tensor | None = None
    try:
        found = _in_one_pass(reader, branch, places, read)
        reader.cut(places[-1])
        why = differs(found[-1], reader.read(branch[None])[0])
    # A model may fail in many ways under a mask and positions that it was not made for.
    except Exception as error:
        why = reason(error)
    if why is not None:
        logger.info("%s: every branch is read by itself (slower): together %s", model.name, why)
        found = None
    model.branches = found is not None
    return found
