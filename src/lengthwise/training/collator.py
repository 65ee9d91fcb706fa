"""From token documents to batches of paired windows, the same ones however the work is cut up."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from lengthwise.alignment import PairGeometry, next_token_labels
from lengthwise.alignment.divergences import NO_LABEL
from lengthwise.errors import UsageError, require, require_integer, require_kind, shown
from lengthwise.text import TokenDocument, WindowSampler
from lengthwise.training.columns import CUT, MASKS, WHOLE_ROWS, check_columns
from lengthwise.training.views import View, last_offset

if TYPE_CHECKING:
    from lengthwise.training.views import Draw

logger = logging.getLogger(__name__)


class WindowDataset(Dataset[dict[str, Any]]):
    """`steps * batch_size` stretches of text; item i is a function of (seed, i) alone.

    What the samples of a step share (the offset of truncated views, positions) is drawn once for each step of
    `batch_size` items. Read it in order (`SequentialSampler`): then a step is the same however micro-batches and
    processes cut it up, and a resumed run continues with the same windows.

    Args:
        documents: token documents; a stretch never crosses from one into the next.
        view: how the windows are made; give the collator the same one.
        batch_size: samples of one optimizer step, over all processes.
        steps: optimizer steps.
        seed: of windows, and of all that is drawn.

    Raises:
        UsageError: no document has the length + e tokens that the largest offset needs.
    """

    def __init__(
        self, documents: Sequence[TokenDocument], view: View, *, batch_size: int, steps: int, seed: int = 0
    ) -> None:
        require_kind("view", view, View, "a View, as View(1024, offsets=(1, 511))")
        for name, value in {"batch_size": batch_size, "steps": steps}.items():
            require_integer(name, value, low=1, unit=name)
        self.view = view
        self.batch_size = batch_size
        self.seed = seed
        self._steps = steps
        self._sampler = WindowSampler(documents, seed=seed)
        self._sampler.window(0, view.longest_stretch)

    def __len__(self) -> int:
        return self._steps * self.batch_size

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Sample `index`: `input_ids` [length + e], and `draw`: its step, what that has drawn, and the view."""
        if not 0 <= index < len(self):
            raise IndexError(index)
        step = index // self.batch_size
        geometry, positions = self.view.draw(self.seed, [step])
        stretch = self._sampler.window(index, geometry.stretch_length)
        return {"input_ids": stretch, "draw": (step, (geometry, positions), self.view)}


