"""Constructed models for which one measurement says nothing and another tells them apart (choosing-a-measurement)."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lengthwise.measure import Misalignment, Perplexity, Recall
from lengthwise.measure.runner import run as measure
from lengthwise.text import TokenDocument, TokenDocuments

VOCABULARY = 320
RECALL = Recall(distances=(96,), passage=16, scored=12, pairs=8)


@pytest.fixture(scope="module")
def unrepeated() -> TokenDocuments:
    """Each token once within 160: a shuffle of half of the vocabulary, then of the other half, and so on."""
    rng = np.random.default_rng(0)
    halves = np.split(np.arange(VOCABULARY), 2)

    def tokens() -> np.ndarray:
        return np.concatenate([rng.permutation(halves[i % 2]) for i in range(6)]).astype(np.int32)

    documents = tuple(TokenDocument(f"doc{i}", tokens()) for i in range(4))
    return TokenDocuments(documents, "unrepeated", "corpus", "tokenizer")


def copying(reach: int):
    """Logits that favour the token after the last occurrence of the current one, within `reach` tokens."""

    def logits(ids: torch.Tensor) -> torch.Tensor:
        found = torch.zeros(*ids.shape, VOCABULARY)
        for sequence, line in zip(ids.tolist(), found, strict=True):
            last: dict[int, int] = {}
            for row, token in enumerate(sequence):
                if row - last.get(token, -VOCABULARY) <= reach:
                    line[row, sequence[last[token] + 1]] = 8.0
                last[token] = row
        return found

    return logits


def value(found, metric: str) -> float:
    [row] = [row for row in found.rows if row.metric == metric and row.is_headline]
    assert row.value is not None
    return row.value


def test_loss_and_disagreement_do_not_see_that_far_context_is_forgotten(fake, unrepeated):
    """Two models that differ only in whether they copy from 96 tokens back, on text that has nothing to copy."""
    near, far = fake(copying(48), VOCABULARY), fake(copying(128), VOCABULARY)
    spec = Perplexity(lengths=(128,), segments=4)
    assert value(measure(spec, near, unrepeated), "loss") == pytest.approx(
        value(measure(spec, far, unrepeated), "loss"), abs=1e-6
    )
    pairs = Misalignment(lengths=(128,), windows=4)
    assert value(measure(pairs, near, unrepeated), "jeffreys") == 0
    assert value(measure(pairs, far, unrepeated), "jeffreys") == 0
    assert value(measure(RECALL, near, unrepeated), "benefit") == 0
    assert value(measure(RECALL, far, unrepeated), "benefit") > 3
