"""Constructed models for which one measurement says nothing and another tells them apart (choosing-a-measurement)."""

import itertools
import math

import numpy as np
import pytest
import torch

from lengthwise.alignment.formulas import cross_entropy, jeffreys
from lengthwise.measure import Limit, Misalignment, Perplexity
from lengthwise.measure.runner import run as measure
from lengthwise.text import TokenDocument, TokenDocuments
from tests.measure.copying import copying, reading

VOCABULARY = 320
LIMIT = Limit(max_length=128, reference=64, passage=16, scored=12, windows=4)


@pytest.fixture(scope="module")
def unrepeated() -> TokenDocuments:
    """Each token once within 160: a shuffle of half of the vocabulary, then of the other half, and so on."""
    rng = np.random.default_rng(0)
    halves = np.split(np.arange(VOCABULARY), 2)

    def tokens() -> np.ndarray:
        return np.concatenate([rng.permutation(halves[i % 2]) for i in range(6)]).astype(np.int32)

    documents = tuple(TokenDocument(f"doc{i}", tokens()) for i in range(4))
    return TokenDocuments(documents, "unrepeated", "corpus", "")


def value(found, metric: str) -> float:
    [row] = [row for row in found.rows if row.metric == metric and row.is_headline]
    return row.value


def test_loss_and_disagreement_do_not_see_that_far_context_is_forgotten(fake, unrepeated):
    """Two models that differ only in whether they copy from 96 tokens back, on text that has nothing to copy."""
    near, far = (reading(fake, copying(reach), vocabulary=VOCABULARY) for reach in (48, 128))
    spec = Perplexity(lengths=(128,), windows=4)
    assert value(measure(spec, near, unrepeated), "loss") == pytest.approx(
        value(measure(spec, far, unrepeated), "loss"), abs=1e-6
    )
    pairs = Misalignment(lengths=(128,), windows=4)
    assert value(measure(pairs, near, unrepeated), "jeffreys") == 0
    assert value(measure(pairs, far, unrepeated), "jeffreys") == 0
    benefits = [
        {row.distance: row.value for row in measure(LIMIT, one, unrepeated).rows if row.metric == "benefit"}
        for one in (near, far)
    ]
    farthest = max(benefits[0])
    assert farthest > 96
    assert benefits[0][farthest] == 0
    assert benefits[1][farthest] > 3


@pytest.mark.parametrize(("k", "cut"), [(1, 3), (2, 3), (2, 1)])
def test_the_best_predictions_disagree_where_the_cut_decides(k: int, cut: int) -> None:
    """The label is the parity of k fair bits at places that the text tells, flipped with probability `noise`.

    Of 6 bits the first `cut` are cut off. With P the share of samples of which it cuts a bit that counts, the best
    predictions have Jeffreys = P (1/2 - noise) log((1 - noise) / noise), and agreement with the cut view costs
    P (log 2 - H(noise)) nats of cross entropy.
    """
    noise, length = 0.1, 6

    def best(bits: tuple[int, ...], places: tuple[int, ...], seen: range) -> list[float]:
        """P(label) over all bits that are not seen."""
        ways = [[bits[at]] if at in seen else [0, 1] for at in places]
        odd = [sum(each) % 2 for each in itertools.product(*ways)]
        share = sum(odd) / len(odd)
        one = share * (1 - noise) + (1 - share) * noise
        return [1 - one, one]

    samples = [
        (bits, places)
        for bits in itertools.product((0, 1), repeat=length)
        for places in itertools.combinations(range(length), k)
    ]
    whole, late = (
        torch.tensor([best(*sample, seen) for sample in samples], dtype=torch.float64).log()
        for seen in (range(length), range(cut, length))
    )
    touched = sum(places[0] < cut for _, places in samples) / len(samples)
    expected = touched * (0.5 - noise) * math.log((1 - noise) / noise)
    assert jeffreys(whole, late).mean().item() == pytest.approx(expected)
    entropy = -noise * math.log(noise) - (1 - noise) * math.log(1 - noise)
    # The label is drawn from the best prediction with all bits.
    price = (cross_entropy(whole, late) - cross_entropy(whole, whole)).mean().item()
    assert price == pytest.approx(touched * (math.log(2) - entropy))
