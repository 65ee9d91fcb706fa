from __future__ import annotations

import json

import pytest
import torch

from lengthwise.models import EMBEDDED, load
from lengthwise.models.embedded import made_folder
from lengthwise.testing import tiny_text
from lengthwise.text import Corpus, Document
from lengthwise.training import pretraining
from lengthwise.training.pretraining import RECORD_FILE, build_tiny_books, tiny_books_config, train_bpe


@pytest.fixture
def _small_books(monkeypatch: pytest.MonkeyPatch) -> None:
    def load_corpus(spec: str, *, split: str) -> Corpus:
        assert spec == "books"
        words = 6000 if split == "test" else 3000
        document = Document(split, tiny_text(words, seed=len(split)))
        return Corpus.of("books", [document], split=split, split_rule="made up")  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(pretraining, "load_corpus", load_corpus)
    monkeypatch.setattr(pretraining, "_HELD_OUT_WINDOWS", 8)


def test_the_model_is_the_one_described():
    from transformers import LlamaForCausalLM

    model = LlamaForCausalLM(tiny_books_config())
    assert model.num_parameters() == EMBEDDED["tiny-books"].parameters == 935_040
    assert model.config.head_dim == 32
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight


@pytest.mark.usefixtures("_small_books", "cache")
def test_built_once_recorded_and_loadable(monkeypatch: pytest.MonkeyPatch):
    folder = build_tiny_books(steps=2, seed=1)
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
    assert build_tiny_books(steps=2, seed=1) == folder


@pytest.mark.usefixtures("_small_books", "cache")
def test_another_seed_is_another_checkpoint():
    one, two = (build_tiny_books(steps=1, seed=seed) for seed in (0, 1))
    assert one != two
    weights = [load(str(folder)).model.get_input_embeddings().weight for folder in (one, two)]
    assert not torch.equal(*weights)


def test_the_bpe_has_every_byte_and_the_asked_size():
    tokenizer = train_bpe([tiny_text(3000)], vocab_size=400)
    assert len(tokenizer) <= 400
    assert tokenizer.eos_token_id == 0
    strange = "é 漢 \x00 \t\n<"
    ids = tokenizer(strange).input_ids
    assert tokenizer.decode(ids) == strange
    assert 0 not in ids


@pytest.mark.real
def test_loaded_by_name():
    loaded = load("tiny-books")
    folder = made_folder("tiny-books")
    assert folder is not None
    assert build_tiny_books() == folder
    assert loaded.vocab_size == len(loaded.tokenizer) == 1024
    assert json.loads((folder / RECORD_FILE).read_text())["held_out_loss"] < 3.5
