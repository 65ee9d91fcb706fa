"""When does the term help? Each setting by how sure its start is and what plain cross entropy gains on it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from lengthwise.report.drawing import COLORS, Picture, drawn, picture
from lengthwise.report.tables import Cell, Estimate, Table
from lengthwise.results import Results, Row
from lengthwise_studies.paired_claims import Quantity, over_seeds, range_over_seeds
from lengthwise_studies.paper.methods import PLAIN, SCE, UNTRAINED
from lengthwise_studies.paper.paper_table import inverse_temperature
from lengthwise_studies.paper.sizes import Size, loss
from tools.docs.kept_results import kept_run

POINTS = (
    ("CLEX", "when", "CLEX", "when", "CLEX"),
    ("CLEX, 20 books", "twenty", "CLEX", "twenty", "CLEX"),
    ("CLEX, less pretraining", "when", "CLEX, early", "when", "CLEX, early"),
    ("CLEX, logits x 0.8", "when", "CLEX, unsure", "when", "CLEX, unsure"),
    ("CLEX on code", "table2", "PG19", "when", "start of CLEX on code"),
    ("EABF, 20 books", "twenty", "EABF", "twenty", "EABF"),
    ("LongQLoRA, 20 books", "twenty", "LongQLoRA", "twenty", "LongQLoRA"),
    ("no extension", "table11", "no adjustment", "when", "start of no adjustment"),
    ("CREAM", "cream", "CREAM", "when", "start of CREAM"),
)
"""Name, kept run at the laptop's scale and its setting; the run and the setting that read the same start."""


@dataclass(frozen=True)
class Point:
    """One setting, all at 2T; `by_temperature` is the part of `term` that the best temperature takes back."""

    name: str
    sure: Estimate | None
    gain: Estimate | None
    term: Estimate | None
    further: Estimate | None
    by_temperature: Estimate | None


def points(root: Path) -> list[Point]:
    """Those of `POINTS` at the laptop's scale."""
    return [
        _point(name, kept_run(root, f"{kind}-laptop"), setting, kept_run(root, f"{of}-laptop"), start)
        for name, kind, setting, of, start in POINTS
    ]


def points_of(run: Results) -> list[Point]:
    """What a run of `when` or `twenty` by itself shows."""
    return [
        _point(name, run, setting, run, start) for name, _, setting, of, start in POINTS if of == run.kind
    ]


def _point(name: str, results: Results, setting: str, starts: Results, start: str) -> Point:
    term, plain, untrained = (f"{setting}: {arm}" for arm in (SCE, PLAIN, UNTRAINED))
    of_term = _rows(results, term, plain, loss(2))
    best = _rows(results, term, plain, replace(loss(2), metric="loss_best_temperature"))
    return Point(
        name,
        range_over_seeds(_rows(starts, f"{start}: {UNTRAINED}", None, inverse_temperature(2))),
        over_seeds([_less(row, 2 * (row.value or 0)) for row in _rows(results, untrained, plain, loss(2))]),
        over_seeds(of_term),
        over_seeds(_rows(results, term, plain, loss(4))),
        range_over_seeds(_minus(of_term, best), signed=True),
    )


def plane_table(root: Path) -> Table:
    """One line for each setting that was run."""
    columns = ["start", "inverse temperature", "plain CE minus untrained", f"{SCE} minus plain CE"]
    rows: list[list[Cell]] = [
        [one.name, one.sure, one.gain, one.term, one.by_temperature, one.further]
        for one in points(root)
        if one.term is not None
    ]
    return Table(
        columns=[*columns, "of it, temperature", "the same at 4T"],
        rows=rows,
        notes=[
            "Nats at 2T over three pretrainings, with 95 % intervals over seeds and documents. For the inverse "
            "temperature and its part of the term the brackets hold the lowest and the highest seed. No inverse "
            "temperature below 0.5 was tried. Empty cells were not measured."
        ],
    )


def plane_picture(root: Path) -> Picture:
    """How sure the start is against what plain cross entropy gains; points are filled where the term helps."""
    shown = [one for one in points(root) if one.sure and one.gain and one.term]
    with drawn(height=3.6) as (figure, grid):
        axes = grid[0, 0]
        places: dict[str, tuple[float, float]] = {}
        for one in shown:
            assert one.sure and one.gain and one.term  # noqa: PT018
            (x, y, term) = (float(each.value or 0) for each in (one.sure, one.gain, one.term))
            places[f"{one.name}: {term:+.3f}"] = x, -y
            helps = term < 0
            color = COLORS[2] if helps else COLORS[1]
            if one.gain.low is not None and one.gain.high is not None:
                axes.plot([x, x], [-one.gain.low, -one.gain.high], color=color, linewidth=1.0)
            axes.plot(
                [x], [-y], marker="o", color=color, markerfacecolor=color if helps else "white", linestyle=""
            )
        axes.set_yscale("symlog", linthresh=0.05)
        axes.axvline(1.0, color="#888888", linewidth=0.8)
        axes.axhline(0.0, color="#888888", linewidth=0.8)
        axes.set(
            xlabel="inverse temperature of the start (above 1: not sure enough)",
            ylabel="gain of plain CE at 2T (nats)",
        )
        pixels = axes.transData.transform([*places.values()])
        for pixel, (label, place) in zip(pixels, places.items(), strict=True):
            # A point with another just to its right has its label on the left, below the bars of its neighbours.
            left = any(0 < x < 60 and abs(y) < 15 for x, y in pixels - pixel)
            beside = {"xytext": (-6, -11), "ha": "right"} if left else {"xytext": (6, 3), "ha": "left"}
            axes.annotate(label, place, textcoords="offset points", fontsize=8, **beside)
        alt = "Across: inverse temperature of the start. Up: gain of plain cross entropy. " + "; ".join(
            f"{one.name}: {one.sure.text}, {one.term.text}" for one in shown if one.sure and one.term
        )
        return picture(
            figure,
            name="plane",
            title="When does the term help?",
            alt=alt,
            caption="Beside each point: what the term at 0.1 adds to the loss at 2T. Filled: it helps.",
        )


def _rows(results: Results, arm: str, reference: str | None, quantity: Quantity) -> list[Row]:
    length = Size.of(results.config["size"]).trained
    own = [row for row in results.rows if (row.arm, row.reference) == (arm, reference)]
    return [row for row in own if quantity.is_in(row, length)]


def _less(row: Row, other: float) -> Row:
    return row if row.value is None else replace(row, value=row.value - other)


def _minus(rows: list[Row], others: list[Row]) -> list[Row]:
    """Seed by seed, without those that one of the two lacks."""
    found = {row.seed: row.value for row in others}
    return [_less(row, other) for row in rows if (other := found.get(row.seed)) is not None]
