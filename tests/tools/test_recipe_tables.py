"""The table of the shipped recipes' plans, which their comments name, and the memory of two views."""

import pytest

from lengthwise.alignment import Objective
from lengthwise.errors import UsageError
from lengthwise.training import shipped_recipes
from tools.docs import recipe_tables
from tools.docs.hardware import training_memory
from tools.docs.recipe_tables import memory_on_cards, plans_table

BLOCK, EMBEDDING = 4 * 4096**2 + 3 * 4096 * 11008 + 2 * 4096, 32000 * 4096
WEIGHTS = 32 * BLOCK + 2 * EMBEDDING + 4096


def test_every_recipe_of_7b_and_8b_has_a_line():
    large = {name for name, file in shipped_recipes().items() if "model: meta-llama/" in file.read_text()}
    assert set(recipe_tables.RECIPES) == large


def test_memory_is_that_of_state_gathered_weights_and_activations():
    """PoSE on eight cards: 16 bytes of state a weight in shares, two views of 2,048 tokens, in micro-batches of 4."""
    found = memory_on_cards("pose")
    gathered = 2 * (2 * BLOCK + EMBEDDING + 4096) + 6 * BLOCK
    activations = 2 * 4 * 2048 * (32 * 4 * 4096 + 4 * (9 * 4096 + 2.4 * 11008))
    whole, shared, offloaded = (
        float(found[way, 8].removesuffix(" GB"))
        for way in ("whole copies", "full_shard", "full_shard with offload")
    )
    # A chunk of logits is below a gigabyte.
    assert 0 <= shared - (2 * WEIGHTS + gathered + activations) / 1e9 < 1.5
    assert shared - offloaded == pytest.approx(2 * WEIGHTS / 1e9, abs=1)
    assert whole - shared == pytest.approx((20 * WEIGHTS - gathered) / 1e9, abs=1)


def test_a_recipe_that_names_another_number_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(recipe_tables, "RECIPES", ("clex",))
    for need, refused in (("22 GB", False), ("24 GB", True)):
        monkeypatch.setattr(recipe_tables, "memory_on_cards", lambda _, need=need: {("full_shard", 8): need})
        if refused:
            with pytest.raises(UsageError):
                plans_table()
        else:
            # Eight operations a weight and token of each of two views, 4e14 a second on each of eight cards.
            minutes = 200 * 64 * 2 * 4096 * 8 * WEIGHTS / 8 / 4e14 / 60
            assert plans_table().rows == [(f"clex ({minutes:.0f} min on 8)", None, None, None, need, None)]


def test_two_views_need_what_twice_the_length_needs():
    pair = Objective(alpha=0.1, divergence="sce")
    assert training_memory("1B", length=4096, objective=pair) == training_memory("1B", length=8192)
