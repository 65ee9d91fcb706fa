"""What is printed in Appendix D, beside what is meant: the entries of docs/evidence/errata.md on the objective."""

import math
import warnings

import pytest
import torch

from lengthwise.alignment import (
    Objective,
    PairGeometry,
    alignment_loss_from_logits,
    divergence_from_logits,
    entropy,
)
from lengthwise.errors import UsageError

P = torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64).log()
Q = torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64).log()


def test_the_printed_sum_uses_one_view_twice():
    sce = divergence_from_logits(P, Q, Objective(divergence="sce"))
    printed = -(Q.exp() * P).sum() - (P.exp() * P).sum()
    assert sce.item() == pytest.approx(1.7557258562, abs=1e-10)
    assert printed.item() == pytest.approx(1.7289134019, abs=1e-10)
    assert printed == pytest.approx(divergence_from_logits(P, Q, Objective(divergence="printed_sce")).item())
    swapped = -(P.exp() * Q).sum() - (Q.exp() * Q).sum()
    assert abs(printed - swapped) > 0.002, "it is not symmetric"
    assert sce == pytest.approx(divergence_from_logits(Q, P, Objective(divergence="sce")).item())


def test_without_a_dim_the_softmax_is_over_the_batch():
    logits = torch.randn(1, 5, 7)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        printed = torch.nn.functional.log_softmax(logits)
    assert torch.equal(printed, torch.zeros_like(logits)), (
        "a batch of one has a loss of zero, whatever the model"
    )


def test_the_last_offset_of_the_printed_range_leaves_no_pair():
    length = 8
    logits = torch.randn(2, length, 5, requires_grad=True)
    labels = torch.full((2, length), -100)
    printed = logits[:, length // 2 + length // 2 :].detach().mean()
    assert math.isnan(printed.item()), "a mean over no rows"
    output = alignment_loss_from_logits(
        logits,
        logits,
        labels,
        labels,
        geometry=PairGeometry(length, length // 2),
        objective=Objective(alpha=0.1),
    )
    output.loss.backward()
    assert [
        value.item() for value in (output.loss.detach(), output.misalignment, logits.grad.abs().max())
    ] == [0, 0, 0]
    with pytest.raises(UsageError):
        PairGeometry(length, length + 1)


def test_the_two_overlaps_of_the_paper():
    length, offset = 16, 3
    text, listing = PairGeometry(length, offset, min_context=0), PairGeometry(length, offset)
    assert (text.paired_positions, listing.paired_positions) == (length - offset, length // 2 - offset)


def test_equal_predictions_have_an_sce_of_twice_their_entropy():
    assert divergence_from_logits(P, P, Objective(divergence="sce")) == pytest.approx(2 * entropy(P).item())
    uniform = torch.zeros(32000, dtype=torch.float64)
    assert divergence_from_logits(uniform, uniform, Objective(divergence="sce")) == pytest.approx(
        2 * math.log(32000)
    )


def test_sixteen_bit_log_probabilities_have_lost_the_disagreement():
    generator = torch.Generator().manual_seed(0)
    long = 3 * torch.randn(32000, generator=generator)
    short = long + 0.02 * torch.randn(32000, generator=generator)
    exact = divergence_from_logits(long.double(), short.double(), Objective(divergence="sce"))
    log_p, log_q = long.bfloat16().log_softmax(-1), short.bfloat16().log_softmax(-1)
    printed = -(log_p * log_q.exp() + log_q * log_p.exp()).sum()
    jeffreys = divergence_from_logits(long.double(), short.double(), Objective(divergence="jeffreys"))
    assert abs(printed.double() - exact) > 10 * jeffreys
    ours = divergence_from_logits(long.bfloat16(), short.bfloat16(), Objective(divergence="sce"))
    assert abs(ours.double() - exact) < abs(printed.double() - exact)
