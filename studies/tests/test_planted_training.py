"""Batches of planted samples, and accuracy by an oracle."""

from __future__ import annotations

import pytest
import torch

from lengthwise.errors import UsageError
from lengthwise_studies.sparsity.planted import Anywhere, sparse_parity
from lengthwise_studies.sparsity.planted_training import label_losses, planted_batches, right_labels

LAW = sparse_parity(Anywhere())


class Oracle:
    """Two models: one counts the ones, the other always says the opposite."""

    stack = 2

    def value(self, tokens: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
        odd = (tokens == 1).sum(-1) % 2 * 2.0 - 1
        return 20 * odd * torch.tensor([[1.0], [-1.0]])


def _batches(seeds, steps=3):
    return list(planted_batches(LAW, lengths=(5, 8), ks=(1, 3), size=40, steps=steps, seeds=seeds))


def test_batches_hold_the_lengths_and_ks_asked_for():
    batch = _batches([0, 1])[0]
    assert batch.tokens.shape == (2, 40, 10)
    assert set(batch.last.flatten().tolist()) == {6, 9}
    begin, end = LAW.vocabulary, LAW.vocabulary + 1
    assert (batch.tokens[..., 0] == begin).all()
    assert (batch.tokens.gather(-1, batch.last.unsqueeze(-1)) == end).all()
    assert ((batch.tokens == end).sum(-1) == 10 - batch.last).all()
    assert set((batch.tokens < 2).sum(-1).flatten().tolist()) == {1, 3}
    assert torch.equal(batch.labels, (batch.tokens == 1).sum(-1) % 2)


def test_samples_of_a_model_depend_on_its_seed_alone():
    both, one = _batches([0, 1]), _batches([1])
    for a, b in zip(both, one, strict=True):
        assert torch.equal(a.tokens[1], b.tokens[0])
    assert not torch.equal(both[0].tokens[0], both[0].tokens[1])


def test_right_labels_and_losses_of_an_oracle():
    oracle = Oracle()
    right = right_labels(oracle, LAW, length=9, k=4, samples=50, seed=1)
    assert right.tolist() == [50, 0]
    losses = label_losses(oracle, _batches([0, 1])[0])
    assert losses.tolist() == pytest.approx([0.0, 20.0], abs=1e-4)


def test_a_k_above_the_shortest_length_is_refused():
    with pytest.raises(UsageError):
        next(planted_batches(LAW, lengths=(3, 8), ks=(4,), size=2, steps=1, seeds=[0]))
