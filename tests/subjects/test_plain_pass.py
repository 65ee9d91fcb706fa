"""Models that see later tokens, or that are not the same each time: refused at the length where they are."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from lengthwise.errors import UsageError
from lengthwise.subjects import LoadedModel, PieceReader, Reading
from lengthwise.subjects.reading import ReadingPath
from lengthwise.testing import tiny_llama
from tests.readings import in_memory

LONG = 100
"""Tokens beyond which the models of these tests are unsound."""
TOKENS = np.random.default_rng(0).integers(320, size=160)


def ahead(distance: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Adds the state of the token that comes so much later."""
    return lambda states: states + torch.nn.functional.pad(states[:, distance:], (0, 0, 0, distance))


UNSOUND: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], str]] = {
    "the mean of all tokens": (lambda states: states + states.mean(dim=1, keepdim=True), "later token"),
    "the next token": (ahead(1), "later token"),
    "a token far ahead": (ahead(90), "later token"),
    "dropout": (torch.nn.functional.dropout, "random numbers"),
    "noise of numpy": (lambda states: states + np.random.normal(), "random numbers"),
    "noise of Python": (lambda states: states + random.gauss(0, 1), "random numbers"),
}


def model_of(change: Callable[[torch.Tensor], torch.Tensor], *, beyond: int = LONG) -> LoadedModel:
    """A Llama whose embeddings are changed in texts of more than so many tokens."""
    llama = tiny_llama()
    llama.model.embed_tokens.register_forward_hook(
        lambda module, args, states: change(states) if states.shape[1] > beyond else None
    )
    return in_memory(llama)


@pytest.mark.parametrize("kind", UNSOUND)
@pytest.mark.parametrize("path", [ReadingPath(), ReadingPath(chunk=120), ReadingPath(decode=20)], ids=str)
def test_what_is_unsound_beyond_a_length_is_refused_there(kind: str, path: ReadingPath):
    change, words = UNSOUND[kind]
    model, sound = model_of(change), model_of(lambda states: states)
    model.path = path
    short, long = (Reading(tokens=TOKENS[:size], labels=TOKENS[:size]) for size in (LONG, 160))
    assert model.read([short])[0].losses.allclose(sound.read([short])[0].losses, atol=1e-5)
    with pytest.raises(UsageError, match=words):
        model.read([long])


def test_what_only_later_rows_see_is_found():
    """A recurrent layer computes 256 tokens at once; from the second chunk on, later tokens leak into its rows."""

    def change(states: torch.Tensor) -> torch.Tensor:
        return torch.cat([states[:, :256], states[:, 256:] + states[:, -1:]], dim=1)

    model = model_of(change, beyond=256)
    for length in (300, 1200):
        tokens = np.random.default_rng(1).integers(320, size=length)
        model.proofs.blind_up_to = 0
        with pytest.raises(UsageError, match="later token"):
            model.read([Reading(tokens=tokens, labels=tokens)])


def test_dropout_that_is_left_on_in_a_part_is_named():
    model = model_of(lambda states: states)
    model.model.model.layers[1].train()
    with pytest.raises(UsageError, match=r"model\.layers\.1"):
        model.check_ready(10)


def _fails(*_: Any) -> Any:
    raise KeyError("an unknown kind of layer")


def test_a_cache_that_cannot_be_made_is_refused_by_its_option():
    model = model_of(lambda states: states)
    model.path = ReadingPath(chunk=8, cache=_fails, option="kv_cache=static")
    with pytest.raises(
        UsageError, match=r"kv_cache=static cannot be made for tiny: KeyError: 'an unknown kind"
    ):
        model.read([Reading(tokens=TOKENS, labels=TOKENS)])


def test_a_model_that_fails_where_a_cache_is_continued_is_refused(monkeypatch: pytest.MonkeyPatch):
    model = model_of(lambda states: states)
    reader = PieceReader(model)
    reader.read(TOKENS[None, :8])
    monkeypatch.setattr(type(reader._cache), "update", lambda *_, **__: [][4])
    with pytest.raises(
        UsageError, match="tiny cannot read 152 tokens through a cache of its own: IndexError: list index"
    ):
        reader.read(TOKENS[None, 8:])
