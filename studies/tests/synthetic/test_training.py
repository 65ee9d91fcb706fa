"""Side by side or one after the other: the same models."""

import pytest
import torch

from lengthwise_studies.synthetic.encodings import ENCODINGS
from lengthwise_studies.synthetic.reparameterization import IDENTITY
from lengthwise_studies.synthetic.tasks import BIT_TASKS
from lengthwise_studies.synthetic.training import OPTIMIZERS, Adam, batches, predictions, train, value_losses
from lengthwise_studies.synthetic.transformer import Architecture, StackedTransformer

STEPS, SIZE = 100, 8


def _architecture(name: str) -> Architecture:
    return Architecture(vocabulary=4, encoding=name, table=32, value=True, width=16, heads=2, hidden=32)


def _batches(architecture: Architecture, seeds, task="mean"):
    encoding, sizes = architecture.build_encoding(), {"longest": 6, "size": SIZE, "steps": STEPS}
    return batches(BIT_TASKS[task], IDENTITY, encoding, seeds=seeds, **sizes)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_model_of_a_stack_trains_as_by_the_optimizers_of_torch_alone(name, encoding):
    architecture, rule, rate = _architecture(encoding), OPTIMIZERS[name], 2e-3
    stack = StackedTransformer(architecture, [0, 1])
    drawn = _batches(architecture, [0, 1])
    losses = torch.stack(list(train(stack, drawn, rule, count=STEPS, rates=[5e-3, rate])))
    alone = StackedTransformer(architecture, [1])
    theirs = torch.optim.SGD(alone.parameters(), lr=rate)
    if name == "adam":
        theirs = torch.optim.Adam(alone.parameters(), lr=rate, betas=Adam.BETAS, eps=Adam.EPSILON)
    for step, batch in enumerate(_batches(architecture, [1])):
        theirs.param_groups[0]["lr"] = rate * rule.schedule(step, STEPS)
        loss = value_losses(alone, batch).sum()
        theirs.zero_grad()
        loss.backward()
        if name == "adam":
            torch.nn.utils.clip_grad_norm_(alone.parameters(), Adam.LARGEST_NORM)
        theirs.step()
        assert abs(loss.item() - losses[step, 1].item()) < 1e-5
    assert torch.allclose(stack.flat[1], alone.flat[0], atol=1e-5)


def test_schedules_end_at_nothing():
    for optimizer in OPTIMIZERS.values():
        factors = [optimizer.schedule(step, 1000) for step in range(1000)]
        assert max(factors) <= 1
        assert factors[-1] < 1e-4
    assert OPTIMIZERS["sgd"].schedule(500, 1000) == pytest.approx(0.5)


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
