"""The ways in which the two views of a training sample differ, one file each. The table needs no torch.

To add one: its file with a class of `Views`, and its entry here.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from lengthwise.errors import UsageError, nearest

if TYPE_CHECKING:
    from lengthwise.training.views.pair import Views
    from lengthwise.training.views.positions import Positions

ViewName = Literal["truncation", "gap", "cyclic", "repeat"]


@dataclass(frozen=True, kw_only=True)
class ViewEntry:
    """What recipes and users need to know of a pair of views. "long" is the first view, "short" the second."""

    home: str
    """`file.Class` beside this one."""
    what: str
    """One sentence for `lengthwise ls methods`."""
    rewards: str
    """What agreement of the two views rewards, and when it is blind."""
    positions: Literal["optional", "required", "own"] = "required"
    """Whether a position sampler places the views; "own": they have their own positions."""
    truncates: bool = False
    """Whether the short view starts later in the text, by an offset: only then are there offsets to draw."""


VIEWS: dict[ViewName, ViewEntry] = {
    "truncation": ViewEntry(
        home="truncation.Truncation",
        what="the paper's: the same end of a text with more and with less context",
        rewards="predictions that do not change when far context is cut off, so also a model that ignores it",
        positions="optional",
        truncates=True,
    ),
    "gap": ViewEntry(
        home="gap.Gap",
        what="the same tokens at consecutive positions (long) and at sampled ones (short)",
        rewards="predictions that do not change with distance; blind to tokens that need no far context",
    ),
    "cyclic": ViewEntry(
        home="cyclic.Cyclic",
        what="the same tokens at consecutive positions and at positions rotated by a random step",
        rewards="predictions that follow the order of the text, whatever the positions; blind beyond the window",
        positions="own",
    ),
    "repeat": ViewEntry(
        home="repeat.Repeat",
        what="gap views in which some windows repeat an earlier passage behind the largest gap",
        rewards="copying across the gap; recall and limit measure copying too, so judge by other tasks",
    ),
}


def make_views(
    name: str,
    options: Mapping[str, Any] | None = None,
    *,
    length: int,
    offsets: tuple[int, int] | None = None,
    positions: Positions | None = None,
) -> Views:
    """The views `name` of VIEWS.

    Args:
        name: a name of VIEWS.
        options: the fields of its class.
        length: L, tokens in each view.
        offsets: first and last offset e; of truncated views alone.
        positions: what samples positions; None is 0 .. L-1.

    Raises:
        UsageError: no such views; an option that they do not have, or one of the wrong type or out of range; views
            without the positions that they need, or with positions or offsets that they do not take; a sampler that
            has no positions for this length.
    """
    if name not in VIEWS:
        raise UsageError(f"unknown views {name!r}", expected=nearest(name, VIEWS))
    entry = VIEWS[name]
    if entry.positions == "required" and positions is None:
        raise UsageError(
            f"{name} views without positions: both views would be the same",
            expected="a sampler, as in positions: {sampler: skip, target_length: 8192}",
        )
    if entry.positions == "own" and positions is not None:
        raise UsageError(f"{name} views with a sampler of positions", expected="none: they have their own")
    if not entry.truncates and offsets is not None:
        raise UsageError(
            f"{name} views with offsets {list(offsets)}",
            expected="none: both views begin at the same token",
        )
    from lengthwise.training.views.pair import Generators

    file, _, kind = entry.home.partition(".")
    made: Views = getattr(importlib.import_module(f"{__name__}.{file}"), kind).parse(
        options or {}, source=f"the options of {name} views"
    )
    views = made.placed(length, offsets or (0, 0), positions)
    views.draw(Generators(0, (0,)))
    return views
