"""The verdicts of docs/explanation/synthetic.md are those of the rules, applied to the numbers of the same page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lengthwise.studies.section3.cells import Cell, Outcome
from lengthwise.studies.section3.claims import CLAIMS, CellClaim
from lengthwise.studies.section3.panel_pictures import label_of
from lengthwise.studies.section3.panels import (
    ALIGNMENT_PANELS,
    FIGURE1_PANELS,
    FIGURE3_PANELS,
    FIGURE4_PANELS,
    FIGURE5_PANELS,
)

PAGE = (Path(__file__).parents[2] / "docs" / "explanation" / "synthetic.md").read_text()
PANELS = (*FIGURE1_PANELS, *FIGURE3_PANELS, *FIGURE4_PANELS, *FIGURE5_PANELS)
LENGTHS = list(range(1, 51))


def _tables(text: str) -> list[list[list[str]]]:
    """Every table of a text: its lines, each a list of cells, without the heading."""
    blocks = re.findall(r"(?:^\|.*\n)+", text, re.M)
    return [
        [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()[2:]]
        for block in blocks
    ]


def _spread(cell: str) -> list[float]:
    """`2e-05 [1.4e-06, 5.8e-05]` as five seeds: best, three at the median, worst."""
    middle, low, high = (float(number) for number in re.findall(r"[\d.]+(?:e[+-]?\d+)?", cell))
    return [low, middle, middle, middle, high]


def _outcome(within: list[float], beyond: dict[int, list[float]], train_length: int) -> Outcome:
    """Five seeds: one error in training range, and beyond it that of the nearest longer length in `beyond`."""

    def error(seed: int, length: int) -> float:
        if length <= train_length:
            return within[seed]
        return beyond[min(at for at in beyond if at >= length)][seed]

    mse: list[list[float | None]] = [[error(seed, length) for length in LENGTHS] for seed in range(5)]
    return Outcome(
        rate=1.0,
        rates={},
        steps=[],
        curve=[],
        train_loss=[None] * 5,
        lengths=LENGTHS,
        mse=mse,
        mse_transformed=mse,
        clamped=[],
        seconds=0.0,
    )


@pytest.fixture(scope="module")
def outcomes() -> dict[Cell, Outcome]:
    numbers = PAGE.split("## Numbers at default size")[1].split("## Does output alignment")[0]
    found = {}
    for panel, lines in zip(PANELS, _tables(numbers), strict=True):
        cells = {(label_of(cell, panel.varies), cell.optimizer): cell for cell in panel.cells}
        for label, optimizer, _, within, at20, at35, at50, *_ in lines:
            cell = cells[label, optimizer.lower()]
            beyond = {20: _spread(at20), 35: _spread(at35), 50: _spread(at50)}
            found[cell] = _outcome(_spread(within), beyond, cell.train_length)
    return found


@pytest.fixture(scope="module")
def aligned() -> dict[Cell, Outcome]:
    """The means in training range and beyond it."""
    numbers = PAGE.split("## Does output alignment")[1]
    cells = [cell for panel in ALIGNMENT_PANELS for cell in panel.cells]
    return {
        cell: _outcome(_spread(line[3]), {50: _spread(line[6])}, cell.train_length)
        for cell, line in zip(cells, _tables(numbers)[0], strict=True)
    }


def _documented() -> list[list[str]]:
    return _tables(PAGE.split("## The paper's claims, and ours")[1])[0]


def test_the_page_lists_every_claim() -> None:
    assert [line[:3] for line in _documented()] == [[one.place, one.claim, one.paper] for one in CLAIMS]


@pytest.mark.parametrize(("claim", "line"), list(zip(CLAIMS, _documented(), strict=True)))
def test_the_verdict_is_that_of_the_rule(
    claim: CellClaim, line: list[str], outcomes: dict[Cell, Outcome], aligned: dict[Cell, Outcome]
) -> None:
    decided = claim.verdict(aligned if claim.place.startswith("aligned") else outcomes)
    assert decided is not None
    _, verdict = decided
    if claim.rule.startswith(("better or worse: mean error beyond", "mean error beyond")) and (
        not claim.place.startswith("aligned")
    ):
        # Of these the page tells which models were trained; their mean errors beyond training are not listed.
        verdict, line = verdict.partition("says nothing")[2], [line[3].partition("says nothing")[2]]
    assert line[-1] == verdict
