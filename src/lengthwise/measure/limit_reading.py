"""How `limit` reads a window: with hidden states, each token once; or by losses alone, each context on its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor

from lengthwise.measure.distributions import compare_contexts
from lengthwise.measure.limit_curves import LimitGrid
from lengthwise.measure.measurement import in_groups
from lengthwise.models.loaded_model import LoadedModel, target_losses
from lengthwise.models.reading import CachedReader, PlainReader, reader_kind
from lengthwise.text import view

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lengthwise.models import Predictor


class Reading(Protocol):
    """Reads one window, [length + 1 + 2 * passage] ids, for its two samples."""

    def different(self, ids: NDArray[np.integer]) -> dict[str, Any]:
        """The passage's summed losses by distance after another first passage."""
        ...

    def same(self, ids: NDArray[np.integer]) -> dict[str, Any]:
        """The passage's summed losses after itself by distance; by bin, sums of all context against its end."""
        ...


def reading_of(model: Predictor, grid: LimitGrid, *, bos_id: int | None, batch_size: int) -> Reading:
    """The reading that the model allows; it reads `batch_size` short contexts at a time."""
    if isinstance(model, LoadedModel):
        return _ByHiddenStates(model, grid, bos_id, batch_size, reader_kind(model))
    return _ByLosses(model, grid, bos_id, batch_size)


@dataclass(frozen=True)
class _ByHiddenStates:
    model: LoadedModel
    grid: LimitGrid
    bos_id: int | None
    batch_size: int
    kind: type[CachedReader] | type[PlainReader]

    def different(self, ids: NDArray[np.integer]) -> dict[str, Any]:
        losses: list[float] = []
        for _ in self._blocks(_with_other_passage(ids, self.grid), ids, losses):
            pass
        return {"different": losses}

    def same(self, ids: NDArray[np.integer]) -> dict[str, Any]:
        grid, losses = self.grid, list[float]()
        half = grid.reference // 2
        sums: list[Tensor] = []
        blocks = enumerate(self._blocks(ids, ids, losses))
        beyond = ((index * half, hidden) for index, hidden in blocks if index * half >= grid.reference)
        for group in in_groups(beyond, self.batch_size):
            views = [view(ids, start - half, grid.reference, self.bos_id) for start, _ in group]
            ends = self.model.hidden_states(torch.from_numpy(np.stack(views)))[:, half:]
            for (start, whole), cut in zip(group, ends, strict=True):
                labels = ids[start + 1 : start + 1 + half]
                loss, short, jeffreys = compare_contexts(self.model, whole, cut, labels, first=start).T
                scores = torch.stack([loss - short, jeffreys, loss], dim=1)
                sums.append(scores.unflatten(0, (-1, grid.bin)).sum(dim=1))
        return {
            "same": losses,
            **dict(zip(("excess", "jeffreys", "loss"), torch.cat(sums).T.tolist(), strict=True)),
        }

    def _blocks(
        self, context: NDArray[np.integer], ids: NDArray[np.integer], losses: list[float]
    ) -> Iterator[Tensor]:
        """Read `context` in blocks of R/2 and yield their hidden states, [R/2, ...].

        Appends to `losses` the summed loss of the passage that `ids` begins with, after each distance.
        """
        grid = self.grid
        reader = self.kind(self.model)
        tokens = view(context, 0, grid.length, self.bos_id)
        question = ids[: grid.passage]
        place = 0
        for end in range(grid.reference // 2, grid.length + 1, grid.reference // 2):
            pieces = []
            for cut in sorted({end, *(d for d in grid.distances if place < d <= end)}):
                pieces.append(reader.read(tokens[None, place:cut])[0])
                place = cut
                if cut in grid.distances:
                    hidden = reader.fork().read(question[None, :-1])[0, -grid.scored :]
                    answer = question[-grid.scored :]
                    losses.append(target_losses(self.model, hidden, answer, first=place).sum().item())
            yield torch.cat(pieces)


@dataclass(frozen=True)
class _ByLosses:
    """Without hidden states: no Jeffreys divergence, and each distance reads its context again."""

    model: Predictor
    grid: LimitGrid
    bos_id: int | None
    batch_size: int

    def different(self, ids: NDArray[np.integer]) -> dict[str, Any]:
        return {"different": self._by_distance(_with_other_passage(ids, self.grid), ids)}

    def same(self, ids: NDArray[np.integer]) -> dict[str, Any]:
        grid = self.grid
        length, reference, half = grid.length, grid.reference, grid.reference // 2
        [whole] = self.model.token_losses(
            [view(ids, 0, length, self.bos_id)], [ids[reference + 1 : length + 1]]
        )
        short: list[Tensor] = []
        for group in in_groups(range(reference, length, half), self.batch_size):
            short += self.model.token_losses(
                [view(ids, start - half, reference, self.bos_id) for start in group],
                [ids[start + 1 : start + 1 + half] for start in group],
            )
        sums = torch.stack([whole - torch.cat(short), whole]).unflatten(1, (-1, grid.bin)).sum(dim=2)
        excess, loss = sums.tolist()
        return {"same": self._by_distance(ids, ids), "excess": excess, "loss": loss}

    def _by_distance(self, context: NDArray[np.integer], ids: NDArray[np.integer]) -> list[float]:
        grid = self.grid
        question = ids[: grid.passage]
        tokens = view(context, 0, grid.length, self.bos_id)
        found: list[float] = []
        for group in in_groups(grid.distances, self.batch_size):
            losses = self.model.token_losses(
                [np.concatenate([tokens[:distance], question[:-1]]) for distance in group],
                [question[-grid.scored :] for _ in group],
            )
            found += [each.sum().item() for each in losses]
        return found


def _with_other_passage(ids: NDArray[np.integer], grid: LimitGrid) -> NDArray[np.integer]:
    return np.concatenate([ids[-grid.passage :], ids[grid.passage :]])
