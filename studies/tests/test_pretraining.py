from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from lengthwise.errors import LengthwiseError
from lengthwise.testing import tiny_llama
from lengthwise.text import TokenDocument
from lengthwise_studies import pretraining
from lengthwise_studies.pretraining import Pretraining, next_token_loss, pretrain

SETTINGS = Pretraining(steps=6, seed=3, length=16, batch_size=4, warmup_steps=2)


@pytest.fixture
def documents() -> list[TokenDocument]:
    rng = np.random.default_rng(0)
    return [TokenDocument(str(i), rng.integers(320, size=200, dtype=np.int32)) for i in range(3)]


def weights(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@pytest.mark.parametrize("rows", [1, 7, 256, 257])
def test_loss_and_gradients_are_those_of_the_models_own_logits(rows: int):
    model = tiny_llama(max_position_embeddings=2048).double()
    tokens = torch.randint(320, (1, rows + 1), generator=torch.Generator().manual_seed(0))
    loss = next_token_loss(model, tokens)
    (3 * loss).backward()
    found = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    model.zero_grad()
    logits = model(input_ids=tokens[:, :-1]).logits.flatten(0, 1)
    expected = torch.nn.functional.cross_entropy(logits, tokens[:, 1:].flatten())
    (3 * expected).backward()
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=1e-12)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad, rtol=1e-9, atol=1e-12, msg=name)


def test_learning_rate_warms_up_and_ends_at_its_share():
    settings = Pretraining(steps=700, seed=0)
    rates = [settings.learning_rate(step) for step in range(701)]
    assert rates[0] == pytest.approx(3e-3 / 80)
    assert max(rates) == rates[80] == pytest.approx(3e-3)
    assert rates[79] == pytest.approx(3e-3)
    assert rates[390] == pytest.approx(3e-3 * (0.05 + 0.95 / 2))
    assert rates[700] == pytest.approx(0.05 * 3e-3)


def test_it_learns_and_is_deterministic(documents, tmp_path: Path):
    runs = []
    for _ in range(2):
        model = tiny_llama(initializer_range=0.02)
        losses = pretrain(model, documents, SETTINGS, checkpoint=tmp_path / "checkpoint")
        runs.append((losses, weights(model)))
        assert not model.training
    assert runs[0][0] == runs[1][0]
    assert torch.equal(runs[0][1], runs[1][1])
    assert len(runs[0][0]) == 6
    assert runs[0][0][0] == pytest.approx(math.log(320), rel=0.02)
    other = Pretraining(steps=6, seed=4, length=16, batch_size=4, warmup_steps=2)
    assert pretrain(tiny_llama(), documents, other, checkpoint=tmp_path / "checkpoint") != runs[0][0]


@pytest.mark.parametrize("killed_at", [1, 3, 5])
def test_interrupted_and_taken_up_it_ends_the_same(documents, tmp_path: Path, monkeypatch, killed_at: int):
    expected = tiny_llama()
    losses = pretrain(expected, documents, SETTINGS, checkpoint=tmp_path / "other", checkpoint_every=2)

    own_batch = pretraining._batch

    def interrupt(sampler, step, settings):
        if step == killed_at:
            raise KeyboardInterrupt
        return own_batch(sampler, step, settings)

    checkpoint = tmp_path / "checkpoint"
    monkeypatch.setattr(pretraining, "_batch", interrupt)
    with pytest.raises(KeyboardInterrupt):
        pretrain(tiny_llama(), documents, SETTINGS, checkpoint=checkpoint, checkpoint_every=2)
    assert checkpoint.exists() == (killed_at >= 2)

    steps: list[int] = []

    def count(sampler, step, settings):
        steps.append(step)
        return own_batch(sampler, step, settings)

    monkeypatch.setattr(pretraining, "_batch", count)
    model = tiny_llama()
    assert pretrain(model, documents, SETTINGS, checkpoint=checkpoint, checkpoint_every=2) == losses
    assert steps == list(range(killed_at // 2 * 2, 6))
    assert torch.equal(weights(model), weights(expected))
    assert not checkpoint.exists()


def test_a_checkpoint_of_other_settings_is_not_taken_up(documents, tmp_path: Path, monkeypatch):
    own_unlink = Path.unlink
    monkeypatch.setattr(Path, "unlink", lambda *_, **__: None)
    checkpoint = tmp_path / "checkpoint"
    pretrain(tiny_llama(), documents, SETTINGS, checkpoint=checkpoint, checkpoint_every=2)
    monkeypatch.setattr(Path, "unlink", own_unlink)
    assert checkpoint.exists()
    other = Pretraining(steps=5, seed=3, length=16, batch_size=4, warmup_steps=2)
    fresh = pretrain(tiny_llama(), documents, other, checkpoint=tmp_path / "none")
    assert pretrain(tiny_llama(), documents, other, checkpoint=checkpoint) == fresh


def test_a_loss_that_is_not_finite_stops_it(documents, tmp_path: Path):
    model = tiny_llama()
    with torch.no_grad():
        model.get_input_embeddings().weight[:] = torch.nan
    with pytest.raises(LengthwiseError, match="the loss of step 0 is nan"):
        pretrain(model, documents, SETTINGS, checkpoint=tmp_path / "checkpoint")
