from __future__ import annotations

import logging
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from lengthwise.measure.reader import CachedReader, PlainReader, reader_kind
from lengthwise.models import FullLogits, LoadedModel
from lengthwise.testing import TINY_ARCHITECTURES, tiny_llama, tiny_model, tiny_tokenizer

TOKENS = np.random.default_rng(0).integers(320, size=50)
CUTS = (0, 7, 8, 29, 41)
LOOK = 9


def loaded(model: Any) -> LoadedModel:
    return LoadedModel(model, tiny_tokenizer(), "tiny", "memory")


@pytest.mark.parametrize("name", TINY_ARCHITECTURES)
def test_reading_in_pieces_and_looking_ahead_is_reading_at_once(name: str):
    """Beyond the attention windows of those that have one (16 tokens), with looks between all pieces."""
    model = loaded(tiny_model(name))
    assert reader_kind(model) is CachedReader
    whole = model.hidden_states(torch.from_numpy(TOKENS)[None])[0]
    cached, plain = CachedReader(model), PlainReader(model)
    for begin, end in pairwise(CUTS):
        for reader in (cached, plain):
            torch.testing.assert_close(reader.read(TOKENS[begin:end]), whole[begin:end], rtol=1e-4, atol=1e-4)
            ahead = reader.look(TOKENS[end : end + LOOK])
            torch.testing.assert_close(ahead, whole[end : end + LOOK], rtol=1e-4, atol=1e-4)
            other = reader.look(TOKENS[:LOOK])
            assert not torch.allclose(other, ahead, atol=1e-2)


def test_full_logits_are_read_in_pieces_too():
    model = loaded(tiny_llama())
    model.__dict__["head"] = FullLogits("for the test")
    whole = model.hidden_states(torch.from_numpy(TOKENS)[None])[0]
    reader = CachedReader(model)
    reader.read(TOKENS[:20])
    torch.testing.assert_close(reader.read(TOKENS[20:30]), whole[20:30], rtol=1e-4, atol=1e-4)


def test_positions_that_depend_on_the_input_are_read_anew(caplog: pytest.LogCaptureFixture):
    rope = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
    model = loaded(tiny_llama(max_position_embeddings=16, rope_parameters=rope))
    with caplog.at_level(logging.WARNING):
        assert reader_kind(model) is PlainReader
    assert "every length is read anew (slower): dynamic rope depends on how many tokens" in caplog.text
    # And that is right: the model at once, cut where the reader looked.
    reader = PlainReader(model)
    reader.read(TOKENS[:20])
    expected = model.hidden_states(torch.from_numpy(TOKENS[:30])[None])[0, 20:]
    torch.testing.assert_close(reader.look(TOKENS[20:30]), expected)


def test_a_cache_that_gives_something_else_is_not_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    model = loaded(tiny_llama())
    forgets = SimpleNamespace(read=lambda tokens: torch.zeros(len(tokens), 32))
    forgets.look = forgets.read
    monkeypatch.setattr("lengthwise.measure.reader.CachedReader", lambda _: forgets)
    assert reader_kind(model) is PlainReader
    assert "reading in pieces differs by" in caplog.text
