"""The bounds as formulas, and their errata (docs/evidence/sparsity.md)."""

import itertools
import math

import pytest
import torch

from lengthwise.errors import UsageError
from lengthwise_studies.sparsity.bounds import improved_factor, needed_delta, proof_etas, theorem_factor
from lengthwise_studies.sparsity.planted import ANYWHERE, Within


def test_the_bounds_are_their_formulas():
    assert theorem_factor(32, 128, etas=(2, 3)) == 6 * 32 * 128**2
    # L_local = L/4: 16 (M/L)^2.
    assert improved_factor(32, 128, 8) == 16 * 4**2
    assert improved_factor(32, 128, 4, etas=(1, 2)) == 2 * 32**2
    assert theorem_factor(32, 128, etas=(1, math.inf)) == math.inf
    assert needed_delta(improved_factor(32, 128, 8)) == pytest.approx(0.5 / 256)
    assert needed_delta(math.inf) == 0


@pytest.mark.parametrize(
    "refused",
    [
        lambda: improved_factor(32, 64, 0),
        lambda: improved_factor(32, 64, 8.5),
        lambda: proof_etas(Within(8), train_length=16, test_length=32, local=8, k=2),
    ],
)
def test_chunks_that_are_too_wide_are_refused(refused):
    with pytest.raises(UsageError):
        refused()


class TestErrata:
    def test_the_theorem_needs_a_delta_of_the_order_of_the_fifth_power(self):
        """With eta = length and M = 4L, what the theorem needs falls as L^-5, as the rebuttal says."""

        def needed(length):
            return needed_delta(theorem_factor(length, 4 * length, etas=(length, 4 * length)))

        assert math.log2(needed(64) / needed(128)) == pytest.approx(5)
        assert needed(32) < 1e-9

    def test_the_factor_of_the_average_is_half_of_what_is_printed(self):
        """A hypothesis with all its risk at one length of L/2 .. L attains L/2 + 1 times its average, not L."""
        lengths = range(16, 33)
        worst = max(
            max(risks) / (sum(risks) / len(risks))
            for risks in ([float(one == at) for one in lengths] for at in lengths)
        )
        assert 32 - math.ceil(32 / 2) + 1 == pytest.approx(worst) == 17

    def test_the_improved_bound_is_worse_for_better_locality(self):
        """Also with the etas of the law itself: the bound falls as planted positions may spread."""
        bounds = []
        for width in (4, 6, 8):
            etas = proof_etas(Within(width), train_length=32, test_length=128, local=width, k=4)
            bounds.append(improved_factor(32, 128, width, etas))
        assert bounds == sorted(bounds, reverse=True)
        assert bounds[0] == pytest.approx(4 * bounds[-1])

    def test_from_long_to_short_eta_is_at_most_one_for_local_sets_and_infinite_for_others(self):
        """The rebuttal's O(1), where the longer length is the numerator; without locality there is no eta."""
        assert proof_etas(Within(8), train_length=32, test_length=128, local=8, k=4) == (1, 1)
        assert Within(8).regularity(128, 16, 4) < 1
        assert proof_etas(ANYWHERE, train_length=32, test_length=128, local=8, k=4) == (math.inf, math.inf)

    def test_eta_from_short_to_long_is_of_the_order_of_the_length_for_local_sets_alone(self):
        """Remark C.1's O(length): the ratio grows with the length's first power; anywhere, with its k-th."""

        def growth(law):
            few, many = (law.regularity(32, length, 4) for length in (128, 256))
            return math.log2(many / few)

        assert growth(Within(8)) == pytest.approx(1, abs=0.1)
        assert growth(ANYWHERE) == pytest.approx(4, abs=0.1)

    def test_with_one_position_relativity_leaves_a_bag_of_words(self):
        """Attention over k-subsets whose key does not change under shifts: for k = 1 the order of tokens is lost."""
        tokens = torch.tensor([2, 0, 1, 1, 3])
        order = torch.tensor([4, 2, 0, 3, 1])
        generator = torch.Generator().manual_seed(0)
        keys, values = torch.randn(2, 10, 4, 4, generator=generator, dtype=torch.float64)

        def attend(sequence, k):
            """The key sees distances and tokens, the value the tokens: softmax over all k-subsets."""
            scores, found = [], []
            for places in itertools.combinations(range(len(sequence)), k):
                seen = [int(sequence[place]) for place in places]
                distance = places[-1] - places[0]
                scores.append(keys[distance, seen[0], seen[-1]])
                found.append(values[0, seen[0], seen[-1]])
            return float(torch.stack(scores).softmax(0) @ torch.stack(found))

        assert attend(tokens, 1) == pytest.approx(attend(tokens[order], 1))
        assert abs(attend(tokens, 2) - attend(tokens[order], 2)) > 0.01
