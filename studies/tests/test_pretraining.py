"""tiny-books and its siblings: their loss, their training, and the weights that ship."""

import hashlib
import json
import math
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from lengthwise.checkpoints import EMBEDDED
from lengthwise.checkpoints.embedded_models import SHIPPED
from lengthwise.errors import LengthwiseError
from lengthwise.subjects import load
from lengthwise.testing import tiny_llama, tiny_text
from lengthwise.text import Corpus, TokenDocument, load_corpus, tokenize
from lengthwise_studies import tiny_models
from lengthwise_studies.tiny_models import RECORD_FILE, Pretraining, TinyModel, next_token_loss, pretrain
from tools.tiny_books import write_tiny_books


def trained(seed: int, rate: float = 3e-3) -> tuple[list[float], torch.Tensor]:
    """The losses of six steps on random tokens, and the weights after them."""
    rng = np.random.default_rng(0)
    documents = [TokenDocument(str(i), rng.integers(320, size=200, dtype=np.int32)) for i in range(3)]
    model = tiny_llama(initializer_range=0.02)
    settings = Pretraining(
        steps=6, seed=seed, length=16, batch_size=4, warmup_steps=2, peak_learning_rate=rate
    )
    losses = pretrain(model, documents, settings, what="a test")
    return losses, torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@pytest.mark.parametrize("farthest", [None, 99])
def test_loss_is_that_of_the_next_token_at_the_drawn_positions(farthest: int | None):
    model = tiny_llama(max_position_embeddings=2048).double()
    tokens = torch.randint(320, (1, 8), generator=torch.Generator().manual_seed(0))
    drawn = Pretraining(steps=1, seed=0, length=7, batch_size=1, positions=farthest).drawn_positions(0)
    logits = model(
        input_ids=tokens, position_ids=None if drawn is None else torch.cat([drawn, drawn[:, -1:] + 1], 1)
    ).logits
    expected = -logits[0, :-1].log_softmax(-1)[torch.arange(7), tokens[0, 1:]].mean()
    torch.testing.assert_close(next_token_loss(model, tokens, drawn), expected, rtol=1e-12, atol=1e-12)


def test_random_positions_are_sorted_subsets_that_depend_on_seed_and_step():
    settings = Pretraining(steps=1, seed=0, length=16, batch_size=4, positions=64)
    drawn = settings.drawn_positions(3)
    assert drawn.shape == (4, 16)
    assert (drawn.diff(dim=1) > 0).all()
    assert 48 < drawn.max() < 64
    assert torch.equal(drawn, settings.drawn_positions(3))  # pyright: ignore[reportArgumentType]
    assert not torch.equal(drawn, settings.drawn_positions(4))  # pyright: ignore[reportArgumentType]


def test_learning_rate_warms_up_and_ends_at_its_share():
    settings = Pretraining(steps=700, seed=0)
    rates = [settings.learning_rate(step) for step in range(701)]
    assert max(rates) == rates[80] == pytest.approx(3e-3)
    expected = {0: 3e-3 / 80, 79: 3e-3, 390: 3e-3 * (0.05 + 0.95 / 2), 700: 0.05 * 3e-3}
    assert {step: rates[step] for step in expected} == pytest.approx(expected)


def test_it_begins_at_chance_is_deterministic_and_stops_at_a_loss_that_is_not_finite():
    losses, weights = trained(3)
    again, same = trained(3)
    assert losses == again
    assert torch.equal(weights, same)
    assert len(losses) == 6
    assert losses[0] == pytest.approx(math.log(320), rel=0.02)
    assert trained(4)[0] != losses
    with pytest.raises(LengthwiseError, match="the loss of step 1 is nan"):
        trained(3, rate=math.nan)


def test_the_model_is_the_one_described():
    model = TinyModel().make()
    assert model.num_parameters() == EMBEDDED["tiny-books"]["parameters"] == 935_040
    assert model.config.head_dim == 32
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight


@pytest.mark.usefixtures("cache")
def test_built_once_recorded_and_loadable(monkeypatch: pytest.MonkeyPatch):
    def small(spec: str, *, split: str) -> Corpus:
        words = 6000 if split == "test" else 3000
        document = {split: tiny_text(words, seed=len(split))}
        return Corpus.of(spec, document, split=split, split_rule="made up")  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(tiny_models, "load_corpus", small)
    monkeypatch.setattr(tiny_models, "_HELD_OUT_WINDOWS", 8)
    folder = TinyModel(steps=2, seed=1).build()
    record = json.loads((folder / RECORD_FILE).read_text())
    assert (record["steps"], record["seed"], record["length"], len(record["losses"])) == (2, 1, 128, 2)
    loaded = load(str(folder))
    assert (loaded.describe()["head"], loaded.trained_length) == ("proven", 128)
    tokens = tokenize(small("books", split="test"), loaded.tokenizer)
    held_out = tiny_models.held_out_loss(loaded.model, tokens, 128)
    assert held_out == pytest.approx(record["held_out_loss"])
    # The BPE has every byte, and the end of text is no piece of text.
    strange = "é 漢 \x00 \t\n<"
    ids = loaded.tokenizer(strange).input_ids
    assert loaded.tokenizer.decode(ids) == strange
    assert loaded.tokenizer.eos_token_id == 0
    assert 0 not in ids

    monkeypatch.setattr(tiny_models, "pretrain", lambda *_, **__: pytest.fail("trained again"))
    assert TinyModel(steps=2, seed=1).build() == folder


def test_the_shipped_weights_are_those_of_the_record():
    weights = hashlib.sha256((SHIPPED / "model.safetensors").read_bytes()).hexdigest()
    assert weights == "aaafdbddb829cd527392175b0928f299174cdf959167f39a6ed6cc0499fe70c7"
    assert json.loads((SHIPPED / RECORD_FILE).read_text())["held_out_loss"] == pytest.approx(3.3972, abs=1e-4)


@pytest.mark.skipif(
    "LENGTHWISE_PRETRAIN" not in os.environ, reason="pretrains for minutes: LENGTHWISE_PRETRAIN=1"
)
def test_the_command_makes_the_shipped_model_again(tmp_path: Path):
    write_tiny_books(tmp_path)
    books = load_corpus("books", split="test")
    losses = []
    for folder in (tmp_path, SHIPPED):
        model = load(str(folder), dtype="float32")
        losses.append(tiny_models.held_out_loss(model.model, tokenize(books, model.tokenizer), 128))
    # Another processor rounds differently, and training amplifies that.
    assert losses[0] == pytest.approx(losses[1], abs=0.02)
