"""How `limit` reads a window: with hidden states, each token once; or by losses alone, each context on its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from lengthwise.measure.distributions import compare_contexts
from lengthwise.measure.limit_curves import LimitGrid
from lengthwise.measure.measurement import Record, in_groups
from lengthwise.models.loaded_model import LoadedModel, target_losses
from lengthwise.models.reading import reader_of
from lengthwise.text import view

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lengthwise.models import Predictor


def read_window(
    model: Predictor,
    ids: NDArray[np.integer],
    first: str,
    grid: LimitGrid,
    bos_id: int | None,
    batch_size: int,
) -> Record:
    """What the log keeps of a window, [length + 1 + 2 * passage] ids; `batch_size` short contexts are read at a time.

    Where `first` is "different", the window begins with the passage at its end in place of its own. Under the name
    of `first` the passage's summed losses by distance. Of "same" also, by bin, the sums of `excess`, `loss` and
    (with hidden states) `jeffreys`: all context against its end.
    """
    context = ids if first == "same" else np.concatenate([ids[-grid.passage :], ids[grid.passage :]])
    tokens = view(context, 0, grid.length, bos_id)
    if isinstance(model, LoadedModel):
        losses: list[float] = []
        blocks = _blocks(model, tokens, ids, grid, losses)
        sums = _compared(model, ids, grid, blocks, bos_id, batch_size) if first == "same" else {}
        for _ in blocks:
            pass
        return {first: losses, **sums}
    sums = _subtracted(model, ids, grid, bos_id, batch_size) if first == "same" else {}
    return {first: _by_distance(model, tokens, ids, grid, batch_size), **sums}


def _blocks(
    model: LoadedModel,
    tokens: NDArray[np.int64],
    ids: NDArray[np.integer],
    grid: LimitGrid,
    losses: list[float],
) -> Iterator[Tensor]:
    """Read `tokens` in blocks of R/2 and yield their hidden states, [R/2, ...].

    Appends to `losses` the summed loss of the passage that `ids` begins with, after each distance.
    """
    reader = reader_of(model)
    question = ids[: grid.passage]
    place = 0
    for end in range(grid.reference // 2, grid.length + 1, grid.reference // 2):
        pieces = []
        for cut in sorted({end, *(d for d in grid.distances if place < d <= end)}):
            pieces.append(reader.read(tokens[None, place:cut])[0])
            place = cut
            if cut in grid.distances:
                hidden = reader.fork().read(question[None, :-1])[0, -grid.scored :]
                losses.append(
                    target_losses(model, hidden, question[-grid.scored :], first=place).sum().item()
                )
        yield torch.cat(pieces)


def _compared(
    model: LoadedModel,
    ids: NDArray[np.integer],
    grid: LimitGrid,
    blocks: Iterator[Tensor],
    bos_id: int | None,
    batch_size: int,
) -> Record:
    half, sums = grid.reference // 2, []
    beyond = ((i * half, hidden) for i, hidden in enumerate(blocks) if i * half >= grid.reference)
    for group in in_groups(beyond, batch_size):
        views = [view(ids, start - half, grid.reference, bos_id) for start, _ in group]
        ends = model.hidden_states(torch.from_numpy(np.stack(views)))[:, half:]
        for (start, whole), cut in zip(group, ends, strict=True):
            labels = ids[start + 1 : start + 1 + half]
            loss, short, jeffreys = compare_contexts(model, whole, cut, labels, first=start).T
            scores = torch.stack([loss - short, jeffreys, loss], dim=1)
            sums.append(scores.unflatten(0, (-1, grid.bin)).sum(dim=1))
    return dict(zip(("excess", "jeffreys", "loss"), torch.cat(sums).T.tolist(), strict=True))


def _subtracted(
    model: Predictor, ids: NDArray[np.integer], grid: LimitGrid, bos_id: int | None, batch_size: int
) -> Record:
    length, reference, half = grid.length, grid.reference, grid.reference // 2
    [whole] = model.token_losses([view(ids, 0, length, bos_id)], [ids[reference + 1 : length + 1]])
    short: list[Tensor] = []
    for group in in_groups(range(reference, length, half), batch_size):
        short += model.token_losses(
            [view(ids, start - half, reference, bos_id) for start in group],
            [ids[start + 1 : start + 1 + half] for start in group],
        )
    excess, loss = torch.stack([whole - torch.cat(short), whole]).unflatten(1, (-1, grid.bin)).sum(dim=2)
    return {"excess": excess.tolist(), "loss": loss.tolist()}


def _by_distance(
    model: Predictor,
    tokens: NDArray[np.int64],
    ids: NDArray[np.integer],
    grid: LimitGrid,
    batch_size: int,
) -> list[float]:
    """The summed loss of the passage that `ids` begins with, after each distance in `tokens`."""
    question = ids[: grid.passage]
    found: list[float] = []
    for group in in_groups(grid.distances, batch_size):
        views = [np.concatenate([tokens[:distance], question[:-1]]) for distance in group]
        losses = model.token_losses(views, [question[-grid.scored :]] * len(group))
        found += [each.sum().item() for each in losses]
    return found
