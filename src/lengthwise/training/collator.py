"""From token documents to batches of paired windows, the same ones however the work is cut up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from lengthwise.alignment import PairGeometry, next_token_labels
from lengthwise.errors import UsageError
from lengthwise.text import TokenDocument, WindowSampler
from lengthwise.training.views import VIEWS, ViewName, make_views
from lengthwise.training.views.pair import NO_TARGET, Generators, StepDraw
from lengthwise.training.views.positions import Positions


class WindowDataset(Dataset[dict[str, Any]]):
    """`steps * batch_size` stretches of text; item i is a function of (seed, i) alone.

    What the samples of a step share (the offset e of truncated views, Appendix D; positions) is drawn once for each
    step of `batch_size` items. Read it in order (`SequentialSampler`): then a step is the same however micro-batches
    and processes cut it up, and a resumed run continues with the same windows.

    Args:
        documents: token documents; a stretch never crosses from one into the next.
        length: L, tokens in each view.
        offsets: first and last offset e; each step draws one uniformly. Of truncated views alone.
        batch_size: samples of one optimizer step, over all processes.
        steps: optimizer steps.
        seed: of windows, and of all that is drawn.
        positions: of the views; None is 0 .. L-1.
        views, view_options: a name of VIEWS and its options, the same as the collator's.

    Raises:
        UsageError: no document has the length + e tokens that the largest offset needs; the sampler has no
            positions for this length; views or options that do not exist, or do not fit together.
    """

    def __init__(
        self,
        documents: Sequence[TokenDocument],
        *,
        length: int,
        offsets: tuple[int, int] | None = None,
        batch_size: int,
        steps: int,
        seed: int = 0,
        positions: Positions | None = None,
        views: ViewName = "truncation",
        view_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.batch_size = batch_size
        self.seed = seed
        self.positions = positions
        self._views = make_views(views, view_options, length=length, offsets=offsets, positions=positions)
        self._count = steps * batch_size
        self._sampler = WindowSampler(documents, seed=seed)
        self._sampler.window(0, length + self._views.offsets[1])

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Sample `index`: `input_ids` [length + e] and its step's `draw`."""
        if not 0 <= index < self._count:
            raise IndexError(index)
        draw = self.draw(index // self.batch_size)
        return {"input_ids": self._sampler.window(index, self._views.length + draw.offset), "draw": draw}

    def draw(self, step: int) -> StepDraw:
        """What the samples of optimizer step `step` (0-based) share."""
        return self._views.draw(Generators(self.seed, (step,)))


# Columns of a data set that leave tokens out as targets where they are 0, as TRL writes them.
_MASKS = ("completion_mask", "assistant_masks")
COLUMNS = ("labels", "draw", *_MASKS)
"""What the collator reads of an item beside `input_ids`."""


class PairCollator:
    """Stretches of text to one batch of both views, long rows first.

    A batch has `input_ids` and `labels` [2B, L] (rows 0 .. B-1 are long views, B .. 2B-1 the short views of the
    same samples) and `geometry`, the PairGeometry of its rows: all that the loss needs. Labels are aligned with
    rows: row r has the token after it, the last row of a view -100, because the token after it lies outside
    (Appendix D: each window predicts L - 1 tokens).

    If both views are at positions 0 .. L-1, a model's default, a batch has no `position_ids`. Else it has
    `position_ids` and an `attention_mask` of ones [2B, L].

    An item has `input_ids`, and may have `labels` (token ids or -100, not shifted: transformers' convention),
    `completion_mask` or `assistant_masks` (0 where a token is no target; TRL's) of the same length.

    Args:
        length: L, tokens in each view.
        bos_id: replaces the first token of each view as input, if given; no label changes.
        offsets: first and last offset e of truncated views, for items that no WindowDataset made: each batch draws
            one uniformly, from `seed` and its first tokens, and takes the first length + e tokens of each stretch.
            Without offsets, a stretch has length + e tokens.
        seed: of all that is drawn for such items, and of what a sample has for itself.
        views: a name of VIEWS (`lengthwise ls methods`).
        view_options: their options.
        positions: of the views. A WindowDataset with positions draws them for the whole step; for other data sets
            each batch draws them from `seed` and its first tokens.
        min_context: as in `PairGeometry`; None is L // 2, and 0 for views that do not truncate. An
            AlignmentTrainer with a `min_context` sets it.

    Raises:
        UsageError: views without the positions that they need, or with positions or offsets that they do not take;
            on call, stretches that are shorter than `length` (plus the largest offset) or of several lengths.
    """

    def __init__(
        self,
        length: int,
        *,
        bos_id: int | None = None,
        offsets: tuple[int, int] | None = None,
        seed: int = 0,
        views: ViewName = "truncation",
        view_options: Mapping[str, Any] | None = None,
        positions: Positions | None = None,
        min_context: int | None = None,
    ) -> None:
        self._views = make_views(views, view_options, length=length, offsets=offsets, positions=positions)
        self._truncates = VIEWS[views].truncates
        self.length = length
        self.bos_id = bos_id
        self.offsets = offsets if self._truncates else (0, 0)
        self.seed = seed
        self.positions = positions
        self.min_context = min_context

    def __call__(self, items: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """One batch from items that hold `input_ids` [length + e], the same e in all."""
        draw = self._draw(items)
        size = self.length + draw.offset
        texts = [_tokens_and_targets(item)[:, :size] for item in items]
        pairs = [
            self._views.pair(text, draw, Generators(self.seed, tuple(text[0].tolist())).of("sample"))
            for text in texts
        ]
        rows = torch.from_numpy(np.stack([pair[view] for view in (0, 1) for pair in pairs]))
        inputs = rows[:, 0].clone()
        if self.bos_id is not None:
            # It replaces a token, so that rows of both views correspond with and without it.
            inputs[:, 0] = self.bos_id
        least = self.min_context if self._truncates else max(draw.first, self.min_context or 0)
        batch = {
            "input_ids": inputs,
            "labels": next_token_labels(rows[:, 1]),
            "geometry": PairGeometry(self.length, draw.offset, least),
        }
        return batch | _placed(draw, self.length, len(items))

    def _draw(self, items: Sequence[Mapping[str, Any]]) -> StepDraw:
        """What the items' step has drawn; for items that no WindowDataset made, this batch's own draw."""
        given = [item["draw"] for item in items if "draw" in item]
        if given:
            if len(given) < len(items) or any(not given[0].equals(other) for other in given):
                raise UsageError(
                    "a batch has samples of several optimizer steps, which share no draw",
                    expected="micro-batches that divide the step, read in order",
                )
            return given[0]
        if self.positions is not None and any("position_ids" in item for item in items):
            raise UsageError(
                "samples bring position ids of their own, and the collator is to sample them",
                expected="samples without position_ids",
            )
        first_tokens = np.asarray(items[0]["input_ids"])[: self.length]
        offsets = self._offsets({len(item["input_ids"]) for item in items})
        views = self._views.placed(self.length, offsets, self.positions)
        return views.draw(Generators(self.seed, tuple(first_tokens.astype(np.int64).tolist())))

    def _offsets(self, sizes: set[int]) -> tuple[int, int]:
        """First and last offset that stretches of these sizes are for."""
        least, most = min(sizes), max(sizes)
        if self.offsets is not None and least >= self.length + self.offsets[1]:
            return self.offsets
        if self.offsets is None and least == most >= self.length:
            return least - self.length, least - self.length
        expected = f"one size of {self.length} + e tokens, or offsets that say how to cut them"
        if self.offsets is not None:
            expected = f"at least {self.length + self.offsets[1]} tokens, for the largest offset"
        raise UsageError(
            f"a batch has stretches of {', '.join(map(str, sorted(sizes)))} tokens", expected=expected
        )


def _tokens_and_targets(item: Mapping[str, Any]) -> np.ndarray:
    """[2, n]: the tokens of an item, and those that it may predict, -100 for those it may not."""
    tokens = np.asarray(item["input_ids"])
    targets = np.asarray(item.get("labels", tokens))
    for name in _MASKS:
        if name in item:
            targets = np.where(np.asarray(item[name]) == 0, NO_TARGET, targets)
    return np.stack([tokens, targets]).astype(np.int64)


def _placed(draw: StepDraw, length: int, samples: int) -> dict[str, Tensor]:
    """Position ids and attention mask [2B, L] of `samples` samples; none where both views are at 0 .. L-1.

    The mask is all ones: without it transformers splits each row where its positions jump.
    """
    if draw.long_positions is None and draw.short_positions is None:
        return {}
    both = [
        torch.arange(length) if positions is None else positions
        for positions in (draw.long_positions, draw.short_positions)
    ]
    dtype = torch.promote_types(both[0].dtype, both[1].dtype)
    position_ids = torch.cat([positions.to(dtype).expand(samples, -1) for positions in both])
    return {
        "position_ids": position_ids,
        "attention_mask": torch.ones_like(position_ids, dtype=torch.int64),
    }
