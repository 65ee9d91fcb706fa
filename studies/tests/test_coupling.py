"""Coupled batches, the losses, joint greedy decoding, and the head that points."""

import math
import random
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F

from lengthwise_studies.sparsity.coupled_tasks import ADDITION, COUPLED_TASKS, PARITY
from lengthwise_studies.sparsity.coupling import (
    IGNORED,
    PREDICTED,
    coupled_batch,
    coupled_batches,
    coupled_losses,
    exact_responses,
    held_out_batch,
)
from lengthwise_studies.sparsity.coupling_study import ARM_NAMES
from lengthwise_studies.synthetic.training import OPTIMIZERS, one_thread, train
from lengthwise_studies.synthetic.transformer import (
    Architecture,
    StackedTransformer,
    causal_bias,
    pointed_ids,
)

TABLE = 16


@pytest.fixture(autouse=True)
def _small_models_on_one_thread():
    with one_thread():
        yield


def _model(ids, seeds=(0, 1), task=PARITY):
    symbols = len(task.vocabulary)
    return StackedTransformer(
        Architecture(
            vocabulary=symbols,
            tokens=symbols,
            id_table=0 if ids == "none" else TABLE,
            ids=TABLE if ids in PREDICTED else 0,
            pointing=ids == "pointed",
            width=8,
            layers=1,
            heads=2,
            hidden=16,
        ),
        seeds,
    )


def _tested(ids, samples=20, length=2):
    return held_out_batch(PARITY, ids, length=length, models=2, samples=samples, seed=1, table=TABLE)


class TestBatches:
    def test_labels_are_the_response_and_its_ids(self):
        batch = coupled_batch(PARITY, "predicted", [3], [random.Random(1)], table=TABLE, start=True)
        assert batch.tokens.shape == (1, 1, 9)
        assert batch.labels[0, 0].tolist() == [IGNORED] * 4 + batch.tokens[0, 0, 5:].tolist() + [IGNORED]
        assert batch.id_labels[0, 0].tolist() == [IGNORED] * 4 + batch.ids[0, 0, 5:].tolist() + [IGNORED]
        assert (batch.ids[0, 0] - batch.ids[0, 0, 0]).tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 4]

    @pytest.mark.parametrize("task", COUPLED_TASKS.values(), ids=lambda task: task.name)
    def test_all_arms_see_the_same_samples(self, task):
        batches = [
            held_out_batch(task, arm, length=3, models=2, samples=4, seed=7, table=32) for arm in ARM_NAMES
        ]
        for batch in batches[1:]:
            assert torch.equal(batch.tokens, batches[0].tokens)
        assert not torch.equal(batches[0].tokens[0], batches[0].tokens[1])
        assert batches[0].ids is None

    def test_random_starts_train_every_id(self):
        drawn = list(coupled_batches(PARITY, "coupled", longest=3, size=20, steps=20, seeds=[0], table=TABLE))
        seen = torch.cat([batch.ids.flatten() for batch in drawn])
        assert set(seen.tolist()) == set(range(TABLE))

    def test_random_ids_are_distinct_and_rise(self):
        batch = _tested("random")
        assert (batch.ids.diff(dim=-1) > 0).all()
        assert batch.ids.max() < TABLE


@torch.no_grad()
@pytest.mark.parametrize("arm", ["none", "predicted"])
def test_the_loss_is_the_mean_over_the_response_plus_that_of_the_ids(arm):
    model, batch = _model(arm), _tested(arm, samples=3)
    logits, id_logits = model.heads(batch.tokens, ids=batch.ids)
    for one in range(2):
        asked = batch.labels[one] != IGNORED
        expected = F.cross_entropy(logits[one][asked], batch.labels[one][asked])
        if batch.id_labels is not None:
            expected = expected + F.cross_entropy(id_logits[one][asked], batch.id_labels[one][asked])
        assert float(coupled_losses(model, batch)[one]) == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize("arm", ["predicted", "pointed"])
def test_greedy_decoding_is_exact_where_every_step_is_right_given_the_right_ones(arm):
    model = _model(arm)
    drawn = coupled_batches(PARITY, arm, longest=2, size=16, steps=150, seeds=[0, 1], table=TABLE)
    list(train(model, drawn, OPTIMIZERS["adam"], count=150, rates=[2e-2] * 2, losses=coupled_losses))
    batch = _tested(arm)
    logits, id_logits = model.heads(batch.tokens, ids=batch.ids)
    right = (logits.argmax(-1) == batch.labels) & (id_logits.argmax(-1) == batch.id_labels)
    expected = (right | (batch.labels == IGNORED)).all(-1).sum(-1)
    assert 0 < expected.sum() < 40, "a case in which nothing, or everything, is right shows little"
    tokens, both = exact_responses(model, batch)
    assert both == expected.tolist()
    assert all(one >= other for one, other in zip(tokens, both, strict=True))


def test_a_wrong_id_is_an_error_in_both_and_not_in_tokens():
    batch = _tested("predicted", samples=5)
    last = batch.tokens.shape[-1] - 1

    def heads(tokens, ids):
        at = tokens.shape[-1]
        logits = F.one_hot(batch.tokens[..., at : at + 1], len(PARITY.vocabulary)).float()
        wrong = torch.zeros_like(batch.ids[..., at : at + 1])
        wrong[0, 2] = at == last
        return logits, F.one_hot(batch.ids[..., at : at + 1] + wrong, TABLE).float()

    assert exact_responses(SimpleNamespace(heads=heads), batch) == ([5, 5], [4, 5])


def test_the_pointing_head_adds_up_what_points_at_an_id():
    generator = torch.Generator().manual_seed(0)
    query, keys = (torch.randn(1, 2, 5, width, generator=generator) for width in (4, 8))
    ids = torch.tensor([[[3, 4, 4, 0, 7], [1, 2, 3, 3, 1]]])
    found = pointed_ids(query, keys, causal_bias(5, query), ids, 8).exp()
    for sample in range(2):
        for at in range(5):
            scores = {
                (source, more): float(query[0, sample, at] @ keys[0, sample, source].view(2, 4)[more]) / 2
                for source in range(at + 1)
                for more in (0, 1)
            }
            total = sum(math.exp(score) for score in scores.values())
            expected = [0.0] * 8
            for (source, more), score in scores.items():
                expected[min(7, int(ids[0, sample, source]) + more)] += math.exp(score) / total
            assert found[0, sample, at].tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("arm", ["predicted", "pointed"])
def test_a_model_of_a_stack_is_what_it_is_alone(arm):
    batch = held_out_batch(ADDITION, arm, length=2, models=1, samples=3, seed=0, table=TABLE)
    stack, alone = _model(arm, task=ADDITION), _model(arm, seeds=[1], task=ADDITION)
    for one, other in zip(
        stack.heads(batch.tokens, ids=batch.ids), alone.heads(batch.tokens, ids=batch.ids), strict=True
    ):
        torch.testing.assert_close(one[1:], other)
