"""What is decided of a llama.cpp side before llama.cpp is there. `checks/llamacpp` has the rest."""

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from lengthwise.errors import MissingError, UsageError
from lengthwise.measure.distributions import apart, numbers_of
from lengthwise.settings import Subject
from lengthwise.subjects import LoadedModel, Reading, Want, load, open_model
from lengthwise.subjects.llama_cpp import LlamaCpp
from lengthwise.subjects.llama_cpp_settings import rope_settings
from lengthwise.subjects.plan import unknown_cost
from lengthwise.subjects.reading import ReadingPath
from lengthwise.testing import tiny_llama
from tests.readings import in_memory


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
    [{"kv_cache": "quanto-int4"}, {"rope_scaling": "linear"}, {"read": "chunks=1024"}, {"read": "decode=0"}],
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


class Pieces(LlamaCpp):
    """Gives the logits of a model in pieces of `size`, as llama.cpp does; counts how often it reads a text."""

    batch, path, name = 512, ReadingPath(), "pieces"
    max_positions = trained_length = None

    def __init__(self, of: LoadedModel, size: int) -> None:
        self.of, self.size, self.vocab_size, self.tokenizer, self.readings = of, size, 320, of.tokenizer, 0

    def logits(self, view: np.ndarray, first: int) -> Iterator[torch.Tensor]:
        self.readings += 1
        turn = self.readings
        whole = self.of.head.logits(self.of.hidden_states(torch.from_numpy(view)[None])[0]).detach()
        for piece in whole[first:].split(self.size):
            assert turn == self.readings, "the cache holds another text"
            yield piece


@pytest.mark.parametrize("size", [1, 3, 64])
@pytest.mark.parametrize("first", [0, 20])
def test_two_sides_are_compared_exactly_as_the_second_is_read(size, first, monkeypatch):
    """KL of the whole distributions, from one reading in pieces that fit no chunk."""
    monkeypatch.setattr("lengthwise.subjects.rows.chunk_rows", lambda *_: 7)
    one, two = (in_memory(tiny_llama(seed=seed)) for seed in (0, 1))
    ids = np.random.default_rng(0).integers(1, 320, 41)
    labels, reading = ids[first + 1 :], Reading(tokens=ids[:-1], want=Want.ROWS)
    pieces = Pieces(two, size)
    own, exact, found = (model.read([reading])[0] for model in (one, two, pieces))
    (expected, _), (seen, bounded) = (apart(own, other, labels, first=first) for other in (exact, found))
    assert pieces.readings == 1
    assert not bounded
    np.testing.assert_allclose(seen, expected, rtol=1e-5, atol=1e-6)
    numbers = numbers_of(found, labels, first=first)
    assert pieces.readings == 2
    np.testing.assert_allclose(numbers.losses, expected[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("room", [2**30, 0])
def test_texts_that_are_read_side_by_side(room: int, monkeypatch: pytest.MonkeyPatch):
    """Its one cache holds one text: a text that gives way is read to its end, or once more where that is too much."""
    monkeypatch.setattr("lengthwise.subjects.rows.chunk_rows", lambda *_: 7)
    monkeypatch.setattr("lengthwise.subjects.llama_cpp_stream.HELD_BYTES", room)
    model = in_memory()
    ids = np.random.default_rng(0).integers(1, 320, (3, 40))
    readings, pieces = [Reading(tokens=each, want=Want.ROWS) for each in ids], Pieces(model, 8)
    views, expected = ([read.rows for read in side.read(readings)] for side in (pieces, model))
    for some in expected[0].chunks():
        for view, own in zip(views, expected, strict=True):
            torch.testing.assert_close(view.logits(some), own.logits(some).detach(), rtol=1e-5, atol=1e-6)
    assert (pieces.readings == 3) is (room > 0)
