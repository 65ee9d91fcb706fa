from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from lengthwise.models import EMBEDDED, load
from lengthwise.models.embedded_models import SHIPPED
from lengthwise.testing import tiny_text
from lengthwise.text import Corpus, load_corpus, tokenize
from lengthwise_studies import pretraining
from lengthwise_studies.pretraining import RECORD_FILE, train_bpe
from lengthwise_studies.tiny_models import TinyModel
from tools.tiny_books import write_tiny_books


@pytest.fixture
def _small_books(monkeypatch: pytest.MonkeyPatch) -> None:
    def load_corpus(spec: str, *, split: str) -> Corpus:
        assert spec == "books"
        words = 6000 if split == "test" else 3000
        document = {split: tiny_text(words, seed=len(split))}
        return Corpus.of("books", document, split=split, split_rule="made up")  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(pretraining, "load_corpus", load_corpus)
    monkeypatch.setattr(pretraining, "_HELD_OUT_WINDOWS", 8)


def test_the_model_is_the_one_described():
    model = TinyModel().make()
    assert model.num_parameters() == EMBEDDED["tiny-books"].parameters == 935_040
    assert model.config.head_dim == 32
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight


@pytest.mark.usefixtures("_small_books", "cache")
def test_built_once_recorded_and_loadable(monkeypatch: pytest.MonkeyPatch):
    folder = TinyModel(steps=2, seed=1).build()
    record = json.loads((folder / RECORD_FILE).read_text())
    assert (record["steps"], record["seed"], record["length"]) == (2, 1, 128)
    assert record["parameters"] == 935_040
    assert len(record["losses"]) == 2
    loaded = load(str(folder))
    assert loaded.describe()["head"] == "proven"
    assert loaded.trained_length == 128
    held_out = pretraining.load_corpus("books", split="test")
    tokens = pretraining.tokenize(held_out, loaded.tokenizer)
    assert pretraining.held_out_loss(loaded.model, tokens, 128) == pytest.approx(record["held_out_loss"])

    monkeypatch.setattr(pretraining, "train_on_books", lambda *_, **__: pytest.fail("trained again"))
    assert TinyModel(steps=2, seed=1).build() == folder


def test_the_bpe_has_every_byte_and_the_asked_size():
    tokenizer = train_bpe([tiny_text(3000)], vocab_size=400)
    assert len(tokenizer) <= 400
    assert tokenizer.eos_token_id == 0
    strange = "é 漢 \x00 \t\n<"
    ids = tokenizer(strange).input_ids
    assert tokenizer.decode(ids) == strange
    assert 0 not in ids


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
        losses.append(pretraining.held_out_loss(model.model, tokenize(books, model.tokenizer), 128))
    # Another processor rounds differently, and training amplifies that.
    assert losses[0] == pytest.approx(losses[1], abs=0.02)
