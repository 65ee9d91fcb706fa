"""The picture of the position ids that each sampler draws.

python -m lengthwise.studies.position_draws docs/figures
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from lengthwise.files import atomic_write_text
from lengthwise.positions import POSITION_SAMPLERS, position_sampler
from lengthwise.report.drawing import COLORS, Picture, drawn, picture

LENGTH, TARGET, DRAWS = 60, 240, 16


def draws_picture() -> Picture:
    """Draws of each sampler, one a row, every token at its position."""
    with drawn(height=5.6, panels=(2, 2), share_y=True) as (figure, grid):
        for axes, name in zip(grid.flat, POSITION_SAMPLERS, strict=True):
            # One line with breaks: a mark for each token would make a file of a megabyte.
            places, rows = [], []
            for row in range(DRAWS):
                positions = position_sampler(name).draw(np.random.default_rng([0, row]), LENGTH, TARGET)
                for run in np.split(positions.numpy(), np.flatnonzero(positions.diff() != 1) + 1):
                    places += [run[0] - 0.4, run[-1] + 0.4, np.nan]
                    rows += [row + 1, row + 1, np.nan]
            axes.plot(places, rows, color=COLORS[0], linewidth=4, solid_capstyle="butt")
            axes.axvline(LENGTH - 0.5, color="#999999", linewidth=0.8, linestyle=":")
            axes.set_title(name)
            axes.set_xticks([0, LENGTH, 2 * LENGTH, 3 * LENGTH, TARGET])
            axes.set_yticks([1, DRAWS // 2, DRAWS])
            axes.set_xlim(-4, TARGET + 4)
        for axes in grid[-1]:
            axes.set_xlabel("position id")
        for row in grid:
            row[0].set_ylabel("draw")
        return picture(
            figure,
            name="position-draws",
            title=f"Position ids of windows of {LENGTH} tokens, target length {TARGET}",
            alt=(
                f"{DRAWS} draws of each sampler, a row of marks for each. random_positions spreads evenly over "
                f"0 to {TARGET - 1}. pose has one unbroken chunk from 0 and one after a gap. cream has a head at 0, "
                f"a tail that ends at {TARGET - 1} and an unbroken chunk between. clex_positions spreads evenly "
                f"over one, two, three or four times {LENGTH} positions."
            ),
            caption=f"The dotted line is where the window would end at consecutive positions ({LENGTH}).",
        )


def write_picture(folder: Path) -> Path:
    """Draw the picture into `folder`; returns the file."""
    drawing = draws_picture()
    path = folder / f"{drawing.name}.svg"
    atomic_write_text(path, drawing.svg)
    return path


if __name__ == "__main__":
    print(write_picture(Path(sys.argv[1])))
