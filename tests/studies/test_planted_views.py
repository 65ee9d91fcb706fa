"""Two views of planted parities: markers, disagreement, and what a perfect model is found to do."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch

from lengthwise.studies.sparsity import planted_views
from lengthwise.studies.sparsity.bridge import planted_jeffreys
from lengthwise.studies.sparsity.planted import Anywhere, sparse_parity
from lengthwise.studies.sparsity.planted_views import (
    Objective,
    Task,
    disagreement,
    examine_views,
    losses_by,
    views,
)

TASK = Task(sparse_parity(Anywhere()), (1, 2, 4), length=10, cut=5, noise=0.01)


def test_the_short_view_keeps_both_markers_and_the_last_tokens():
    marked = TASK.marked(torch.arange(10).view(1, 10) % 4, 2)
    assert marked.tolist() == [[6, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 4]]
    assert TASK.short(marked).tolist() == [[6, 1, 2, 3, 0, 1, 4]]
    assert TASK.vocabulary == 8


def test_samples_depend_on_the_seed_alone():
    first, second = (next(iter(views(TASK, size=3, steps=2, seeds=seeds))) for seeds in ((5, 7, 5), (7,)))
    assert torch.equal(first.whole[0], first.whole[2])
    assert torch.equal(first.whole[1], second.whole[0])
    assert torch.equal(first.labels[1], second.labels[0])
    assert first.short.shape == (3, 3, 7)


def test_disagreement_is_jeffreys_of_two_coins():
    one, other = torch.tensor([0.9], dtype=torch.float64), torch.tensor([0.3], dtype=torch.float64)
    coins = [(0.9, 0.3), (0.1, 0.7)]
    jeffreys = sum((p - q) * math.log(p / q) for p, q in coins)
    assert disagreement(one.logit(), other.logit()).item() == pytest.approx(jeffreys)


def perfect(_, tokens):
    """Log-odds of the best prediction of each view."""
    k = torch.tensor(TASK.ks)[tokens[..., 0] - 5]
    bits = tokens[..., 1:-1] < 2
    odd = ((tokens[..., 1:-1] == 1).sum(-1) % 2).bool()
    sure = math.log((1 - TASK.noise) / TASK.noise)
    return torch.where(bits.sum(-1) == k, torch.where(odd, sure, -sure), 0.0)


@pytest.mark.parametrize("k", TASK.ks)
def test_a_perfect_model_disagrees_where_the_cut_takes_a_planted_bit(k, monkeypatch):
    monkeypatch.setattr(planted_views, "odds", perfect)
    found = examine_views(SimpleNamespace(stack=2), TASK, k, samples=300, seed=1)
    entropy = -0.01 * math.log(0.01) - 0.99 * math.log(0.99)
    assert found.jeffreys[:, found.touched].flatten().tolist() == pytest.approx(
        [planted_jeffreys(1.0, 0.01)] * (2 * int(found.touched.sum())), rel=1e-4
    )
    assert found.jeffreys[:, ~found.touched].abs().max() == 0
    assert found.loss.flatten().tolist() == pytest.approx([entropy] * 600, rel=1e-4)
    assert found.found.all()
    assert found.found.shape == (2, planted_views.PROBED)
    assert torch.equal(found.touched, found.distance > 5)


def test_every_model_has_its_own_objective(monkeypatch):
    monkeypatch.setattr(planted_views, "odds", perfect)
    batch = next(iter(views(TASK, size=400, steps=1, seeds=(3, 3, 3))))
    objectives = [Objective(0.0, 0.0), Objective(1.0, 0.0), Objective(0.5, 2.0)]
    whole, short, both = losses_by(objectives)(SimpleNamespace(), batch).tolist()
    apart = disagreement(perfect(None, batch.whole), perfect(None, batch.short)).mean(1)
    assert short > whole + 0.3
    assert both == pytest.approx((whole + short) / 2 + 2 * apart[0].item(), rel=1e-5)
