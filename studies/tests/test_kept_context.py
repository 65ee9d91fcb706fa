"""Removing tokens from a context: exact, and refused where a model cannot do it."""

import numpy as np
import pytest
import torch

from lengthwise.errors import UsageError
from lengthwise.subjects import LoadedModel
from lengthwise.testing import tiny_llama
from lengthwise_studies.sparsity.kept_context import (
    check_removal,
    context,
    distant_positions,
    embedding_attributions,
    losses_keeping,
)
from tests.architectures import TINY_ARCHITECTURES, tiny_model
from tests.readings import in_memory

# ALiBi takes distances from the mask; these two have local attention of 16 tokens.
REFUSED = {"bloom-alibi", "mistral", "gemma2-soft-cap", "gemma3-text", "gemma3-text-soft-cap"}
TARGET, SHORT, KEPT = 30, 8, (4, 11, 12)


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return in_memory(tiny_llama().double())


@pytest.fixture(scope="module")
def ids() -> np.ndarray:
    return np.random.default_rng(5).integers(320, size=40)


def masked_loss(model: LoadedModel, ids: np.ndarray, kept: np.ndarray) -> float:
    """The target's loss when transformers reads every token under a mask of the removed keys."""
    allowed = torch.ones(TARGET, TARGET, dtype=torch.bool).tril()
    allowed[:, np.setdiff1d(np.arange(TARGET), kept)] = False
    mask = torch.zeros(TARGET, TARGET, dtype=torch.float64).masked_fill(~allowed, -1e300)
    with torch.no_grad():
        logits = model.model(torch.from_numpy(ids[None, :TARGET]), attention_mask=mask[None, None]).logits
    return -float(logits[0, -1].log_softmax(dim=-1)[ids[TARGET]])


def test_removed_means_masked_in_every_layer_at_unchanged_positions(model: LoadedModel, ids: np.ndarray):
    kept = context(TARGET, SHORT, KEPT)
    [[loss]] = losses_keeping(model, [ids], [TARGET], [[KEPT]], short=SHORT, batch_size=4)
    assert loss == pytest.approx(masked_loss(model, ids, kept), abs=1e-6)
    other = ids.copy()
    removed = np.setdiff1d(np.arange(TARGET), kept)
    other[removed] = (other[removed] + 7) % 320
    assert masked_loss(model, other, kept) == pytest.approx(loss, abs=1e-6)
    assert (
        abs(masked_loss(model, other, np.arange(TARGET)) - masked_loss(model, ids, np.arange(TARGET))) > 0.01
    )


def test_nothing_removed_is_the_whole_context(model: LoadedModel, ids: np.ndarray):
    sets = [distant_positions(TARGET, SHORT), ()]
    assert context(TARGET, SHORT, sets[0]).tolist() == list(range(TARGET))
    assert context(TARGET, SHORT).tolist() == [0, *range(TARGET - SHORT, TARGET)]
    [losses] = losses_keeping(model, [ids], [TARGET], [sets], short=SHORT, batch_size=1)
    assert losses[0] == pytest.approx(masked_loss(model, ids, np.arange(TARGET)), abs=1e-6)


def test_attribution_is_the_first_order_effect_of_the_embedding(model: LoadedModel, ids: np.ndarray):
    found = embedding_attributions(model, ids, TARGET).sum(-1)
    embeddings = model.model.get_input_embeddings()(torch.from_numpy(ids[None, :TARGET])).detach()
    # transformers takes norms in fp32, so a small step is lost in rounding.
    step = 1e-2

    def loss(token: int, scale: float) -> float:
        changed = embeddings.clone()
        changed[0, token] *= scale
        with torch.no_grad():
            logits = model.model(inputs_embeds=changed).logits[0, -1]
        return -float(logits.log_softmax(dim=-1)[ids[TARGET]])

    for token in np.argsort(-abs(found))[:4]:
        slope = (loss(token, 1 - step) - loss(token, 1 + step)) / (2 * step)
        assert found[token] == pytest.approx(slope, rel=0.02)


@pytest.mark.parametrize("name", TINY_ARCHITECTURES)
def test_every_family_is_proven_or_refused(name: str):
    model = in_memory(tiny_model(name), name)
    if name in REFUSED:
        with pytest.raises(UsageError):
            check_removal(model, 48)
    else:
        check_removal(model, 48)
