"""The pictures of docs/definitions/methods.md: rope methods' frequencies and samplers' position ids.

python -m tools.docs.method_pictures docs/figures
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from lengthwise.files import atomic_write_text
from lengthwise.positions import POSITION_SAMPLERS, ROPE_METHODS, position_sampler, rope_method
from lengthwise.positions.rope import Rope, turning_dimension
from lengthwise.report.drawing import COLORS, DASHES, Curve, Picture, drawn, legend_below, picture

THETA, HEAD_DIM, ORIGINAL, FACTOR = 10000.0, 64, 4096, 4.0

# LongRoPE has no frequencies before a search; EABF has those of ABF.
_LEFT_OUT = ("longrope", "eabf")
_LABELS = {
    "abf": "abf, eabf",
    "dynamic_ntk": "dynamic_ntk at 16384 tokens",
    "clex": "clex, untrained, at 16384 tokens",
}


def frequencies_picture() -> Picture:
    """Each method's frequencies as a share of plain rope's, by dimension."""
    rope = Rope(THETA, HEAD_DIM, ORIGINAL, FACTOR)
    plain = rope.frequencies().float()
    curves = [
        Curve(
            label=_LABELS.get(name, name),
            x=list(range(HEAD_DIM // 2)),
            y=(rope_method(name)(rope).frequencies.float() / plain).tolist(),
            style=index,
        )
        for index, name in enumerate(name for name in ROPE_METHODS if name not in _LEFT_OUT)
    ]
    with drawn(height=3.6, legend=curves) as (figure, grid):
        axes = grid[0][0]
        for curve in curves:
            axes.plot(
                curve.x,
                curve.y,
                color=COLORS[curve.style % len(COLORS)],
                linestyle=DASHES[curve.style // len(COLORS)],
                label=curve.label,
            )
        axes.set_yscale("log", base=2)
        axes.yaxis.set_major_formatter(lambda value, _: _share(value))
        axes.set_xlabel("pair of dimensions k (fast frequencies left, slow ones right)")
        axes.set_ylabel("frequency / that of plain rope")
        for rotations in (32, 1):
            k = turning_dimension(rotations, THETA, HEAD_DIM, ORIGINAL)
            axes.axvline(k, color="#999999", linewidth=0.8, linestyle=":")
            turns = "turns" if rotations > 1 else "turn"
            axes.annotate(
                f"{rotations} {turns} in {ORIGINAL} tokens",
                (k, axes.get_ylim()[0] * 1.08),
                rotation=90,
                ha="right",
                va="bottom",
                fontsize=7.5,
                color="#777777",
            )
        legend_below(figure, axes)
        return picture(
            figure,
            name="rope-frequencies",
            title=f"What each rope method does to the frequencies, factor {FACTOR:g}",
            alt="Frequency relative to plain rope, from the fastest to the slowest: "
            + "; ".join(f"{curve.label} {_share(curve.y[0])} to {_share(curve.y[-1])}" for curve in curves)
            + ".",
            caption=(
                f"d = {HEAD_DIM}, theta = {THETA:g}, original length {ORIGINAL}. 1 leaves a frequency as it is, "
                f"1/{FACTOR:g} keeps its angles over the extended context within those that were trained."
            ),
        )


def _share(value: float) -> str:
    """1, 1/4, or 0."""
    inverse = round(1 / value) if value else None
    return "0" if inverse is None else "1" if inverse == 1 else f"1/{inverse}"


LENGTH, TARGET, DRAWS = 60, 240, 16


def draws_picture() -> Picture:
    """Draws of each sampler, one a row, every token at its position."""
    with drawn(height=7.6, panels=(3, 2), share_y=True) as (figure, grid):
        grid[-1][-1].axis("off")
        for axes, name in zip(grid.flat, POSITION_SAMPLERS, strict=False):
            # One line with breaks: a mark for each token would make a file of a megabyte.
            places, rows = [], []
            for row in range(DRAWS):
                positions = position_sampler(name)(np.random.default_rng([0, row]), LENGTH, TARGET)
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
                f"0 to {TARGET - 1}. pose and skip have one unbroken chunk from 0 and one after a gap, in the first "
                f"half (pose) or anywhere (skip). cream has a head at 0, a tail that ends at {TARGET - 1} and an "
                "unbroken chunk between. clex_positions spreads evenly over one, two, three or four times "
                f"{LENGTH} positions."
            ),
            caption=f"The dotted line is where the window would end at consecutive positions ({LENGTH}).",
        )


def write_pictures(folder: Path) -> list[Path]:
    """Draw both pictures into `folder`; returns the files."""
    paths = []
    for drawing in (frequencies_picture(), draws_picture()):
        paths.append(folder / f"{drawing.name}.svg")
        atomic_write_text(paths[-1], drawing.svg)
    return paths


if __name__ == "__main__":
    print(*write_pictures(Path(sys.argv[1])), sep="\n")
