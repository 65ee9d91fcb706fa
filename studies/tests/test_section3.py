"""The synthetic studies as a grid: complete, resumable after each cell, and honest in what they say."""

import json
from dataclasses import replace
from itertools import chain

import pytest

import lengthwise_studies.section3.panel_page as pages
from lengthwise.errors import Interrupted
from lengthwise.results import read_results
from lengthwise.samples import SampleLog
from lengthwise_studies.claims import judge
from lengthwise_studies.section3.cells import SCALES, Cell, Outcome, run_cell
from lengthwise_studies.section3.grid import mean_errors, spread
from lengthwise_studies.section3.panels import FIGURES
from lengthwise_studies.theorem2_check import run_theorem2, sections

PANELS = {panel.name: panel for panel in chain(*FIGURES.values())}
SMOKE = replace(SCALES["smoke"], steps=4)
CELLS = [
    Cell(task="mean"),
    Cell(task="sum", function="1/sqrt", shift=1),
    Cell(task="length", optimizer="sgd"),
]
GRID = replace(pages.grid_of("test", ()), cells=lambda _: CELLS)


def test_cells_are_told_apart_and_claims_are_judged_only_at_the_papers_lengths():
    everything = {cell for panel in PANELS.values() for cell in panel.cells}
    assert len({cell.key for cell in everything}) == len(everything)
    claims = [claim for panel in PANELS.values() for claim in panel.claims]
    assert len(judge(claims, dict.fromkeys(everything, _outcome(0.5)))) == len(claims) == 22
    short = replace(_outcome(0.5), lengths=list(range(1, 13)))
    assert judge(claims, dict.fromkeys(everything, short)) == []


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
    assert grid.run(tmp_path / "stopped", SMOKE, resume=True).rows == resumed.rows
    assert len(calls) == 4
    outcomes = grid.finished(SampleLog(tmp_path / "stopped" / "samples.jsonl"), SMOKE)
    assert list(outcomes) == CELLS
    [row] = resumed.select(arm=CELLS[0].key, metric="mse", length=5)
    errors = [seed[4] for seed in outcomes[CELLS[0]].mse]
    assert row.value == pytest.approx(sum(errors) / 2)
    assert (row.ci_low, row.ci_high) == tuple(sorted(errors))
    assert [bool(resumed.select(arm=cell.key, metric="clamped")) for cell in CELLS] == [False, True, False]


@pytest.mark.parametrize(
    ("values", "text", "ends"),
    [
        ([1.23e-5, 0.01749, 1949.0], "0.017 [1.2e-05, 1900]", (0.01749, 1.23e-5, 1949.0)),
        ([3.62, 99.4, 2.1e5], "99 [3.6, 2.1e+05]", (99.4, 3.62, 2.1e5)),
        ([3.0, 99.6, None], "100 [3, diverged]", (99.6, 3.0, None)),
        ([None, None, 2.0], "diverged", (None, 2.0, None)),
    ],
)
def test_a_median_counts_a_diverged_model_as_the_worst(values, text, ends):
    assert spread(values).text == text
    assert tuple(spread(values).plain.values()) == ends


def test_means_over_lengths_in_training_range_and_beyond():
    outcome = replace(
        _outcome(1.0), lengths=[9, 10, 11, 12], mse=[[1.0, 2.0, 4.0, 6.0], [1.0, 3.0, 4.0, None]]
    )
    assert mean_errors(Cell(task="mean"), outcome) == ([1.5, 2], [5, None])
    assert mean_errors(Cell(task="mean", train_length=12), outcome)[1] == [None, None]


def _outcome(error: float, *, rising: bool = False, transformed: float = 0.0) -> Outcome:
    return Outcome(
        rate=1e-3,
        steps=[1, 2],
        curve=[[error, error]] * 5,
        train_loss=[error] * 5,
        lengths=list(range(1, 51)),
        mse=[[error * (1 + seed / 100)] * 10 + [error * (1000 if rising else 1)] * 40 for seed in range(5)],
        mse_transformed=[[transformed] * 50] * 5,
        clamped=[[0.0] * 50] * 5,
        seconds=0,
    )


def _as(by_length) -> Outcome:
    """An outcome whose seeds all err by these numbers, lengths 1 .. 50."""
    return replace(_outcome(1.0), mse=[[by_length(length) for length in range(1, 51)] for _ in range(5)])


def _verdict(outcomes, panel: str, said: str = "") -> str:
    """On the claim with Adam."""
    claims = [claim for claim in PANELS[panel].claims if said in claim.says and "sgd" not in claim.place]
    [judged] = judge(claims, outcomes)
    return judged.verdict


MEAN, NEAR = Cell(task="mean"), Cell(task="length", function="1/sqrt")


@pytest.mark.parametrize(
    ("cell", "panel", "said", "outcome", "verdict"),
    [
        (MEAN, "1a", "far better", {"error": 1e-5}, "holds"),
        # 1/2 errs by 5e-3.
        (MEAN, "1a", "far better", {"error": 4e-3}, "does not hold"),
        # A thousand times an error of almost nothing: a fifth of what 1/2 errs by does not hold, a fiftieth does.
        (MEAN, "1a", "stays", {"error": 1e-7, "rising": True}, "holds"),
        (MEAN, "1a", "stays", {"error": 1e-6, "rising": True}, "does not hold"),
        (MEAN, "1a", "stays", {"error": 0.05}, "says nothing: not trained"),
        (NEAR, "1c", "nearly perfect", {"error": 0.2}, "holds"),
        (NEAR, "1c", "nearly perfect", {"error": 0.3}, "does not hold"),
        (NEAR, "1c", "nearly perfect", {"error": 9.0}, "says nothing: not trained"),
    ],
)
def test_a_claim_on_one_cell_holds_only_where_its_numbers_do(cell, panel, said, outcome, verdict):
    assert _verdict({cell: _outcome(**outcome)}, panel, said) == verdict
    few = replace(_outcome(**outcome), mse=_outcome(**outcome).mse[:3])
    assert _verdict({cell: few}, panel, said) == "not decided: fewer than 4 seeds"


