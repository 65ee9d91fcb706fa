from pathlib import Path

import pytest
import torch
from transformers import MambaConfig

from checks.zoo.architectures import animals, made
from lengthwise import machine
from lengthwise.checkpoints import read_config
from lengthwise.checkpoints.head import CHUNK_BYTES
from lengthwise.settings import Dtype, Subject
from lengthwise.subjects import plan
from lengthwise.subjects.plan import UNKNOWN, cache_bytes, cost_of_sides, reading_cost, unknown_cost
from lengthwise.testing import tiny_llama
from tests.architectures import random_ids


def test_a_dtype_that_the_processor_emulates(folder: Path, monkeypatch, caplog):
    monkeypatch.setattr("lengthwise.machine.slowdown", lambda dtype: 60.0)
    for dtype, warned in (("auto", False), ("bfloat16", True)):
        reading_cost(Subject(model=str(folder), dtype=dtype, device="cpu"), tokens=9, at_once=9, longest=9)
        assert ("60 times as long as in float32: use --dtype float32" in caplog.text) == warned


@pytest.mark.parametrize(("dtype", "size"), [("auto", 4), ("bfloat16", 2)])
def test_the_cost_of_reading(folder: Path, dtype: Dtype, size: int):
    config = read_config(str(folder))
    subject = Subject(model=str(folder), dtype=dtype, device="cpu")
    cost = reading_cost(subject, tokens=1000, at_once=100, longest=50)
    parameters = sum(p.numel() for p in tiny_llama().parameters())
    inside = 100 * (6 * config.hidden_size + 2 * config.intermediate_size)
    assert cost["parameters"] == parameters
    assert cost["memory_bytes"] == (parameters + inside) * size + 4 * CHUNK_BYTES
    assert cost["dtype"] == str(torch.float32 if dtype == "auto" else torch.bfloat16).removeprefix("torch.")
    assert cost["seconds_at_least"] is not None
    of_a_token = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim * size
    kept = reading_cost(subject, tokens=1000, at_once=100, longest=50, cached=70)
    assert kept["memory_bytes"] == cost["memory_bytes"] + 70 * of_a_token
    piecewise = subject.model_copy(update={"read": "decode"})
    assert cache_bytes(MambaConfig(), 1000, itemsize=size) == 0, "its state does not grow with the text"
    in_pieces = reading_cost(piecewise, tokens=1000, at_once=100, longest=50)
    assert in_pieces["memory_bytes"] == cost["memory_bytes"] + 100 * of_a_token


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["gemma4_text", "gemma3n_text", "llama"])
def test_the_cache_of_layers_that_differ(name: str):
    """The oracle is the model's own cache of 20 tokens."""
    animal = next(each for each in animals() if each.name == name)
    model = made(animal)
    layers = model(input_ids=random_ids(1, 20), use_cache=True).past_key_values.layers
    own = sum(each.keys.numel() + each.values.numel() for each in layers)
    assert cache_bytes(model.config, 20, itemsize=1) == own


@pytest.mark.usefixtures("cache")
def test_what_is_known_before_a_model_is_made(folder: Path):
    unmade = unknown_cost("tiny-books")
    assert (unmade["parameters"], unmade["memory_bytes"]) == (935_040, None)
    assert unknown_cost("some.gguf") == UNKNOWN
    assert unknown_cost(str(folder)) is None


def test_passes_of_one_token_cost_as_much_as_a_product_with_one_row(folder, monkeypatch):
    monkeypatch.setattr(plan, "product_rate", lambda *_, one_row=False: 1e4 if one_row else 1e6)
    prefill, decode = (Subject(model=str(folder), device="cpu", read=read) for read in (None, "decode=16"))
    read = {"tokens": 600, "at_once": 96, "longest": 96, "decoded": 100}
    parameters = reading_cost(prefill, **read)["parameters"]
    [one, other] = (reading_cost(side, **read)["seconds_at_least"] for side in (prefill, decode))
    assert one == pytest.approx(2 * parameters * 600 / 1e6, abs=0.1)
    assert other == pytest.approx(2 * parameters * (500 / 1e6 + 100 / 1e4), abs=0.1)
    both = cost_of_sides([prefill, decode], **read)
    assert both["seconds_at_least"] == pytest.approx(one + other)
    assert "100 passes of one token" in both["seconds_basis"]


@pytest.mark.parametrize(("rate", "sizes"), [(1e9, [256]), (1e11, [256, 1024])])
def test_a_slow_processor_is_not_asked_for_a_large_product(monkeypatch, rate: float, sizes: list[int]):
    measure, asked = machine.product_rate, list[int]()
    monkeypatch.setattr(machine, "product_rate", lambda *_, size: asked.append(size) or rate)
    assert measure("cpu", "bfloat16") == rate
    assert asked == sizes
