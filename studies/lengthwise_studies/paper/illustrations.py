"""Figure 2 and Table 8, the illustrations: how two windows of a sample overlap, what both kinds of task share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lengthwise.alignment import PairGeometry
from lengthwise.report.drawing import COLORS, Picture, drawn, picture
from lengthwise.report.html import Section
from lengthwise.report.tables import Cell, Table
from lengthwise.results import Results, Row
from lengthwise_studies.computed import computed
from lengthwise_studies.skeleton import Part, Study

READINGS = {"App. D": None, "Sec. 4.2": 0}
"""How many tokens are compared: those with L/2 tokens of context in both windows, or all that both share."""
TABLE8 = Table(
    columns=["", "synthetic tasks (Sec. 3)", "natural language (Sec. 4)"],
    rows=[
        ["output", "a number", "a distribution over the vocabulary"],
        [
            "what shifts with length",
            "the set of right answers",
            "the predictions, by the context that is cut",
        ],
        ["remedy", "another target, f(y), known in advance", "a term in the loss"],
        ["what it acts on", "the task", "the model"],
        ["here", "`reproduce section3`", "`reproduce table2` and the others"],
    ],
    caption="Table 8: what the two halves of the paper share, in our words",
    notes=["Aligning the synthetic tasks with the term does not help them: `reproduce alignment`."],
)


def _compared(scale: PairGeometry) -> Iterator[Row]:
    """The number of compared tokens for every offset."""
    row: dict[str, Any] = {
        "model": "none",
        "task": "geometry",
        "metric": "paired_positions",
        "unit": "tokens",
    }
    for reading, floor in READINGS.items():
        for offset in range(1, scale.length // 2 + 1):
            count = PairGeometry(scale.length, offset, floor).paired_positions
            yield Row(**row, value=count, length=scale.length, distance=offset, arm=reading)


def sections(results: Results, folder: Path) -> list[Section]:
    """The picture of the windows, the counts, and Table 8."""
    length = results.config["scale"]["length"]
    counts: dict[int | None, list[Cell]] = {}
    for row in results.rows:
        counts.setdefault(row.distance, [row.distance]).append(row.value)
    caption = "Tokens that are compared, of each sample"
    return [
        Section(
            title="Figure 2: two windows of one text",
            paragraphs=[
                f"A sample is a stretch of L + e tokens. The long window is its first L = {length} tokens, the short "
                "one its last; both are read from position 0. At a token that both hold, the long window has e more "
                "tokens of context. Eq. 2 compares lengths from L/2 to L, so Appendix D compares only tokens with "
                "L/2 tokens of context in the short window; Sec. 4.2 compares all that both share. The last offset "
                "that Sec. 4.2 draws, L/2, leaves Appendix D nothing to compare.",
            ],
            tables=[Table(columns=["e", *READINGS], rows=list(counts.values()), caption=caption), TABLE8],
            figures=[windows_picture(PairGeometry(length, length // 4))],
        )
    ]


def windows_picture(windows: PairGeometry) -> Picture:
    """Both windows over the tokens of a stretch, with the compared tokens marked."""
    length, offset = windows.length, windows.offset
    bars = ((windows.long_tokens, windows.long_rows), (windows.short_tokens, windows.short_rows))
    with drawn(height=1.9) as (figure, grid):
        axes = grid[0][0]
        for line, (tokens, paired) in enumerate(bars):
            axes.barh(-line, length, left=tokens.start, height=0.6, color=COLORS[0], alpha=0.25)
            left, width = tokens.start + paired.start, paired.stop - paired.start
            axes.barh(-line, width, left=left, height=0.6, color=COLORS[0])
        axes.set_yticks([0, -1], ["long", "short"])
        axes.set_xlabel("token of the stretch")
        return picture(
            figure,
            name="figure2-windows",
            title="The two windows of a sample",
            alt=f"Two bars of {length} tokens, the second {offset} tokens later; {windows.paired_positions} tokens "
            "in the same columns are marked in both.",
            caption="Dark: the tokens that are compared.",
        )


# Scales are the windows of the picture. The table counts every offset.
_SCALES = {"default": PairGeometry(length=16, offset=4), "smoke": PairGeometry(length=8, offset=2)}
_RUN = computed("figure2", _compared, model_name="none", notes=lambda scale: ())
FIGURE2 = Study(
    title="Figure 2: how the two windows of a sample overlap",
    parts=(Part(run=_RUN, sections=sections, scales=_SCALES),),
)
