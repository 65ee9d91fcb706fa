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

_MASK_ELEMENTS = 2**25
"""Most elements of one mask [branch tokens, keys]; more branches take several passes."""


def read_with_branches(
    model: LoadedModel,
    tokens: NDArray[np.integer],
    branch: NDArray[np.integer],
    places: Sequence[int],
    *,
    piece: int,
) -> tuple[Tensor, Tensor]:
    """Read a text and, after each of its places, a branch.

    The text takes one forward pass, and all branches take a second one, under a mask by which each sees the text
    before its place and itself. The first text of a model proves this (`LoadedModel.branches`): a last branch,
    behind all others and after the whole text, must give what its continuation gives. A model that fails, such as
    one with sliding windows, is read by `read_branch_by_branch`.

    Args:
        model: the model.
        tokens: the text, ids [T].
        branch: the tokens of every branch, ids [N].
        places: the tokens before each branch, 1 .. T.
        piece: the most tokens in a pass where the text is read branch by branch.

    Returns:
        What `model.head.logits` takes, of the text [T, ...] and of the branches [K, N, ...].
    """
    reader = reader_of(model)
    if reader.cached and model.branches is not False:
        text = reader.read(tokens[None])[0]
        if model.branches is None:
            why = _why_not(reader, branch, places, len(tokens))
            if why is not None:
                logger.info("%s: every branch is read by itself (slower): %s", model.name, why)
            model.branches = why is None
        if model.branches:
            return text, _in_one_pass(reader, branch, places, len(tokens))
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
    return torch.cat(text), torch.stack(branches)


def _in_one_pass(
    reader: PieceReader, branch: NDArray[np.integer], places: Sequence[int], read: int
) -> Tensor:
    """The branches [K, N, ...] of a text of `read` tokens."""
    size = len(branch)
    most = max(1, _MASK_ELEMENTS // (size * (read + len(places) * size)))
    own = torch.ones(size, size, dtype=torch.bool).tril()
    found = []
    for begin in range(0, len(places), most):
        some = torch.tensor(places[begin : begin + most])
        before = (torch.arange(read) < some[:, None]).repeat_interleave(size, dim=0)
        mask = torch.cat([before, torch.block_diag(*[own] * len(some))], dim=1)
        positions = (some[:, None] + torch.arange(size)).flatten().numpy()
        hidden = reader.read_beside(np.tile(branch, len(some)), positions, mask)
        found.append(hidden.unflatten(0, (len(some), size)))
    return torch.cat(found)


def _why_not(
    reader: PieceReader, branch: NDArray[np.integer], places: Sequence[int], read: int
) -> str | None:
    """Why the branches of a text that was read cannot be read together; None where they can."""
    try:
        expected = reader.fork().read(branch[None])[0]
        together = _in_one_pass(reader, branch, [*places, read], read)[-1]
    # A model may fail in many ways under a mask and positions that it was not made for.
    except Exception as error:
        return reason(error)
    return differs(together, expected)
