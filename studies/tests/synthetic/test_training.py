"""Side by side or one after the other: the same models."""

from __future__ import annotations

import pytest
import torch

from lengthwise_studies.synthetic.reparameterization import IDENTITY
from lengthwise_studies.synthetic.tasks import BIT_TASKS
from lengthwise_studies.synthetic.training import (
    OPTIMIZERS,
    Adam,
    batches,
    predictions,
    sgd,
    train,
    value_losses,
)
from lengthwise_studies.synthetic.transformer import Architecture, StackedTransformer

STEPS, SIZE = 100, 8


def _architecture(name: str) -> Architecture:
    return Architecture(vocabulary=4, encoding=name, table=32, value=True, width=16, heads=2, hidden=32)


def _batches(architecture: Architecture, seeds, task="mean"):
    return batches(
        BIT_TASKS[task],
        IDENTITY,
        architecture.build_encoding(),
        longest=6,
        size=SIZE,
        steps=STEPS,
        seeds=seeds,
    )


@pytest.mark.parametrize("name", ["none", "learned", "randomised"])
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_a_stack_trains_as_its_models_do_alone(name, optimizer):
    architecture = _architecture(name)
    seeds, rates = [0, 1, 0], [1e-3, 1e-3, 4e-3]
    rule = OPTIMIZERS[optimizer]
    together = StackedTransformer(architecture, seeds)
    losses = torch.stack(list(train(together, _batches(architecture, seeds), rule, count=STEPS, rates=rates)))
    for index, (seed, rate) in enumerate(zip(seeds, rates, strict=True)):
        alone = StackedTransformer(architecture, [seed])
        own = torch.stack(list(train(alone, _batches(architecture, [seed]), rule, count=STEPS, rates=[rate])))
        assert torch.allclose(losses[:, index], own[:, 0], atol=1e-5)
        assert torch.allclose(together.flat[index], alone.flat[0], atol=1e-5)
    assert not torch.allclose(together.flat[0], together.flat[2], atol=1e-3), "the rate matters"


def test_adam_is_that_of_torch_on_each_model():
    architecture, rule, rate = _architecture("rotary"), OPTIMIZERS["adam"], 2e-3
    stack = StackedTransformer(architecture, [0, 1])
    drawn = _batches(architecture, [0, 1])
    losses = torch.stack(list(train(stack, drawn, rule, count=STEPS, rates=[rate, rate])))
    alone = StackedTransformer(architecture, [1])
    adam = torch.optim.Adam(alone.parameters(), lr=rate, betas=Adam.BETAS, eps=Adam.EPSILON)
    for step, batch in enumerate(_batches(architecture, [1])):
        adam.param_groups[0]["lr"] = rate * rule.schedule(step, STEPS)
        loss = value_losses(alone, batch).sum()
        adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(alone.parameters(), Adam.LARGEST_NORM)
        adam.step()
        assert abs(loss.item() - losses[step, 1].item()) < 1e-5
    assert torch.allclose(stack.flat[1], alone.flat[0], atol=1e-5)


def test_sgd_is_sgd():
    weights = torch.tensor([[1.0, 2.0], [1.0, 2.0]])
    sgd(weights, torch.tensor([[1.0, -1.0], [1.0, -1.0]]), torch.tensor([[0.1], [0.5]]))
    assert torch.allclose(weights, torch.tensor([[0.9, 2.1], [0.5, 2.5]]))


def test_schedules_end_at_nothing():
    for optimizer in OPTIMIZERS.values():
        factors = [optimizer.schedule(step, 1000) for step in range(1000)]
        assert max(factors) <= 1
        assert factors[-1] < 1e-4
    assert OPTIMIZERS["sgd"].schedule(0, 1000) == 1
    assert OPTIMIZERS["sgd"].schedule(500, 1000) == pytest.approx(0.5)


def test_samples_depend_on_the_seed_alone():
    architecture = _architecture("randomised")
    first = next(iter(_batches(architecture, [5, 7])))
    second = next(iter(_batches(architecture, [7, 7])))
    assert torch.equal(first.tokens[1], second.tokens[0])
    assert torch.equal(first.positions[1], second.positions[0])
    assert torch.equal(second.tokens[0], second.tokens[1])
    assert not torch.equal(first.tokens[0], first.tokens[1])


def test_samples_are_what_the_task_says():
    batch = next(iter(_batches(_architecture("none"), [0], task="sum")))
    bits = batch.tokens[0].where(batch.tokens[0] < 2, 0)
    assert torch.equal(bits.sum(-1).float(), batch.target[0])
    assert (batch.tokens[0, :, 0] == 2).all()
    assert (batch.tokens[0].gather(1, batch.last[0].unsqueeze(1)) == 3).all()


def test_a_model_learns_the_mean_and_predicts_it_beyond_its_training_length():
    architecture = Architecture(vocabulary=4, value=True, width=16, heads=2, hidden=32, layers=1)
    model = StackedTransformer(architecture, [0, 1])
    task, seeds = BIT_TASKS["uniform-count-mean"], [0, 1]
    drawn = batches(task, IDENTITY, model.encoding, longest=6, size=32, steps=400, seeds=seeds)
    list(train(model, drawn, OPTIMIZERS["adam"], count=400, rates=[4e-3, 4e-3]))
    generator = torch.Generator().manual_seed(0)
    bits = torch.randint(0, 2, (200, 12), generator=generator)
    error = (predictions(model, bits, 12, generator) - bits.float().mean(1)).square().mean(1)
    assert error.max() < 0.01, "a constant errs by 0.02"
