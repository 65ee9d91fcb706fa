"""What is decided of a llama.cpp side before llama.cpp is there. `tests/llamacpp` has the rest."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from lengthwise.errors import MissingError, UsageError
from lengthwise.measure.predictions import FromLlamaCpp, FromWeights, difference
from lengthwise.settings import Subject
from lengthwise.subjects import LoadedModel, load, open_model
from lengthwise.subjects.llama_cpp import rope_settings
from lengthwise.subjects.plan import unknown_cost
from lengthwise.testing import tiny_llama, tiny_tokenizer


@pytest.mark.parametrize(
    ("scaling", "expected"),
    [
        (None, {}),
        ("none", {"rope_scaling_type": 0}),
        ("linear:2", {"rope_scaling_type": 1, "rope_freq_scale": 0.5}),
        ("yarn:4.0", {"rope_scaling_type": 2, "rope_freq_scale": 0.25}),
    ],
)
def test_a_rope_scaling_as_llama_cpp_takes_it(scaling: str | None, expected: dict[str, Any]):
    assert rope_settings(scaling) == expected


@pytest.mark.parametrize(
    "scaling", ["none:2", "linear", "linear:", "linear:1", "yarn:x", "yarn:inf", "ntk:2"]
)
def test_other_rope_scalings_are_refused(scaling: str):
    with pytest.raises(UsageError, match="rope_scaling"):
        rope_settings(scaling)


@pytest.mark.parametrize(
    "settings",
    [
        {"kv_cache": "quanto-int4"},
        {"rope_scaling": "linear"},
        {"read": "chunks=1024"},
        {"read": "decode=0"},
    ],
)
def test_what_llama_cpp_cannot_take_is_refused_before_it_is_loaded(settings: dict[str, Any]):
    with pytest.raises(UsageError):
        open_model(Subject(model="llama.cpp:model.gguf", **settings))


def test_without_the_package_the_command_that_installs_it_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    with pytest.raises(MissingError, match="pip install llama-cpp-python"):
        open_model(Subject(model="llama.cpp:model.gguf"))


def test_its_weights_are_not_loaded_here():
    with pytest.raises(UsageError, match=r"llama\.cpp"):
        load("llama.cpp:model.gguf")
    assert unknown_cost("llama.cpp:model.gguf") is None


@dataclass
class Pieces:
    """Gives the logits of a model in pieces, as llama.cpp does; counts how often it is read."""

    of: LoadedModel
    size: int
    readings: int = 0

    @property
    def vocab_size(self) -> int:
        return self.of.vocab_size

    def logits(self, view: np.ndarray, first: int) -> Any:
        self.readings += 1
        whole = self.of.head.logits(self.of.hidden_states(torch.from_numpy(view)[None])[0]).detach()
        yield from whole[first:].split(self.size)


@pytest.mark.parametrize("size", [1, 3, 64])
@pytest.mark.parametrize("first", [0, 20])
def test_two_sides_are_compared_exactly_as_the_second_is_read(
    size: int, first: int, monkeypatch: pytest.MonkeyPatch
):
    """KL of the whole distributions, from one reading in pieces that fit no chunk."""
    monkeypatch.setattr("lengthwise.measure.predictions.chunk_rows", lambda _: 7)
    one, two = (LoadedModel(tiny_llama(seed=seed), tiny_tokenizer(), "tiny", "memory") for seed in (0, 1))
    ids = np.random.default_rng(0).integers(1, 320, 41)
    labels, view = torch.from_numpy(ids[1:]), torch.from_numpy(ids[:-1])
    hidden = [m.hidden_states(view[None])[0] for m in (one, two)]
    pieces: Any = Pieces(two, size)
    found = difference(FromWeights(one, hidden[0]), FromLlamaCpp(pieces, ids[:-1]), labels, first)
    expected = difference(FromWeights(one, hidden[0]), FromWeights(two, hidden[1]), labels, first)
    assert pieces.readings == 1
    assert not found.bounded
    for name in ("own", "other", "kl", "same_top"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-5, atol=1e-6)
    numbers = FromLlamaCpp(pieces, ids[:-1]).numbers(labels, first)
    assert pieces.readings == 2
    np.testing.assert_allclose(numbers.values, expected.other, rtol=1e-5, atol=1e-6)
