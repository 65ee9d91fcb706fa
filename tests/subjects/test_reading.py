"""Texts that are read piece by piece, in forks and with padding, against one plain pass over each."""

import inspect
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import StaticCache

from lengthwise.checkpoints.hidden import cache_among, cache_argument
from lengthwise.errors import UsageError
from lengthwise.settings import Subject
from lengthwise.subjects import Branch, LoadedModel, PieceReader, Reading
from lengthwise.subjects import pieces as module
from lengthwise.subjects.branches import CONTINUED, TOGETHER
from lengthwise.subjects.loaded_model import SIDE_BY_SIDE
from lengthwise.subjects.reading import reading_path
from lengthwise.testing import tiny_llama
from tests.architectures import TINY_ARCHITECTURES, tiny_model
from tests.readings import in_memory

TOKENS = np.random.default_rng(0).integers(320, size=(1, 50))
CUTS = (0, 7, 8, 29, 41)
LOOK = 9


def at_once(model: LoadedModel, tokens: np.ndarray = TOKENS) -> torch.Tensor:
    return model.hidden_states(torch.from_numpy(tokens))


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def continued() -> Reading:
    """A reading that takes the shortcut of a cache, or of a tree."""
    branches = [Branch(place=place, tokens=TOKENS[0, :5], labels=TOKENS[0, :5]) for place in (20, 30)]
    return Reading(tokens=TOKENS[0], labels=TOKENS[0, :3], branches=branches)


@pytest.mark.parametrize("name", TINY_ARCHITECTURES)
def test_reading_in_pieces_and_forks_equal_reading_at_once(name: str):
    """Beyond the attention windows of those that have one (16 tokens), with forks between all pieces."""
    model = in_memory(tiny_model(name))
    whole, reader = at_once(model), PieceReader(model)
    for begin, end in pairwise(CUTS):
        close(reader.read(TOKENS[:, begin:end]), whole[:, begin:end])
        close(reader.fork().read(TOKENS[:, end : end + LOOK]), whole[:, end : end + LOOK])
        other = reader.fork().read(TOKENS[:, :LOOK])
        assert not torch.allclose(other, whole[:, end : end + LOOK], atol=1e-2)


@pytest.mark.parametrize("name", ["cache", "past_key_values"])
def test_a_cache_has_either_of_its_names(name: str, monkeypatch: pytest.MonkeyPatch):
    """Whatever the installed transformers calls it: the forward pass takes and gives it under this name alone."""
    model = in_memory(tiny_llama())
    whole, forward, own = at_once(model), model.model.forward, cache_argument(model.model)

    def renamed(**arguments: Any) -> dict[str, Any]:
        output = forward(**{own if key == name else key: value for key, value in arguments.items()})
        return {name if key == own else key: value for key, value in output.items()}

    signature = inspect.signature(forward)
    parameters = [
        each.replace(name=name) if each.name == own else each for each in signature.parameters.values()
    ]
    renamed.__signature__ = signature.replace(parameters=parameters)
    monkeypatch.setattr(model.model, "forward", renamed)
    assert cache_argument(model.model) == name
    reader = PieceReader(model)
    for begin, end in pairwise(CUTS):
        close(reader.read(TOKENS[:, begin:end]), whole[:, begin:end])


def test_a_cache_that_gives_something_else_is_not_used(monkeypatch: pytest.MonkeyPatch):
    model = in_memory(tiny_llama())
    [expected] = model.read([continued()])
    model._proofs.clear()
    right = module.hidden_states_and_output

    def wrong(model: Any, **arguments: Any) -> tuple[torch.Tensor, Any]:
        hidden, output = right(model, **arguments)
        return hidden + (cache_among(arguments) is not None), output

    monkeypatch.setattr(module, "hidden_states_and_output", wrong)
    [found] = model.read([continued()])
    assert model.proofs.up_to == {TOGETHER: 0, CONTINUED: 0}
    close(torch.cat([found.losses, *found.branches]), torch.cat([expected.losses, *expected.branches]))


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("def make(:", "SyntaxError"),
        ("raise RuntimeError('gone')", "RuntimeError: gone"),
        ("import sys; sys.exit('gone')", "SystemExit: gone"),
        ("make = dict", "no signature"),
        ("make = 3", "module:function"),
    ],
)
def test_a_module_of_a_cache_that_cannot_be_used_is_refused_in_words(
    code: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    # Another name each time: what was imported is kept.
    name = f"own_{abs(hash(code))}"
    (tmp_path / f"{name}.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match=says) as caught:
        reading_path(Subject(model="tiny", cache=f"{name}:make"))
    assert name in str(caught.value)


@pytest.mark.parametrize("read", ["chunks=", "decode="])
def test_a_number_of_tokens_that_python_does_not_read_is_refused_in_words(read: str):
    with pytest.raises(UsageError, match="read is"):
        reading_path(Subject(model="tiny", read=read + "9" * 5000))


def test_a_model_that_gives_no_cache_back_is_refused_at_the_second_piece():
    model = in_memory(tiny_llama())
    model.model.register_forward_hook(
        lambda module, args, output: output.__setitem__(cache_argument(module), None)
    )
    reader = PieceReader(model)
    reader.read(TOKENS[:, :5])
    for again in (lambda: reader.read(TOKENS[:, 5:]), reader.fork):
        with pytest.raises(UsageError):
            again()
    model.read([continued()])
    assert model.proofs.up_to == {TOGETHER: 0, CONTINUED: 0}


def test_layers_that_change_their_tensors_in_place_are_copied():
    model = in_memory(tiny_llama())
    reader = PieceReader(model, cache=StaticCache(config=model.config, max_cache_len=64))
    reader.read(TOKENS[:, :10])
    assert not reader.takes_padding
    reader.fork().read(TOKENS[:, 20:30])
    close(reader.read(TOKENS[:, 10:20]), at_once(model)[:, 10:20])


class Coupled(torch.nn.Module):
    """Adds the mean of the batch, as an expert whose capacity is shared by the rows."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        found = self.inner(hidden)
        return found + found.mean(dim=0, keepdim=True)


def test_rows_that_change_each_other_are_read_apart(caplog: pytest.LogCaptureFixture):
    model = in_memory(tiny_llama())
    for layer in model.model.model.layers:
        layer.mlp = Coupled(layer.mlp)
    readings = [Reading(tokens=row, labels=row) for row in TOKENS.reshape(5, 10)]
    apart = [model.read([each])[0].losses for each in readings]
    for _ in range(2):
        for found, expected in zip(model.read(readings), apart, strict=True):
            close(found.losses, expected)
    [record] = caplog.records
    assert SIDE_BY_SIDE in record.getMessage()


def test_rows_side_by_side_are_compared_with_one_pass_once(monkeypatch: pytest.MonkeyPatch):
    model = in_memory(tiny_llama())
    assert model.head
    sizes, run = [], model.hidden_states

    def counted(ids: torch.Tensor) -> torch.Tensor:
        sizes.append(tuple(ids.shape))
        return run(ids)

    monkeypatch.setattr(model, "hidden_states", counted)
    rows = [Reading(tokens=row, labels=row) for row in TOKENS.reshape(5, 10)]
    for some in (rows[:4], rows[:3], rows[:1], rows):
        model.read(some)
    assert sizes == [(4, 10), (1, 10), (3, 10), (1, 10), (5, 10), (1, 10)]
