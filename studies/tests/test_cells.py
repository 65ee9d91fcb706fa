import json
from dataclasses import asdict, replace

import pytest
import torch

import lengthwise_studies.section3.cells as sweep
import lengthwise_studies.synthetic.training as training
from lengthwise.errors import UsageError
from lengthwise_studies.section3.cells import SCALES, Cell, Outcome, run_cell

SMOKE = SCALES["smoke"]


def test_a_cell_gives_every_number_for_every_seed_and_length():
    outcome = run_cell(Cell(task="length", function="1/sqrt", optimizer="sgd"), SMOKE)
    assert outcome.lengths == list(range(1, 13))
    for by_seed in (outcome.mse, outcome.mse_transformed, outcome.clamped):
        assert [len(seed) for seed in by_seed] == [12, 12]
    assert outcome.rate in (5e-5, 1e-4, 5e-4)
    assert outcome.steps[-1] == 2 * SMOKE.steps
    assert len(outcome.curve[0]) == len(outcome.steps)
    # As a sample log keeps it.
    assert Outcome(**json.loads(json.dumps(asdict(outcome)))) == outcome


def test_errors_are_those_of_the_predictions_in_both_units(monkeypatch):
    """Models that say 1/2 where f is 1/sqrt, so a length of 4, and models whose number has no inverse."""
    for said, length, share in ((0.5, 4.0, 0.0), (-1.0, 120.0, 1.0)):
        monkeypatch.setattr(
            training, "predictions", lambda model, bits, *_, z=said: torch.full((2, len(bits)), z)
        )
        outcome = run_cell(Cell(task="length", function="1/sqrt", optimizer="sgd"), replace(SMOKE, steps=1))
        assert outcome.mse == [pytest.approx([(length - n) ** 2 for n in range(1, 13)])] * 2
        assert outcome.mse_transformed == [pytest.approx([(said - n**-0.5) ** 2 for n in range(1, 13)])] * 2
        assert outcome.clamped == [[share] * 12] * 2


def test_a_cell_is_the_same_every_time_and_a_seed_does_not_depend_on_the_others():
    cell = Cell(task="sum", encoding="randomised")
    first, again = run_cell(cell, SMOKE), run_cell(cell, SMOKE)
    assert replace(first, seconds=0) == replace(again, seconds=0)
    more = run_cell(cell, replace(SMOKE, seeds=3))
    for two, three in zip(first.mse, more.mse, strict=False):
        assert two == pytest.approx(three, rel=1e-3)


def test_the_rate_that_fits_best_is_kept_and_a_diverged_model_is_no_number(monkeypatch):
    wild = replace(training.OPTIMIZERS["sgd"], rates=(1e-4, 1e6))
    monkeypatch.setitem(training.OPTIMIZERS, "sgd", wild)
    outcome = run_cell(Cell(task="length", optimizer="sgd"), SMOKE)
    assert outcome.rate == 1e-4
    monkeypatch.setitem(training.OPTIMIZERS, "sgd", replace(wild, rates=(1e6,)))
    outcome = run_cell(Cell(task="length", optimizer="sgd"), SMOKE)
    assert outcome.train_loss == [None, None]
    assert outcome.mse[0][0] is None
    json.dumps(asdict(outcome), allow_nan=False)


def test_a_cell_that_cannot_run_is_refused():
    with pytest.raises(UsageError, match="log is undefined at 0"):
        run_cell(Cell(task="sum", function="log"), SMOKE)
    with pytest.raises(UsageError, match=r"129 tokens, .* learned encoding has 128 positions"):
        run_cell(Cell(task="mean", encoding="learned"), replace(SMOKE, steps=1, test_length=200))


def test_a_cell_trains_on_one_thread_and_leaves_the_others_as_they_were(monkeypatch):
    found, losses = [], sweep.training.value_losses

    def threads(*given):
        found.append(torch.get_num_threads())
        return losses(*given)

    monkeypatch.setattr(sweep.training, "value_losses", threads)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        run_cell(Cell(task="mean"), replace(SMOKE, steps=1))
        assert (found, torch.get_num_threads()) == ([1], 3)
    finally:
        torch.set_num_threads(before)
