"""The gallery of docs/use/faults.md: faults of the lab planted in `tiny-books`, as `compare` sees them by position.

python -m tools.docs.fault_pictures docs/figures
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from checks.lab.judged import compared
from checks.lab.sides import Base, loaded
from checks.lab.table import PAIRS
from lengthwise.files import atomic_write_text
from lengthwise.report.drawing import Picture, curve_picture, curves_of, token_axis
from lengthwise.subjects import load

SHOWN = {
    "equal: another attention kernel": ("sound", "tiny-books: eager for sdpa, float32"),
    "the same at all positions: weights in 4 bits": ("weights", "weights in 4 bits"),
    "in the first tokens: BOS on one side": ("input", "B's tokenizer adds BOS"),
    "from a position on: a window of 192 tokens": ("mask", "a window of 192 for none"),
    "more further on: another rope base": ("rope", "base 15,000 for 10,000"),
    "and equal again: noise from 192 to 256": ("pattern", "noise from token 192 to 256"),
}
"""Heading of a panel -> kind and words of a pair."""


def gallery() -> Picture:
    """The difference of the two sides by position, a panel each."""
    model = load("tiny-books", dtype="float32")
    base = Base(loaded(model.model, model, kept=True))
    panels = {}
    for heading, (kind, what) in SHOWN.items():
        [pair] = [pair for pair in PAIRS[kind] if pair.what == what]
        found = compared(pair, replace(base, opened=ExitStack()), "books")
        rows = [row for row in found.rows if row.metric == "difference" and row.position is not None]
        panels[heading] = curves_of(
            [replace(row, model="mean |difference|, with its 95 % interval") for row in rows],
            lambda row: ((row.position or 0) + (row.position_end or 0)) / 2,
        )
    drawn = curve_picture(
        panels,
        name="fault-curves",
        title="What compare sees of planted faults",
        across="position in the window",
        up="nats per token",
        caption="",
        columns=2,
        dress=lambda axes, _, x: token_axis(axes, x, ticks=5),
    )
    assert drawn is not None
    return drawn


if __name__ == "__main__":
    path = Path(sys.argv[1]) / "fault-curves.svg"
    atomic_write_text(path, gallery().svg + "\n")
    print(path)