def test_what_rises_must_have_been_trained_and_come_near_to_a_constant():
    """The error of the best constant itself rises 240 times from training range to length 50."""
    cells = [Cell(task="length", encoding=name) for name in ("none", "learned", "alibi", "rotary")]
    rising = {cell: _outcome(0.5, rising=True) for cell in cells}
    assert _verdict(rising, "1b") == "holds"
    assert _verdict(rising | {cells[2]: _outcome(0.5)}, "1b") == "holds for 3 of 4 encodings"
    constant = {cell: _as(lambda length: (length - 5.5) ** 2) for cell in cells}
    assert _verdict(constant, "1b") == "says nothing: not trained"
    mixed = rising | {cells[2]: constant[cells[2]]}
    assert _verdict(mixed, "1b") == "holds for 3 of 3 encodings; says nothing: not trained: alibi"
    # A thousand times an error of almost nothing is still almost nothing.
    small = {cell: _outcome(1e-4, rising=True) for cell in cells}
    assert _verdict(small, "1b") == "holds for 0 of 4 encodings"


def test_longer_training_is_better_only_where_seeds_do_not_overlap():
    cells = list(PANELS["3a"].cells)

    def outcomes(*ends):
        return {
            cell: _as(lambda length, cell=cell, end=end: end if length > cell.train_length else 1e-3)
            for cell, end in zip(cells, ends, strict=True)
        }

    assert _verdict(outcomes(4, 3, 2, 1), "3a") == "lower with length: yes; still rising: yes"
    assert _verdict(outcomes(4, 3, 3, 1), "3a") == "lower with length: no; still rising: yes"
    assert _verdict(outcomes(4, 3, 2, 1e-3), "3a") == "lower with length: yes; still rising: no"
    first, *others = outcomes(4, 3, 2, 1)[cells[1]].mse
    wide = {**outcomes(4, 3, 2, 1), cells[1]: replace(_outcome(1), mse=[[*first[:-1], 5.0], *others])}
    # One seed of 1..10 is above 1..5.
    assert _verdict(wide, "3a") == "lower with length: no; still rising: yes"
    untrained = {**outcomes(4, 3, 2, 1), cells[0]: _as(lambda length: length**2 / 4)}
    assert _verdict(untrained, "3a") == "says nothing: not trained"


def test_reparameterization_is_judged_in_original_units():
    outcomes = {
        cell: _outcome(0.2, rising=True, transformed=1e-6) for cell in PANELS["1c"].curves("adam").values()
    }
    outcomes[Cell(task="length")] = _outcome(0.1, rising=True, transformed=100.0)
    outcomes[Cell(task="length", function="log")] = _outcome(0.001, rising=True, transformed=1e-6)
    assert _verdict(outcomes, "1c", "every f") == "better: log; worse: sqrt, 1/sqrt, 1/x, 1/log(x+1)"
    assert _verdict(outcomes, "1c", "of all f") == "better than none; worse than no f, log"
    outcomes[NEAR] = _outcome(1e-4, rising=True, transformed=1e-6)
    assert _verdict(outcomes, "1c", "of all f") == "holds"
    outcomes[Cell(task="length", function="1/x")] = _outcome(10.0, transformed=1e-6)
    assert _verdict(outcomes, "1c", "every f").endswith("; says nothing: not trained: 1/x")


def test_a_picture_shows_baseline_seeds_and_training_loss(monkeypatch):
    drawn = []
    original = pages.picture

    def kept(figure, **options):
        drawn.extend([(one.get_label(), one.get_linestyle()) for one in axes.lines] for axes in figure.axes)
        return original(figure, **options)

    monkeypatch.setattr(pages, "picture", kept)
    panel = PANELS["1c"]
    outcomes = {cell: _outcome(0.5, transformed=0.1) for cell in panel.cells}
    log = Cell(task="length", function="log")
    outcomes[log] = replace(outcomes[log], clamped=[[1.0] * 10 + [0.0] * 39 + [0.25], *[[0.0] * 50] * 4])
    assert pages.panel_picture(panel, outcomes, "adam").name == "panel-1c-adam"
    test, transformed, training = drawn
    assert ("best constant", "--") in test
    assert len(test) == 6 * (5 + 1) + 1, "five seeds and their median for each f, and the baseline"
    assert len(transformed) == 6 * (5 + 1 + 1), "each f has a best constant of its own"
    assert len(training) == 6 * (5 + 1)
    clamped = {row[0]: row[-1] for row in pages.panel_table(panel, outcomes).rows if row[1] == "adam"}
    # Beyond training range alone.
    assert (clamped["no f"], clamped["sqrt"], clamped["log"]) == ("", "0%", "25%")


def test_the_theory_as_a_study(tmp_path):
    scale = replace(SCALES["smoke"], test_length=20)
    results = run_theorem2(tmp_path / "run", scale)
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
    [section] = sections(results, tmp_path)
    assert section.figures[0].svg.startswith("<svg")
    assert run_theorem2(tmp_path / "run", scale, resume=True).rows == results.rows
