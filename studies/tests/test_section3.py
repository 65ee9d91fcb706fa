"""The synthetic studies as a grid: complete, resumable after each cell, and honest in what they say."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import lengthwise_studies.section3.panel_pictures as pictures
from lengthwise.errors import Interrupted, UsageError
from lengthwise.results import read_results
from lengthwise.samples import SampleLog
from lengthwise_studies.section3.cells import SCALES, Cell, Outcome, check, run_cell
from lengthwise_studies.section3.claims import CLAIMS
from lengthwise_studies.section3.claims import section3_claims_table as claims_table
from lengthwise_studies.section3.grid import beyond, grid_of, spread, within
from lengthwise_studies.section3.panel_page import panel_table
from lengthwise_studies.section3.panels import (
    ALIGNMENT_PANELS,
    FIGURE1_PANELS,
    FIGURE3_PANELS,
    FIGURE4_PANELS,
    FIGURE5_PANELS,
    cells_of,
)
from lengthwise_studies.skeleton import chosen_scale
from lengthwise_studies.study_table import produce
from lengthwise_studies.theorem2_check import run_theorem2, sections

PANELS = (*FIGURE1_PANELS, *FIGURE3_PANELS, *FIGURE4_PANELS, *FIGURE5_PANELS, *ALIGNMENT_PANELS)
SMOKE = replace(SCALES["smoke"], steps=4)
CELLS = [
    Cell(task="mean"),
    Cell(task="sum", function="1/sqrt", shift=1),
    Cell(task="length", optimizer="sgd"),
]
GRID = grid_of("test", CELLS, lambda scale, outcomes: [])


def test_every_figure_can_run_and_every_claim_has_its_cells():
    for cell in cells_of(PANELS):
        check(cell, SCALES["default"])
    everything = set(cells_of(PANELS))
    assert all(set(claim.test.cells.values()) <= everything for claim in CLAIMS)
    assert SCALES["default"].seeds >= 5
    names = [cell.key for cell in everything]
    assert len(set(names)) == len(names)


def test_an_interrupted_grid_goes_on_and_ends_the_same(tmp_path):
    whole, calls = GRID.run(tmp_path / "whole", SMOKE), []

    def stopping(cell, scale):
        calls.append(cell)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return run_cell(cell, scale)

    grid = replace(GRID, work=stopping)
    with pytest.raises(Interrupted):
        grid.run(tmp_path / "stopped", SMOKE)
    assert read_results(tmp_path / "stopped" / "results.json").partial
    resumed = grid.run(tmp_path / "stopped", SMOKE, resume=True)
    assert len(calls) == 4, "two before, the one that was stopped, and that one again"
    assert not resumed.partial
    assert json.loads(resumed.to_json())["rows"] == json.loads(whole.to_json())["rows"]
    again = grid.run(tmp_path / "stopped", SMOKE, resume=True)
    assert len(calls) == 4
    assert list(grid.finished(SampleLog(tmp_path / "stopped" / "samples.jsonl"), SMOKE)) == CELLS
    assert again.rows == resumed.rows


def test_rows_hold_medians_and_trivial_baselines(tmp_path):
    results = GRID.run(tmp_path / "run", SMOKE)
    outcome = GRID.finished(SampleLog(tmp_path / "run" / "samples.jsonl"), SMOKE)[CELLS[0]]
    [row] = results.select(arm=CELLS[0].key, metric="mse", length=5)
    assert row.value == pytest.approx(sum(seed[4] for seed in outcome.mse) / 2)
    assert (row.ci_low, row.ci_high) == tuple(sorted(seed[4] for seed in outcome.mse))
    [constant] = results.select(model="best constant", task="mean", length=10)
    assert constant.value == pytest.approx(0.025)
    assert results.select(arm=CELLS[1].key, metric="clamped")
    assert not results.select(arm=CELLS[0].key, metric="clamped")


def test_unknown_names_and_numbers_are_refused(tmp_path):
    with pytest.raises(UsageError, match="figure1"):
        produce("figur1", tmp_path)
    with pytest.raises(UsageError, match="smoke"):
        chosen_scale(SCALES, "smok")
    for wrong in ({"seeds": 0}, {"steps": -1}):
        with pytest.raises(UsageError, match=str(*wrong.values())):
            chosen_scale(SCALES, "smoke", **wrong)
    with pytest.raises(UsageError, match="seeds"):
        produce("theorem1", tmp_path, seeds=2)
    chosen = chosen_scale(SCALES, "default", seeds=7, steps=10)
    assert (chosen.seeds, chosen.steps) == (7, 10)


def test_medians_count_a_diverged_model_as_the_worst():
    assert spread([1.0, 3.0, 2.0]).value == 2
    one = spread([1.0, None, 2.0])
    assert (one.value, one.low, one.high) == (2.0, 1.0, None)
    assert spread([None, None, 2.0]).value is None


def test_spreads_are_written_with_two_digits():
    assert spread([1.23e-5, 0.01749, 1949.0]).text == "0.017 [1.2e-05, 1900]"
    assert spread([3.62, 99.4, 2.1e5]).text == "99 [3.6, 2.1e+05]"
    assert spread([3.0, 99.6, None]).text == "100 [3, diverged]"


def test_means_over_lengths_in_training_range_and_beyond():
    outcome = replace(
        _outcome(1.0), lengths=[9, 10, 11, 12], mse=[[1.0, 2.0, 4.0, 6.0], [1.0, 3.0, 4.0, None]]
    )
    assert within(Cell(task="mean"), outcome) == [1.5, 2]
    assert beyond(Cell(task="mean"), outcome) == [5, None]
    assert beyond(Cell(task="mean", train_length=12), outcome) == [None, None]


def _outcome(error: float, *, rising: bool = False, transformed: float = 0.0) -> Outcome:
    lengths = list(range(1, 51))
    by_length = [error * (1000 if rising and length > 10 else 1) for length in lengths]
    return Outcome(
        rate=1e-3,
        rates={"0.001": error},
        steps=[1, 2],
        curve=[[error, error]] * 5,
        train_loss=[error] * 5,
        lengths=lengths,
        mse=[[value * (1 + seed / 100) for value in by_length] for seed in range(5)],
        mse_transformed=[[transformed] * 50] * 5,
        clamped=[[0.0] * 50] * 5,
        seconds=0,
    )


def _verdict(outcomes, panel: str, said: str = "") -> str:
    table = claims_table(outcomes)
    [verdict] = [row[4] for row in table.rows if row[0] == panel and said in row[1]]
    assert isinstance(verdict, str)
    return verdict


def _as(cell: Cell, by_length) -> Outcome:
    """An outcome whose seeds all err by these numbers, lengths 1 .. 50."""
    outcome = _outcome(1.0)
    return replace(outcome, mse=[[by_length(length) for length in outcome.lengths] for _ in range(5)])


PAPERS = ("none", "learned", "alibi", "rotary")


def test_a_claim_holds_only_where_the_numbers_do():
    assert _verdict({Cell(task="mean"): _outcome(1e-5)}, "1a", "far better") == "holds"
    assert _verdict({Cell(task="mean"): _outcome(4e-3)}, "1a", "far better") == "does not hold", "1/2: 5e-3"
    rising = {Cell(task="length", encoding=name): _outcome(0.5, rising=True) for name in PAPERS}
    assert _verdict(rising, "1b") == "holds"
    rising[Cell(task="length", encoding="alibi")] = _outcome(0.5)
    assert _verdict(rising, "1b") == "holds for 3 of 4 encodings"


def test_what_rises_must_have_been_trained_and_come_near_to_a_constant():
    """The error of the best constant itself rises 240 times from training range to length 50."""
    cells = [Cell(task="length", encoding=name) for name in PAPERS]
    constant = {cell: _as(cell, lambda length: (length - 5.5) ** 2) for cell in cells}
    assert _verdict(constant, "1b") == "says nothing: not trained"
    mixed = {cell: _outcome(0.5, rising=True) for cell in cells} | {cells[2]: constant[cells[2]]}
    assert _verdict(mixed, "1b") == "holds for 3 of 3 encodings; says nothing: not trained: alibi"
    # A thousand times an error of almost nothing is still almost nothing.
    small = {cell: _outcome(1e-4, rising=True) for cell in cells}
    assert _verdict(small, "1b") == "holds for 0 of 4 encodings"


def test_an_error_stays_if_it_is_nearly_that_in_training_range():
    cell = Cell(task="mean")
    assert _verdict({cell: _outcome(1e-5)}, "1a", "stays") == "holds"
    assert _verdict({cell: _outcome(1e-6, rising=True)}, "1a", "stays") == "does not hold"
    assert _verdict({cell: _outcome(0.05)}, "1a", "stays") == "says nothing: not trained"


def test_nearly_perfect_is_to_say_the_right_length():
    cell = Cell(task="length", function="1/sqrt")
    assert _verdict({cell: _outcome(0.2)}, "1c", "nearly perfect") == "holds"
    assert _verdict({cell: _outcome(0.3)}, "1c", "nearly perfect") == "does not hold"
    assert _verdict({cell: _outcome(9.0)}, "1c", "nearly perfect") == "says nothing: not trained"


def test_longer_training_is_better_only_where_seeds_do_not_overlap():
    cells = [Cell(task="sum", train_length=length) for length in (5, 10, 20, 40)]

    def outcomes(ends):
        return {
            cell: _as(cell, lambda length, cell=cell, end=end: end if length > cell.train_length else 1e-3)
            for cell, end in zip(cells, ends, strict=True)
        }

    assert _verdict(outcomes([4, 3, 2, 1]), "3a") == "lower with length: yes; still rising: yes"
    assert _verdict(outcomes([4, 3, 3, 1]), "3a") == "lower with length: no; still rising: yes"
    assert _verdict(outcomes([4, 3, 2, 1e-3]), "3a") == "lower with length: yes; still rising: no"
    wide = outcomes([4, 3, 2, 1])
    seeds = [list(seed) for seed in wide[cells[1]].mse]
    seeds[0][-1] = 5.0
    wide[cells[1]] = replace(wide[cells[1]], mse=seeds)
    assert _verdict(wide, "3a") == "lower with length: no; still rising: yes", (
        "one seed of 1..10 is above 1..5"
    )
    untrained = outcomes([4, 3, 2, 1])
    untrained[cells[0]] = _as(cells[0], lambda length: length**2 / 4)
    assert _verdict(untrained, "3a") == "says nothing: not trained"


def test_every_claim_is_judged_and_only_at_the_papers_lengths():
    outcomes = {cell: _outcome(0.5) for cell in cells_of(PANELS)}
    table = claims_table(outcomes)
    assert len(table.rows) == len(CLAIMS)
    short = {
        cell: replace(outcome, lengths=outcome.lengths[:12], mse=[seed[:12] for seed in outcome.mse])
        for cell, outcome in outcomes.items()
    }
    assert claims_table(short).rows == []


def test_reparameterization_is_judged_in_original_units():
    functions = ("sqrt", "log", "1/sqrt", "1/x", "1/log(x+1)")
    outcomes = {Cell(task="length"): _outcome(0.1, rising=True, transformed=100.0)}
    for name in functions:
        outcomes[Cell(task="length", function=name)] = _outcome(0.2, rising=True, transformed=1e-6)
    outcomes[Cell(task="length", function="log")] = _outcome(0.001, rising=True, transformed=1e-6)
    assert _verdict(outcomes, "1c", "every f") == "better: log; worse: sqrt, 1/sqrt, 1/x, 1/log(x+1)"
    assert _verdict(outcomes, "1c", "of all f") == "better than none; worse than no f, log"
    outcomes[Cell(task="length", function="1/sqrt")] = _outcome(1e-4, rising=True, transformed=1e-6)
    assert _verdict(outcomes, "1c", "of all f") == "holds"
    outcomes[Cell(task="length", function="1/x")] = _outcome(10.0, transformed=1e-6)
    assert _verdict(outcomes, "1c", "every f").endswith("; says nothing: not trained: 1/x")


def test_alignment_is_judged_against_the_same_task_without_it():
    outcomes = {cell: _outcome(2.0) for cell in ALIGNMENT_PANELS[0].cells}
    outcomes[Cell(task="mean", alignment="string", weight=0.1)] = _outcome(1.0)
    outcomes[Cell(task="mean", alignment="distribution", weight=0.5)] = _outcome(3.0)
    table = claims_table(outcomes, {"aligned-mean"})
    assert {row[0] for row in table.rows} == {"aligned-mean"}, "a panel that only shares a cell is not judged"
    verdicts = {row[1]: row[4] for row in table.rows}
    assert verdicts == {
        "alignment lowers the error of the mean beyond training": "better: string 0.1; worse: distribution 0.5",
        "alignment keeps the error of the mean in training range": "better: string 0.1; worse: distribution 0.5",
    }


def test_the_alignment_study_as_a_whole(tmp_path):
    produced = produce("alignment", tmp_path / "run", scale="smoke", steps=2)
    assert len(produced.tables) == 6, "errors and disagreements of three tasks"
    assert [row[0] for row in produced.tables[3].rows] == [
        "the right answers",
        "no alignment",
        *(f"by {name}, {weight}" for name in ("string", "distribution") for weight in (0.1, 0.5)),
    ]
    page = produced.page.read_text()
    assert "Wrong by construction" in page
    assert "error of 0.101 at 0.1, 1.04 at 0.5 in training range" in page


def test_every_picture_shows_baseline_seeds_and_training_loss(monkeypatch):
    drawn: dict[str, list] = {}
    original = pictures.picture

    def kept(figure, *, name: str, **options):
        drawn[name] = [
            [(line.get_label(), line.get_linestyle()) for line in axes.lines] for axes in figure.axes
        ]
        return original(figure, name=name, **options)

    monkeypatch.setattr(pictures, "picture", kept)
    [panel] = [panel for panel in FIGURE1_PANELS if panel.name == "1c"]
    outcomes = {cell: _outcome(0.5, transformed=0.1) for cell in panel.cells if cell.optimizer == "adam"}
    made = pictures.panel_pictures(panel, outcomes)
    assert [picture.name for picture in made] == ["panel-1c-adam", "panel-1c-adam-transformed"]
    test, training = drawn["panel-1c-adam"]
    assert ("best constant", "--") in test
    assert len(test) == 6 * (5 + 1) + 1, "five seeds and their median for each f, and the baseline"
    assert len(training) == 6 * (5 + 1)
    assert len(panel_table(panel, outcomes).rows) == 6


def test_clamps_are_counted_beyond_training_range():
    [panel] = [panel for panel in FIGURE1_PANELS if panel.name == "1c"]
    cell = Cell(task="length", function="log")
    outcome = replace(_outcome(0.5), clamped=[[1.0] * 10 + [0.0] * 39 + [0.25], [0.0] * 50])
    assert panel_table(panel, {cell: outcome}).rows[0][-1] == "25%"


def test_the_theory_as_a_study(tmp_path):
    scale = replace(SCALES["smoke"], test_length=20)
    results = run_theorem2(tmp_path / "run", scale)
    [printed] = results.select(task="sum", arm="as printed (Eq. 15, 20, 22)", length=20)
    [exact] = results.select(task="sum", arm="the paper's table, exact", metric="mse", length=20)
    assert printed.value == pytest.approx(117.69, rel=1e-4)
    assert exact.value == pytest.approx(58.85, rel=1e-4)
    for task in ("length", "sum", "mean"):
        for length in range(1, 21):
            [low] = results.select(task=task, arm="lower bound", length=length)
            [high] = results.select(task=task, arm="upper bound", length=length)
            errors = results.select(task=task, metric="mse", length=length)
            # The printed error of the sum belongs to no table.
            drawn = [r.value for r in errors if "bound" not in r.arm and "as printed" not in r.arm]
            assert len(drawn) == 6
            assert low.value - 1e-9 <= min(drawn), (task, length)
            assert max(drawn) <= high.value, (task, length)
    [constant] = results.select(task="mean", arm="best constant", length=20)
    assert constant.value == pytest.approx(0.0125)
    [section] = sections(results, tmp_path)
    assert section.figures[0].svg.startswith("<svg")
    assert run_theorem2(tmp_path / "run", scale, resume=True).rows == results.rows
