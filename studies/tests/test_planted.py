"""Position laws against enumeration of all sets, sparse parity and its batches, and accuracy by an oracle."""

import itertools
import math
from collections import Counter

import pytest
import torch

from lengthwise.errors import UsageError
from lengthwise_studies.sparsity.planted import (
    ANYWHERE,
    BEGIN,
    END,
    Within,
    label_losses,
    planted_batches,
    right_labels,
    sparse_parity,
)

LAWS = [ANYWHERE, Within(4)]


def _enumerated(law, length: int, k: int) -> dict[tuple[int, ...], float]:
    sets = list(itertools.combinations(range(length), k))
    fits = [one for one in sets if one[-1] - one[0] < law.width]
    return dict.fromkeys(sets, 0.0) | dict.fromkeys(fits, 1 / len(fits))


def _ratio(above: dict, below: dict, length: int) -> float:
    """The largest ratio of the probability of a set to that of one of its shifts that fit into the length."""
    largest = 0.0
    for one in (one for one, probability in above.items() if probability):
        shifts = range(-one[0], length - one[-1])
        lowest = min((below[tuple(place + shift for place in one)] for shift in shifts), default=0.0)
        largest = max(largest, above[one] / lowest if lowest else math.inf)
    return largest


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("k", [1, 2, 3])
def test_a_law_is_what_enumeration_gives(law, k):
    here, longer = _enumerated(law, 7, k), _enumerated(law, 9, k)
    assert law.sets(7, k) == sum(p > 0 for p in here.values())
    assert law.locality(7, k) == max(one[-1] - one[0] + 1 for one, p in here.items() if p)
    assert law.regularity(7, 7, k) == pytest.approx(_ratio(here, here, 7)) == 1
    assert law.regularity(7, 9, k) == pytest.approx(_ratio(here, longer, 9))
    assert law.regularity(9, 7, k) == pytest.approx(_ratio(longer, here, 7))


@pytest.mark.parametrize(("law", "k"), [(ANYWHERE, 0), (ANYWHERE, 9), (Within(3), 4)])
def test_a_k_without_room_is_refused(law, k):
    with pytest.raises(UsageError):
        law.sets(8, k)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("k", [1, 2, 4])
def test_draws_follow_the_law(law, k):
    count = 20_000
    drawn = Counter(map(tuple, law.draw(count, 6, k, torch.Generator().manual_seed(k)).tolist()))
    law_of = _enumerated(law, 6, k)
    assert set(drawn) <= {one for one, probability in law_of.items() if probability}
    for one, probability in law_of.items():
        spread = math.sqrt(count * probability * (1 - probability))
        assert abs(drawn[one] - count * probability) <= 5 * spread


def test_sparse_parity_is_the_parity_of_its_bits():
    tokens, labels = sparse_parity(Within(6), 200, 20, 5, torch.Generator().manual_seed(0))
    places = (tokens < 2).nonzero()[:, 1].view(200, 5)
    assert torch.equal(places, Within(6).draw(200, 20, 5, torch.Generator().manual_seed(0)))
    assert torch.equal(labels, (tokens == 1).sum(1) % 2)
    assert tokens.max() == BEGIN - 1
    assert 0.35 < labels.float().mean() < 0.65


class Oracle:
    """Two models: one counts the ones, the other always says the opposite."""

    stack = 2

    def value(self, tokens: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
        odd = (tokens == 1).sum(-1) % 2 * 2.0 - 1
        return 20 * odd * torch.tensor([[1.0], [-1.0]])


def _batches(seeds):
    return list(planted_batches(ANYWHERE, lengths=(5, 8), ks=(1, 3), size=40, steps=3, seeds=seeds))


def test_batches_hold_the_lengths_and_ks_asked_for():
    batch = _batches([0, 1])[0]
    assert batch.tokens.shape == (2, 40, 10)
    assert set(batch.last.flatten().tolist()) == {6, 9}
    assert (batch.tokens[..., 0] == BEGIN).all()
    assert (batch.tokens.gather(-1, batch.last.unsqueeze(-1)) == END).all()
    assert ((batch.tokens == END).sum(-1) == 10 - batch.last).all()
    assert set((batch.tokens < 2).sum(-1).flatten().tolist()) == {1, 3}
    assert torch.equal(batch.target, (batch.tokens == 1).sum(-1) % 2)


def test_samples_of_a_model_depend_on_its_seed_alone():
    both, one = _batches([0, 1]), _batches([1])
    for a, b in zip(both, one, strict=True):
        assert torch.equal(a.tokens[1], b.tokens[0])
    assert not torch.equal(both[0].tokens[0], both[0].tokens[1])


def test_right_labels_and_losses_of_an_oracle():
    oracle = Oracle()
    assert right_labels(oracle, ANYWHERE, length=9, k=4, samples=50, seed=1) == [50, 0]
    losses = label_losses(oracle, _batches([0, 1])[0])
    assert losses.tolist() == pytest.approx([0.0, 20.0], abs=1e-4)
