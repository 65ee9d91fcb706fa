"""How the two windows of a training sample are made: the table of views, and their draws. Torch loads on first use.

To add a view, add its entry here, and its draw in `View.draw`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import numpy as np
from annotated_types import Ge, Le
from pydantic import Field, model_validator

from lengthwise.alignment.divergences import NO_LABEL
from lengthwise.errors import UsageError, require, require_integer, require_kind, require_known
from lengthwise.positions import position_sampler
from lengthwise.settings import Finite, Settings, Whole, checked, options_of

if TYPE_CHECKING:
    from torch import Tensor

    from lengthwise.alignment import PairGeometry

    Draw = tuple[PairGeometry, Tensor | None]
    """The paired rows, and the position ids [2, L] of the long and the short window; None is 0 .. L - 1 for both."""

ViewName = Literal["truncation", "gap", "cyclic", "repeat"]

VIEWS: dict[ViewName, tuple[str, str]] = {
    "truncation": (
        "the paper's: the same end of a text with more and with less context",
        "predictions that do not change when far context is cut off, so also a model that ignores it",
    ),
    "gap": (
        "the same tokens at consecutive positions (long) and at sampled ones (short)",
        "predictions that do not change with distance; blind to tokens that need no far context",
    ),
    "cyclic": (
        "the same tokens at consecutive positions and at positions rotated by a random step",
        "predictions that follow the order of the text, whatever the positions; blind beyond the window",
    ),
    "repeat": (
        "gap views in which some windows repeat an earlier passage behind the largest gap",
        "copying across the gap; limit measures copying too, so judge by other tasks",
    ),
}
"""What each view is, and what agreement of its windows rewards; "long" is the first window, "short" the second."""

Tokens = Annotated[Whole, Ge(1), Le(10**8)]
# Each draw has a random stream of its own, so that a new draw does not move the others.
_STREAMS = {"offset": 4, "positions": 5, "place": 6, "sample": 7}
_LEAST = 8


class Positions(Settings):
    """Train at position ids of a longer context. One draw per step, shared by all its samples."""

    sampler: str
    """A position sampler of `lengthwise ls methods`."""
    target_length: Tokens
    """T in tokens: the positions that the windows are to cover, more than `length`."""
    options: dict[str, Any] = Field(default_factory=dict)
    """The sampler's options."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        position_sampler(self.sampler, self.options)
        return self


