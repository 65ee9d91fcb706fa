"""From token documents to batches of paired windows, the same ones however the work is cut up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from lengthwise.alignment import PairGeometry, next_token_labels
from lengthwise.errors import UsageError
from lengthwise.positions.sampling.sampler import PositionSampler, first_gap
from lengthwise.text import TokenDocument, WindowSampler, view

Views = Literal["truncation", "gap"]
"""How the two views of a sample differ: context cut off (the paper's), or positions left out."""


@dataclass(frozen=True, kw_only=True)
class SampledPositions:
    """Position ids for windows: a sampler, and the length that its positions are to cover."""

    sampler: PositionSampler
    target_length: int
    """T, tokens."""

    def draw(self, seed: list[int], length: int) -> Tensor:
        """Position ids [L], a function of `seed` alone."""
        return self.sampler.draw(np.random.default_rng(seed), length, self.target_length)


class WindowDataset(Dataset[dict[str, Any]]):
    """`steps * batch_size` stretches of length + e tokens; item i is a function of (seed, i) alone.

    The offset e is drawn once for each step of `batch_size` items, so that all items of a step share it
    (Appendix D). So are the positions, where they are sampled: one draw for both views of all samples.
    Read it in order (`SequentialSampler`): then a step is the same however micro-batches and processes cut it up,
    and a resumed run continues with the same windows.

    Args:
        documents: token documents; a stretch never crosses from one into the next.
        length: L, tokens in each view.
        offsets: first and last offset e; each step draws one uniformly.
        batch_size: samples of one optimizer step, over all processes.
        steps: optimizer steps.
        seed: of offsets, windows and positions.
        positions: of the windows; None is 0 .. L-1.

    Raises:
        UsageError: no document has the length + e tokens that the largest offset needs; the sampler has no
            positions for this length.
    """

    def __init__(
        self,
        documents: Sequence[TokenDocument],
        *,
        length: int,
        offsets: tuple[int, int],
        batch_size: int,
        steps: int,
        seed: int = 0,
        positions: SampledPositions | None = None,
    ) -> None:
        self.length = length
        self.offsets = offsets
        self.batch_size = batch_size
        self.seed = seed
        self.positions = positions
        if positions is not None:
            self.draw_positions(0)
        self._count = steps * batch_size
        self._sampler = WindowSampler(documents, seed=seed)
        self._sampler.window(0, length + offsets[1])

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> dict[str, Any]:
        """The stretch `index`: `input_ids` [length + e], `offset` e, `position_ids` [L] where they are sampled."""
        if not 0 <= index < self._count:
            raise IndexError(index)
        step = index // self.batch_size
        offset = self.offset(step)
        item: dict[str, Any] = {
            "input_ids": self._sampler.window(index, self.length + offset),
            "offset": offset,
        }
        if self.positions is not None:
            item["position_ids"] = self.draw_positions(step)
        return item

    def offset(self, step: int) -> int:
        """The offset e of optimizer step `step` (0-based)."""
        low, high = self.offsets
        return int(np.random.default_rng([self.seed, 4, step]).integers(low, high + 1))

    def draw_positions(self, step: int) -> Tensor:
        """The position ids [L] of optimizer step `step` (0-based)."""
        assert self.positions is not None
        return self.positions.draw([self.seed, 5, step], self.length)


# Columns of a data set that leave tokens out as targets where they are 0, as TRL writes them.
_MASKS = ("completion_mask", "assistant_masks")


class PairCollator:
    """Stretches of length + e tokens to one batch of both views, long rows first.

    A batch has `input_ids` and `labels` [2B, L] (rows 0 .. B-1 are long views, B .. 2B-1 the short views of the
    same samples) and `geometry`, the PairGeometry of its rows: all that the loss needs. Labels are aligned with
    rows: row r has the token after it, the last row of a view -100, because the token after it lies outside
    (Appendix D: each window predicts L - 1 tokens).

    Without `positions` a batch has no `position_ids`: both views are at positions 0 .. L-1, a model's default. With
    them it has `position_ids` and an `attention_mask` of ones [2B, L]. With the views "gap" the two views are the
    same L tokens, at 0 .. L-1 and at the drawn positions. The offset is then 0, and only rows after the first gap
    are paired: before it both views see the same.

    An item has `input_ids`, and may have `labels` (token ids or -100, not shifted: transformers' convention),
    `completion_mask` or `assistant_masks` (0 where a token is no target; TRL's) of the same length, and `offset`.

    Args:
        length: L, tokens in each view.
        bos_id: replaces the first token of each view as input, if given; no label changes.
        offsets: first and last offset e, for items without `offset`: each batch draws one uniformly, from `seed`
            and its first tokens, and takes the first length + e tokens of each stretch. Without offsets, a
            stretch has length + e tokens.
        seed: of the offsets and positions.
        views: "truncation" (the paper's: context cut off) or "gap" (positions left out).
        positions: of the views. A WindowDataset with positions draws them for the whole step; for other data sets
            each batch draws them from `seed` and its first tokens.
        min_context: as in `PairGeometry`; None is L // 2, and for gap views 0. An AlignmentTrainer with a
            `min_context` sets it.

    Raises:
        UsageError: gap views without positions or with offsets; on call, stretches that are shorter than `length`
            (plus the largest offset) or of several lengths.
    """

    def __init__(
        self,
        length: int,
        *,
        bos_id: int | None = None,
        offsets: tuple[int, int] | None = None,
        seed: int = 0,
        views: Views = "truncation",
        positions: SampledPositions | None = None,
        min_context: int | None = None,
    ) -> None:
        if views == "gap" and (positions is None or offsets is not None):
            raise UsageError(
                "gap views without positions" if positions is None else f"gap views with offsets {offsets}",
                expected="a sampler of positions for the second view, and no offsets: both views are the same tokens",
            )
        self.length = length
        self.bos_id = bos_id
        self.offsets = (0, 0) if views == "gap" else offsets
        self.seed = seed
        self.views: Views = views
        self.positions = positions
        self.min_context = min_context

    def __call__(self, items: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """One batch from items that hold `input_ids` [length + e], the same e in all."""
        stretches = [np.asarray(item["input_ids"]) for item in items]
        drawn = None if self.positions is None else self._drawn(items, stretches, self.positions)
        geometry = self._geometry(items, stretches, drawn)
        spans = (geometry.long_tokens, geometry.short_tokens)
        targets = [_targets(item) for item in items]
        tokens = torch.from_numpy(np.stack([t[span] for span in spans for t in targets]).astype(np.int64))
        inputs = [view(s, span.start, self.length, self.bos_id) for span in spans for s in stretches]
        batch = {
            "input_ids": torch.from_numpy(np.stack(inputs)),
            "labels": next_token_labels(tokens),
            "geometry": geometry,
        }
        return batch if drawn is None else batch | _place_views(drawn, len(items), views=self.views)

    def _geometry(
        self, items: Sequence[Mapping[str, Any]], stretches: Sequence[np.ndarray], drawn: Tensor | None
    ) -> PairGeometry:
        least = self.min_context
        if self.views == "gap":
            assert drawn is not None
            least = max(first_gap(drawn), least or 0)
        return PairGeometry(self.length, self._offset(items, stretches), least)

    def _drawn(
        self, items: Sequence[Mapping[str, Any]], stretches: Sequence[np.ndarray], positions: SampledPositions
    ) -> Tensor:
        """The positions that the items' step has drawn; without one, this batch's own."""
        given = [item["position_ids"] for item in items if "position_ids" in item]
        if not given:
            return positions.draw([self.seed, 5, *self._first_tokens(stretches)], self.length)
        drawn = torch.as_tensor(given[0])
        if (
            any(not torch.equal(torch.as_tensor(other), drawn) for other in given)
            or len(drawn) != self.length
        ):
            raise UsageError(
                "samples bring position ids of their own, and the collator is to sample them",
                expected="samples without position_ids, or those of a WindowDataset with the same positions",
            )
        return drawn

    def _first_tokens(self, stretches: Sequence[np.ndarray]) -> list[int]:
        return stretches[0][: self.length].astype(np.int64).tolist()

    def _offset(self, items: Sequence[Mapping[str, Any]], stretches: Sequence[np.ndarray]) -> int:
        sizes = {len(stretch) for stretch in stretches}
        if self.offsets is None and {len(stretch) - self.length for stretch in stretches} == {
            item.get("offset") for item in items
        }:
            return items[0]["offset"]
        if self.offsets is None and len(sizes) == 1 and min(sizes) >= self.length:
            return sizes.pop() - self.length
        if self.offsets is not None and min(sizes) >= self.length + self.offsets[1]:
            low, high = self.offsets
            seed = [self.seed, *self._first_tokens(stretches)]
            return int(np.random.default_rng(seed).integers(low, high + 1))
        if self.offsets is None:
            expected = f"one size of {self.length} + e tokens, for views of {self.length}"
            fix = (
                "let all samples of a micro-batch share e, as those of a WindowDataset do; or give the collator "
                "offsets"
            )
        else:
            needed = self.length + self.offsets[1]
            expected = f"at least {needed} tokens, for views of {self.length} and the largest offset"
            fix = f"pack the texts to stretches of {needed} tokens and drop the remainder, or use a smaller offset"
        raise UsageError(
            f"a batch has stretches of {', '.join(map(str, sorted(sizes)))} tokens",
            expected=expected,
            fix=fix,
        )


def _targets(item: Mapping[str, Any]) -> np.ndarray:
    """The tokens that an item may predict, -100 for those it may not."""
    targets = np.asarray(item.get("labels", item["input_ids"]))
    for name in _MASKS:
        if name in item:
            targets = np.where(np.asarray(item[name]) == 0, -100, targets)
    return targets


def _place_views(positions: Tensor, samples: int, *, views: Views) -> dict[str, Tensor]:
    """Position ids and attention mask [2B, L] of `samples` samples whose step has drawn `positions` [L].

    truncation: both views are at the drawn positions. gap: the long view (the first B rows) is at 0 .. L-1, the
    short view, which has the same tokens, at the drawn positions. The mask is all ones: without it transformers
    splits each row where its positions jump.
    """
    rows = positions.expand(samples, -1)
    first = rows
    if views == "gap":
        first = torch.arange(len(positions), dtype=positions.dtype).expand(samples, -1)
    position_ids = torch.cat([first, rows])
    return {
        "position_ids": position_ids,
        "attention_mask": torch.ones_like(position_ids, dtype=torch.int64),
    }
