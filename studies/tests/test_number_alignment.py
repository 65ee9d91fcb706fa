"""Alignment of one-number predictions: what is compared, what it equals, and what it must leave alone."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch

from lengthwise_studies.section3.cells import SCALES, Cell, run_cell
from lengthwise_studies.section3.number_alignment import (
    ALIGNMENTS,
    aligned_batches,
    aligned_length_error,
    aligned_losses,
    by_distribution,
    by_string,
    disagreements,
    right_disagreements,
)
from lengthwise_studies.synthetic.reparameterization import IDENTITY
from lengthwise_studies.synthetic.tasks import LENGTH, MEAN, SUM
from lengthwise_studies.synthetic.training import batches, predictions, value_losses
from lengthwise_studies.synthetic.transformer import Architecture, StackedTransformer

LONGEST = 6


def _model(seeds, encoding="none") -> StackedTransformer:
    return StackedTransformer(
        Architecture(vocabulary=4, encoding=encoding, value=True, width=8, layers=1, heads=2, hidden=16),
        seeds,
    )


def _drawn(model, seeds, *, steps=2, size=8):
    sampling = {"longest": LONGEST, "size": size, "steps": steps, "seeds": seeds}
    return batches(SUM, IDENTITY, model.encoding, **sampling)


def _aligned(model, seeds, name, **options):
    drawn = _drawn(model, seeds, **options)
    return aligned_batches(drawn, name, SUM, model.encoding, longest=LONGEST, seeds=seeds)


def _text(tokens, last) -> str:
    assert tokens[0] == 2
    assert tokens[last] == 3
    return "".join(str(token) for token in tokens[1:last].tolist())


def test_symmetric_cross_entropy_of_two_gaussians_is_their_squared_distance():
    g, h, s = 1.3, -0.4, 0.7
    x = torch.linspace(-12, 12, 200_001, dtype=torch.float64)
    p, q = (torch.distributions.Normal(torch.tensor(m, dtype=torch.float64), s) for m in (g, h))
    crossed = -(p.log_prob(x).exp() * q.log_prob(x) + q.log_prob(x).exp() * p.log_prob(x))
    integral = torch.trapezoid(crossed, x).item()
    assert integral == pytest.approx(math.log(2 * math.pi * s**2) + 1 + (g - h) ** 2 / s**2, rel=1e-9)


def test_distances_by_hand():
    long, short = torch.tensor([[1.0, 5.0, 2.0]]), torch.tensor([[4.0, 2.0, 2.0]])
    every = torch.ones(1, 3, dtype=torch.bool)
    assert by_string(long, short, every).item() == pytest.approx((9 + 9 + 0) / 3)
    assert by_string(long, short, torch.tensor([[True, False, True]])).item() == pytest.approx(9 / 2)
    assert by_string(long, short, ~every).item() == 0
    # 1, 2, 5 against 2, 2, 4.
    assert by_distribution(long, short, every).item() == pytest.approx((1 + 0 + 1) / 3)
    assert by_distribution(long, long.flip(1), every).item() == 0


@pytest.mark.parametrize("name", ALIGNMENTS)
@pytest.mark.parametrize("encoding", ["none", "randomised"])
def test_what_is_trained_on_stays_and_each_string_is_paired_with_its_end(encoding, name):
    model, seeds, size = _model([0, 1, 0], encoding), [0, 1, 0], 64
    cuts = set()
    drawn = zip(_aligned(model, seeds, name, size=size), _drawn(model, seeds, size=size), strict=True)
    for (batch, paired), own in drawn:
        assert torch.equal(batch.tokens[:, :size], own.tokens)
        assert torch.equal(batch.target, own.target)
        assert torch.equal(batch.tokens[0], batch.tokens[2]), "one seed, the same strings"
        assert not torch.equal(batch.tokens[0], batch.tokens[1])
        assert (batch.positions is None) == (encoding == "none")
        for at in range(2):
            texts = [_text(*one) for one in zip(batch.tokens[at], batch.last[at], strict=True)]
            long, short = texts[-2 * size : -size], texts[-size:]
            if name == "distribution":
                assert len({len(one) for one in long}) == len({len(one) for one in short}) == 1
            for one, end, counts in zip(long, short, paired[at].tolist(), strict=True):
                cut = len(one) - len(end)
                assert one.endswith(end)
                assert counts == (len(one) > 1)
                assert (1 <= cut <= len(one) // 2) if counts else cut == 0
                cuts.add(cut)
    assert name == "distribution" or cuts == {0, 1, 2, 3}


@pytest.mark.parametrize("name", ALIGNMENTS)
def test_the_error_is_that_without_alignment_and_the_distance_that_of_the_views(name):
    model = _model([0, 1])
    [own], [(batch, paired)] = _drawn(model, [0, 1], steps=1), _aligned(model, [0, 1], name, steps=1)
    error, distance = aligned_losses(model, (batch, paired), ALIGNMENTS[name])
    assert torch.allclose(error, value_losses(model, own), atol=1e-6)
    long, short = (
        model.value(batch.tokens[:, part], batch.last[:, part]) for part in (slice(-16, -8), slice(-8, None))
    )
    assert torch.allclose(distance, ALIGNMENTS[name](long, short, paired), atol=1e-6)


def test_right_answers_pay_what_can_be_computed():
    # Middle cuts at lengths 2 .. 6: 1, 1, 1, 1, 2.
    right = right_disagreements(LENGTH, IDENTITY, longest=LONGEST)
    assert right["string"] == pytest.approx((4 + 4) / 5)
    assert right["distribution"] == pytest.approx(right["string"]), "one outcome at each length"
    mean = right_disagreements(MEAN, IDENTITY, longest=LONGEST)
    cuts = {2: 1, 3: 1, 4: 1, 5: 1, 6: 2}
    expected = sum((1 / (length - cut) - 1 / length) / 4 for length, cut in cuts.items()) / 5
    assert mean["string"] == pytest.approx(expected, rel=0.25), "128 strings a length"
    assert 0 < mean["distribution"] < mean["string"]


def test_a_model_that_says_one_number_agrees_and_each_reading_bounds_the_other():
    constant = disagreements(lambda bits, *_: torch.full((3, len(bits)), 5.5), SUM, longest=4)
    assert all((found == 0).all() for found in constant.values())
    apart = disagreements(partial(predictions, _model([0, 1])), SUM, longest=LONGEST)
    assert apart["string"].shape == (2,)
    assert (apart["distribution"] <= apart["string"]).all()


def test_what_alignment_costs_the_best_length_model():
    assert aligned_length_error(0.0, longest=10) == pytest.approx(0, abs=1e-20)
    # Two lengths, one pair: (g1 - 1)^2 / 2 + (g2 - 2)^2 / 2 + 2 w (g2 - g1)^2, so g2 - g1 = 1 / (1 + 8 w).
    gap = 1 / (1 + 8 * 0.25)
    assert aligned_length_error(0.25, longest=2) == pytest.approx(((1 - gap) / 2) ** 2)
    assert aligned_length_error(1e9, longest=10) == pytest.approx(8.25, rel=1e-6), "the best constant"


@pytest.mark.parametrize("name", ALIGNMENTS)
def test_alignment_pulls_predictions_together(name):
    plain, aligned = (
        run_cell(Cell(task="sum", train_length=LONGEST, **how), SCALES["smoke"])
        for how in ({}, {"alignment": name, "weight": 20.0})
    )
    assert max(aligned.disagreement[name]) < 0.5 * max(plain.disagreement[name])
    assert aligned.curve[0][0] == pytest.approx(plain.curve[0][0]), "the error alone, on the same samples"
