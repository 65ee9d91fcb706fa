"""What users assume of training at sampled positions, for every sampler, and of one in three architectures.

A new sampler gets all of it with one entry in POSITION_SAMPLERS.
"""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lengthwise.alignment import PairGeometry
from lengthwise.checkpoints import FullLogits, hidden_states_for
from lengthwise.positions import POSITION_SAMPLERS, position_sampler
from tests.positions.battery import (
    assert_same_with_checkpointing,
    in_architectures,
    plain,
    tokens,
    two_pairs,
)

LENGTH, TARGET = 20, 40

every_sampler = pytest.mark.parametrize(
    ("name", "architecture"), in_architectures(POSITION_SAMPLERS, ("skip",))
)


def positions(name: str, rows: int = 2) -> Tensor:
    """A draw that is not consecutive, the same in all rows."""
    sampler = position_sampler(name)
    drawn = (sampler(np.random.default_rng(seed), LENGTH, TARGET) for seed in range(99))
    return next(p for p in drawn if (p.diff() != 1).any()).expand(rows, -1)


@torch.no_grad()
def logits(of: Any, ids: Tensor, position_ids: Tensor) -> Tensor:
    return hidden_states_for(of, FullLogits("for the test"), ids, position_ids=position_ids)


@every_sampler
def test_a_row_is_one_document(name: str, architecture: str):
    """Every token attends to all before it: the logits are those under an explicit causal mask.

    Without a mask transformers takes steps other than +1 for borders between packed documents.
    """
    base, ids, at = plain(architecture), tokens(LENGTH), positions(name)
    causal = torch.ones(LENGTH, LENGTH).tril().bool().expand(2, 1, -1, -1)
    with torch.no_grad():
        expected = base(input_ids=ids, position_ids=at, attention_mask=causal, use_cache=False).logits
    torch.testing.assert_close(logits(base, ids, at), expected, rtol=1e-5, atol=1e-5)
    # The first token is seen from the last one, across all gaps.
    other = ids.clone()
    other[:, 0] = (ids[:, 0] + 1) % 320
    assert (logits(base, other, at) - expected)[:, -1].abs().max() > 1e-4


@every_sampler
def test_a_batch_of_two_is_two_batches_of_one(name: str, architecture: str):
    base, ids, at = plain(architecture), tokens(LENGTH), positions(name)
    both = logits(base, ids, at)
    for row in (slice(0, 1), slice(1, 2)):
        torch.testing.assert_close(logits(base, ids[row], at[row]), both[row], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("view", ["gap", "truncation"])
@every_sampler
def test_gradients_are_finite_and_the_same_with_checkpointing(name: str, architecture: str, view: str):
    at = positions(name, rows=4).clone()
    if view == "gap":
        at[:2] = torch.arange(LENGTH)
    offset = 0 if view == "gap" else 3
    batch = (*two_pairs(LENGTH, offset), PairGeometry(LENGTH, offset, 4))
    assert_same_with_checkpointing(lambda: plain(architecture), *batch, position_ids=at)