class View:
    """How the two windows of a training sample are made from one stretch of text.

    - `truncation` (Sec. 4.2): long is text[0 : L], short is text[e : e + L], with one e ~ U{offsets} for a step
      (Appendix D). With sampled positions both windows are at the same ones. They agree best if far context is
      ignored, so agreement alone does not reward its use.
    - `gap`: both are text[0 : L], long at 0 .. L - 1, short at the positions of a sampler. Rows from the first gap on
      are paired. LongReD (ACL 2025) distils so by hidden states, RoPE-perturbed self-distillation (arXiv 2604.14339)
      by KL(student || teacher); with cross entropy alone this is PoSE.
    - `cyclic` (arXiv 2604.14339): token i of short is at (i + u) mod L, with u ~ U{1 .. L - 1} for a step. The first
      L - u tokens keep their distances; only rows from L - u on are paired.
    - `repeat`: `gap`, with repeats (`plant_repeat` has the options).

    Args:
        length: L, tokens in each window.
        name: a name of VIEWS.
        options: of `repeat`.
        offsets: first and last e of `truncation`. None: 0, or for a `PairCollator` all that a stretch has beyond L.
        positions: what samples positions; None is 0 .. L - 1.
        min_context: least context of a paired token in the short window; None is L // 2 for `truncation`
            (Appendix D) and 0 for the others, which pair no row before the one where their windows begin to differ.

    Raises:
        UsageError: no such view or option; positions or offsets that are missing, or that the view cannot have; a
            min_context that leaves no row; a sampler that has no positions for this length.
    """

    def __init__(
        self,
        length: int,
        name: ViewName = "truncation",
        options: Mapping[str, Any] | None = None,
        *,
        offsets: tuple[int, int] | None = None,
        positions: Positions | None = None,
        min_context: int | None = None,
    ) -> None:
        require_known(name, VIEWS, "unknown views")
        for what, value, kind in (
            ("options", options, Mapping),
            ("offsets", offsets, Sequence),
            ("positions", positions, Positions),
        ):
            if value is not None:
                require_kind(what, value, kind, f"a {kind.__name__}")
        sampler = "a sampler, as in positions: {sampler: skip, target_length: 8192}"
        require(
            positions is not None or name not in ("gap", "repeat"), f"{name} views without positions", sampler
        )
        require(positions is None or name != "cyclic", "cyclic views with a sampler", "their own positions")
        begin = "none: both views begin at the same token"
        require(offsets is None or name == "truncation", f"{name} views with offsets {offsets}", begin)
        require_integer("length", length, low=2, high=10**8)
        if offsets is not None:
            for each in offsets:
                require_integer(f"one of offsets {offsets}", each, low=0, high=length)
            in_order = len(offsets) == 2 and offsets[0] <= offsets[1]
            require(in_order, f"offsets {offsets}", f"0 <= first <= last <= {length}")
        if min_context is not None:
            require_integer("min_context", min_context, low=0, high=length - 1)
        if offsets is not None:
            last = last_offset(name, length, min_context)
            pairless = (
                f"offsets {offsets}: windows of {length} tokens that begin {offsets[1]} apart have no pair"
            )
            require(offsets[1] <= last, pairless, f"offsets within 0 to {last}, or a smaller min_context")
        kind = options_of(plant_repeat) if name == "repeat" else Settings
        self.options = dict(checked(kind, options or {}, source=f"the options of {name} views"))
        self.length, self.name, self.positions = length, name, positions
        self.offsets = (0, 0) if name != "truncation" else None if offsets is None else (*offsets,)
        self.min_context = min_context
        self.draw(0, [0])

    @property
    def longest_stretch(self) -> int:
        """Tokens of text that a sample needs at most: length + the last offset."""
        return self.length + (self.offsets or (0, 0))[1]

    def draw(self, seed: int, key: Iterable[int], offsets: tuple[int, int] | None = None) -> Draw:
        """What all samples of an optimizer step share: a function of the seed and the key.

        The key is the step, or the first tokens of a batch. `offsets` take the place of the view's own.
        """
        import torch

        from lengthwise.alignment import PairGeometry
        from lengthwise.positions.samplers import first_gap

        key, rows = [*key], torch.arange(self.length)
        least = least_context(self.name, self.length, self.min_context)
        sampled = None
        if (given := self.positions) is not None:
            draw = position_sampler(given.sampler, given.options)
            sampled = draw(_generator("positions", seed, key), self.length, given.target_length)
        if self.name == "truncation":
            low, high = offsets or self.offsets or (0, 0)
            offset = int(_generator("offset", seed, key).integers(low, high + 1))
            both = None if sampled is None else sampled.expand(2, -1)
            return PairGeometry(self.length, offset, least), both
        if sampled is None:
            step = int(_generator("place", seed, key).integers(1, self.length))
            sampled, first = (rows + step) % self.length, self.length - step
        else:
            first = first_gap(sampled)
        geometry = PairGeometry(self.length, 0, max(first, least))
        return geometry, torch.stack([rows.to(sampled.dtype), sampled])

    def check_takes(self, drawn: View) -> None:
        """Raise UsageError unless this view can make windows of what `drawn` has drawn.

        Both are the same, but what this one leaves to the other: offsets, positions or min_context of None.
        """
        for name in ("length", "name", "options", "offsets", "positions", "min_context"):
            own, other = getattr(self, name), getattr(drawn, name)
            if own not in (None, other):
                raise UsageError(
                    f"{name} of the view is {own!r} in the collator and {other!r} in the data set",
                    expected="one value",
                    fix="give both the same View",
                )

    def windows(self, text: np.ndarray, draw: Draw, seed: int) -> np.ndarray:
        """Tokens and targets of the long and the short window [2, 2, L], from those of a stretch [2, L + e or more].

        At paired rows both windows have the same next token as target. `seed` is that of what the sample draws for
        itself, with its tokens.
        """
        from lengthwise.positions.samplers import largest_gap

        geometry, positions = draw
        text = text[:, : geometry.stretch_length]
        if self.name == "repeat":
            assert positions is not None
            own = _generator("sample", seed, text[0].tolist())
            text = plant_repeat(text, largest_gap(positions[1]), own, **self.options)
        return np.stack([text[:, geometry.long_tokens], text[:, geometry.short_tokens]])


def least_context(name: str, length: int, given: int | None) -> int:
    """The `min_context` of a view with its default filled in."""
    default = length // 2 if name == "truncation" else 0
    return default if given is None else given


def last_offset(name: str, length: int, min_context: int | None) -> int:
    """The last offset that leaves a pair: 0 < length - offset - min_context."""
    return length - least_context(name, length, min_context) - 1


def plant_repeat(
    text: np.ndarray,
    gap: int,
    generator: np.random.Generator,
    *,
    share: Annotated[Finite, Ge(0), Le(1)] = 0.5,
    passage: Annotated[Whole, Ge(_LEAST), Le(10**8)] = 64,
    place: Literal["end", "anywhere"] = "end",
    source: Literal["before", "anywhere"] = "before",
) -> np.ndarray:
    """The text with a passage repeated behind row `gap`: near in the long view, far in the short one.

    Of several gaps the largest counts. The passage is text[s : s + m] with s + m <= the gap (but see `source`), and
    overwrites m tokens behind it. m is `passage`, or what fits on either side of the gap; a repeat of fewer than 8
    tokens teaches nothing, because its first ones cannot be known to be one, so then there is none. The first token
    of the repeat and the one after it are no targets, because nothing before them predicts them.

    Args:
        text: tokens and targets [2, L].
        gap: the row before which the passage is, and behind which the repeat.
        generator: the only source of randomness.
        share: share of the windows that get a repeat.
        passage: tokens of the passage, m, at most.
        place: where behind the gap the repeat begins: so that it ends the window, or uniformly.
        source: where the passage is from: before the gap, or anywhere before the repeat, so that distance does not
            tell.
    """
    length = text.shape[1]
    size = min(passage, gap, length - gap)
    chosen = generator.random() < share
    if not chosen or size < _LEAST:
        return text
    last = length - size
    start = last if place == "end" else int(generator.integers(gap, last + 1))
    before = gap if source == "before" else start
    first = int(generator.integers(0, before - size + 1))
    planted = text.copy()
    planted[:, start : start + size] = text[:, first : first + size]
    planted[1, [start, *range(start + size, min(start + size + 1, length))]] = NO_LABEL
    return planted


def _generator(purpose: str, seed: int, key: Iterable[int]) -> np.random.Generator:
    return np.random.default_rng([seed, _STREAMS[purpose], *key])
