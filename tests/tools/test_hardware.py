"""The hardware page's numbers: weights of the published models, layers extrapolated, operations in closed form."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig

from lengthwise.alignment import Objective
from lengthwise.measure.limit import MOST_REFERENCE
from lengthwise.training.recipe import Batch, Data, Optimizer, Recipe
from lengthwise.training.starting_model import recipe_skeleton
from lengthwise.training.training_plan import device_memory
from tools.docs import hardware
from tools.docs.hardware import FORMS, LORA, READINGS, SIZES, WAYS, training_memory, window_operations

PUBLISHED = {"135M": 134_515_008, "1B": 1_235_814_400, "8B": 8_030_261_248, "70B": 70_553_706_496}


@pytest.mark.parametrize("size", SIZES)
def test_the_sizes_have_the_weights_of_the_published_models(size):
    assert hardware._counts(size) == (PUBLISHED[size], PUBLISHED[size])


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_two_layers_and_one_view_tell_the_memory_of_all(way):
    recipe = Recipe(
        model="llama",
        data=Data(corpus="books"),
        length=32768,
        steps=1,
        optimizer=Optimizer(learning_rate=1e-4),
        batch=Batch(size=1),
        objective=Objective(**FORMS["truncation pair"]),
        precision="bfloat16",
        gradient_checkpointing=True,
        adapter=LORA if way.lora else None,
        quantize=way.quantize,
        parallel=way.parallel,
    )
    shape = SIZES["135M"] | {"num_hidden_layers": 5}
    model = recipe_skeleton(recipe, LlamaConfig(**shape))
    whole = device_memory(recipe, model, micro=1, devices=way.devices, device=torch.device("cuda"))["device"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(hardware.SIZES, "135M", shape)
        hardware._one_view.cache_clear()
        found = training_memory("135M", way, views=2, length=32768)
    hardware._one_view.cache_clear()
    # Each of the formulas rounds to bytes.
    assert found == pytest.approx(whole, rel=1e-7)


def test_the_operations_of_a_window_are_products_times_passes():
    """With checkpointing a trained view takes 8 operations a weight and token, a view that teaches 2."""
    length = 8192
    products = length * (PUBLISHED["1B"] + 16 * 2048 * length)
    [every] = [way for way in WAYS if way.name == "all weights"]
    found = {form: window_operations("1B", every, form, length) / products for form in FORMS}
    assert found == {"CE on one view": 8, "gap with KL": 10, "truncation pair": 16}


def test_parts_are_the_tokens_of_a_sample():
    length = 16384
    whole, rest = 2 * length, 2 * (length - MOST_REFERENCE)
    known = {
        "measure": [(3 * length, length), (0, length)],
        "ppl": [(length, length), (0, length)],
        "recall": [(2 * (length - 1), length), (0, length)],
        "limit": [(whole, length), (rest, MOST_REFERENCE)],
    }
    found = {reading.verb: reading.parts(length) for reading in READINGS}
    assert {verb: found[verb] for verb in known} == known
    assert all(tokens >= 0 for parts in found.values() for tokens, _ in parts)