class PairCollator:
    """Stretches of text to one batch of both views, long rows first.

    A batch has `input_ids` and `labels` [2B, L] (rows 0 .. B-1 are long views, B .. 2B-1 the short views of the
    same samples) and `geometry`, the PairGeometry of its rows: all that the loss needs. Labels are aligned with
    rows: row r has the token after it, the last row of a view -100, because the token after it lies outside
    (Appendix D: each window predicts L - 1 tokens). Unless both views are at positions 0 .. L-1, a model's default, a
    batch also has `position_ids` and an `attention_mask` of ones [2B, L]: without the mask transformers splits each
    row where its positions jump.

    An item has `input_ids`, and may have `labels` (token ids or -100, not shifted: transformers' convention),
    `completion_mask` or `assistant_masks` (0 where a token is no target; TRL's) of the same length. Columns that
    change what a token sees (padding, packed texts) are refused, unless they say that the stretch is one text;
    columns of words are left out. Items that no WindowDataset made share the draw of their batch, a function of
    `seed` and its first tokens. Their stretches have length + the last offset tokens (`pair_windows` makes them of
    any data set); where e is smaller, the last ones are not read. A truncated view without offsets has e = stretch
    - length, which has to leave a pair.

    Args:
        view: how the windows are made.
        bos_id: replaces the first token of each view as input, if given; no label changes.
        seed: of all that is drawn for such items, and of what a sample has for itself.

    Raises:
        UsageError: on call, stretches of another size, so too short or to be cut, or of several sizes; columns that
            change what a token sees; items of a WindowDataset with another view.
    """

    def __init__(self, view: View, *, bos_id: int | None = None, seed: int = 0) -> None:
        require_kind("view", view, View, "a View, as View(1024)")
        if bos_id is not None:
            require_integer("bos_id", bos_id, low=0, unit="a token")
        require_integer("seed", seed, low=0, unit="a seed")
        self.view = view
        self.bos_id = bos_id
        self.seed = seed
        self._named: set[str] = set()

    def __call__(self, items: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """One batch from items that hold `input_ids`."""
        if left_out := check_columns(items) - self._named:
            self._named |= left_out
            logger.warning("columns that no window has: %s", ", ".join(sorted(left_out)))
        require(len(items) > 0, "a batch of no samples", "at least one")
        texts = [tokens_and_targets(item) for item in items]
        geometry, positions = draw = self._draw(items, texts[0][0])
        # [2 views, B, tokens and targets, L]
        windows = [self.view.windows(text, draw, self.seed) for text in texts]
        rows = torch.from_numpy(np.stack(windows, axis=1)).flatten(0, 1)
        inputs = rows[:, 0].clone()
        if self.bos_id is not None:
            # It replaces a token, so that rows of both views correspond with and without it.
            inputs[:, 0] = self.bos_id
        batch = {"input_ids": inputs, "labels": next_token_labels(rows[:, 1]), "geometry": geometry}
        if positions is not None:
            batch["position_ids"] = positions.repeat_interleave(len(items), dim=0)
            batch["attention_mask"] = torch.ones_like(inputs)
        return batch

    def _draw(self, items: Sequence[Mapping[str, Any]], first: np.ndarray) -> Draw:
        """The draw of the items' step; for items that no WindowDataset made, that of this batch by its first text."""
        drawn = [item.get("draw", (None, None, None)) for item in items]
        if len({step for step, *_ in drawn}) > 1:
            raise UsageError(
                "a batch has samples of several steps", expected="micro-batches that divide a step, in order"
            )
        if "draw" in items[0]:
            _, draw, view = drawn[0]
            self.view.check_takes(view)
            return draw
        if self.view.positions is not None and any("position_ids" in item for item in items):
            raise UsageError("samples have position ids, and the collator samples them", fix="leave them out")
        size = self.check_sizes([len(item["input_ids"]) for item in items])
        offsets = self.view.offsets or (size - self.view.length, size - self.view.length)
        return self.view.draw(self.seed, first[: self.view.length].tolist(), offsets)

    def check_sizes(self, sizes: Sequence[int]) -> int:
        """The size of all stretches; UsageError for several sizes, or one that makes no pair of the view."""
        least = self.view.longest_stretch
        fixed = self.view.offsets is not None
        wrong = next((size for size in sizes if size < least or size != (least if fixed else sizes[0])), None)
        if wrong is not None:
            other = next((size for size in sizes if size != wrong), None)
            several = "" if other is None else f", others {other}"
            exact = f"{least} in each: length + the last offset"
            some = f"one size of {least} or more, or offsets"
            raise UsageError(
                f"stretches have {wrong} tokens{several}",
                expected=exact if fixed else some,
                fix=CUT,
            )
        if not fixed and sizes[0] == self.view.length:
            raise UsageError(
                f"rows have {sizes[0]} tokens, and so has a window: both windows of a pair are the same",
                expected="rows of length + offset",
                fix=CUT,
            )
        apart = sizes[0] - self.view.length
        last = last_offset(self.view.name, self.view.length, self.view.min_context)
        if not fixed and apart > last:
            raise UsageError(
                f"rows have {sizes[0]} tokens: windows of {self.view.length} that begin {apart} apart have no pair",
                expected=f"{last} apart or less, by offsets of the view, or a smaller min_context",
                fix=CUT,
            )
        return sizes[0]


def tokens_and_targets(item: Mapping[str, Any]) -> np.ndarray:
    """[2, n]: the tokens of an item, and those that it may predict, -100 for those it may not."""
    tokens = targets = _whole(item["input_ids"], "input_ids", least=0)
    for name in ("labels", *MASKS):
        if item.get(name) is None:
            continue
        given = _whole(
            item[name], name, least=0 if name in MASKS else NO_LABEL, most=1 if name in MASKS else None
        )
        require(
            given.shape == tokens.shape,
            f"{name} of a sample has the shape {given.shape}, its input_ids {tokens.shape}",
            "one value a token",
        )
        targets = given if name == "labels" else np.where(given == 0, NO_LABEL, targets)
    return np.stack([tokens, targets])


def _whole(values: Any, name: str, *, least: int, most: int | None = None) -> np.ndarray:
    """A column as whole numbers from `least` to `most`; UsageError for others, which would be cut off silently."""
    given = np.asarray(values)
    whole = given.astype(np.int64) if given.dtype.kind in "iub" else None
    if given.dtype.kind == "f" and bool(np.isfinite(given).all()) and not (given % 1).any():
        whole = given.astype(np.int64)
    if whole is None or (whole.size and (whole.min() < least or (most is not None and whole.max() > most))):
        raise UsageError(
            f"{name} of a sample is {shown(values)}",
            expected=f"whole numbers from {least}" + ("" if most is None else f" to {most}"),
        )
    return whole


def check_batch(
    input_ids: Tensor,
    labels: Tensor,
    *,
    geometry: PairGeometry,
    attention_mask: Tensor | None = None,
    position_ids: Tensor | None = None,
) -> None:
    """Refuse rows [2B, L] that are several texts or have padding, and labels that say other rows than `geometry`.

    A label is the token after its row, and paired rows have the same. Tokens may be changed on purpose, so
    UsageError where fewer than half of them agree.
    """
    wrong = None
    if attention_mask is not None and (attention_mask.ndim != 2 or bool((attention_mask != 1).any())):
        wrong = "an attention_mask that is not 1 at every token"
    if position_ids is not None and (
        position_ids.ndim != 2 or bool((position_ids.sort(dim=1).values.diff(dim=1) == 0).any())
    ):
        wrong = "position_ids that occur twice in a row"
    if wrong:
        raise UsageError(
            f"a batch holds {wrong}: its rows are several texts, or have padding",
            expected="rows of one text each, without padding",
            fix=WHOLE_ROWS,
        )
    if input_ids.shape != labels.shape or len(labels) % 2 or labels.shape[1] != geometry.length:
        # The loss says so.
        return
    long, short = labels.chunk(2)
    for one, other, problem, expected in (
        (
            labels[:, :-1],
            input_ids[:, 1:],
            "most labels are not the token after their row",
            "labels aligned with rows: next_token_labels(input_ids)",
        ),
        (
            long[:, geometry.long_rows],
            short[:, geometry.short_rows],
            "most paired rows of the long and the short windows have different labels",
            f"the long windows first, then the short ones, which begin {geometry.offset} tokens later",
        ),
    ):
        known = (one != NO_LABEL) & (other != NO_LABEL)
        same, of = torch.stack([((one == other) & known).sum(), known.sum()]).tolist()
        if 2 * same < of:
            raise UsageError(
                f"{problem} ({of - same} of {of})", expected=expected, fix="PairCollator makes such batches"
            )
