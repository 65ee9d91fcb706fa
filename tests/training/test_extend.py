from collections.abc import Callable
from typing import Any

import pytest
import torch

from lengthwise.checkpoints.extending import clex_modules
from lengthwise.subjects import load
from lengthwise.training import train
from lengthwise.training.recipe import Recipe

Make = Callable[..., Recipe]


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=torch.arange(60)[None]).logits


@pytest.mark.parametrize("method", ["yarn", "clex"])
@pytest.mark.parametrize("adapter", [None, {"r": 2}], ids=["whole", "adapter"])
def test_what_was_trained_loads_again(make, tmp_path, method, adapter):
    extend = {"method": method, "factor": 4.0, "original_length": 8}
    recipe = make(steps=2, extend=extend, adapter=adapter, optimizer={"learning_rate": 0.05})
    train(recipe, tmp_path)
    loaded, checkpoint = (
        load(str(folder)) if adapter is None else load(recipe.model, adapter=str(folder))
        for folder in (tmp_path / "model", tmp_path / "checkpoints" / "checkpoint-2")
    )
    assert (loaded.extension.method, loaded.extension.extended_length) == (method, 32)
    assert "Context extension" in (tmp_path / "model" / "README.md").read_text()
    learned = [module.frequencies.down.abs().max().item() for _, module in clex_modules(loaded.model)]
    assert (max(learned, default=0.0) > 0.01) == (method == "clex"), "the learned part was trained and saved"
    torch.testing.assert_close(logits(checkpoint.model), logits(loaded.model))
