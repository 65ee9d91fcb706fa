from __future__ import annotations

import random

import pytest
import torch
from torch.nn import functional as F

from lengthwise_studies.synthetic.optimizers import OPTIMIZERS
from lengthwise_studies.synthetic.tasks import SYMBOL_TASKS
from lengthwise_studies.synthetic.tasks.symbols import symbol_batch
from lengthwise_studies.synthetic.training import symbol_accuracy, symbol_batches, symbol_losses, train
from lengthwise_studies.synthetic.transformer import Architecture, StackedTransformer

TASK = SYMBOL_TASKS["even-pairs"]


def _model(seeds, **options) -> StackedTransformer:
    size = len(TASK.vocabulary)
    return StackedTransformer(
        Architecture(vocabulary=size, tokens=size, width=16, heads=2, hidden=32, **options), seeds
    )


def test_samples_depend_on_the_seed_alone():
    [both] = symbol_batches(TASK, longest=6, size=4, steps=1, seeds=[1, 2])
    [second] = symbol_batches(TASK, longest=6, size=4, steps=1, seeds=[2])
    width = second.tokens.shape[-1]
    assert torch.equal(both.tokens[1, :, :width], second.tokens[0])
    assert not torch.equal(both.tokens[0, :, :width], both.tokens[1, :, :width])


def test_each_loss_is_the_models_own():
    model = _model([0, 1])
    [batch] = symbol_batches(TASK, longest=6, size=4, steps=1, seeds=[1, 2])
    losses = symbol_losses(model, batch)
    for index in range(2):
        expected = F.cross_entropy(
            model.logits(batch.tokens)[index].flatten(0, 1), batch.labels[index].flatten()
        )
        assert losses[index].item() == pytest.approx(expected.item(), rel=1e-5)


def test_exact_match_is_what_greedy_decoding_gets_right():
    task = SYMBOL_TASKS["copy"]
    size = len(task.vocabulary)
    model = StackedTransformer(
        Architecture(vocabulary=size, tokens=size, width=16, heads=2, hidden=32, encoding="rotary"), [0, 1]
    )
    drawn = symbol_batches(task, longest=2, size=16, steps=60, seeds=[0, 1])
    list(train(model, drawn, OPTIMIZERS["adam"], count=60, rates=[4e-3] * 2, losses=symbol_losses))
    accuracy = symbol_accuracy(model, task, length=1, samples=40, seed=5)
    batch = symbol_batch(task, [1] * 40, random.Random(5))
    for index in range(2):
        right = 0
        for sample in batch.tokens:
            # ^ q = a $
            text = sample[:3]
            for _ in range(2):
                logits = model.logits(text.expand(2, 1, -1))
                text = torch.cat([text, logits[index, 0, -1].argmax().view(1)])
            right += torch.equal(text, sample[:5])
        assert accuracy.exact[index].item() == pytest.approx(right / 40)
        assert accuracy.tokens[index] >= accuracy.exact[index]
    assert accuracy.tokens.min() > 0


def test_a_model_learns_what_it_is_asked_for():
    model = _model([0, 1], encoding="learned")
    before = symbol_accuracy(model, TASK, length=3, samples=64, seed=9)
    drawn = symbol_batches(TASK, longest=4, size=32, steps=250, seeds=[0, 1])
    list(train(model, drawn, OPTIMIZERS["adam"], count=250, rates=[4e-3] * 2, losses=symbol_losses))
    after = symbol_accuracy(model, TASK, length=3, samples=64, seed=9)
    assert after.exact.min() > 0.95
    assert before.exact.max() < 0.7
