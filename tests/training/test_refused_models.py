"""Models that a recipe cannot train are refused before the first step."""

from pathlib import Path

import pytest

from checks.zoo.architectures import animals, build
from lengthwise.errors import UsageError
from lengthwise.testing import tiny_text
from lengthwise.training import Recipe, train

REFUSED = {
    # Its table of positions is 16 by 64: it trains on 1,024 tokens.
    "reformer": "trains on 1024 tokens alone",
    "xlnet": "depends on a later token",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_trained_so(name: str, tmp_path: Path) -> None:
    [animal] = (each for each in animals() if each.name == name)
    build(animal, tmp_path / "model")
    (tmp_path / "text.txt").write_text(tiny_text(400))
    recipe = Recipe.model_validate(
        {
            "model": str(tmp_path / "model"),
            "data": {"corpus": str(tmp_path / "text.txt"), "split": "all"},
            "length": 32,
            "steps": 1,
            "batch": {"size": 1},
            "objective": {"alpha": 0.1},
            "optimizer": {"learning_rate": 1e-3},
            "precision": "float32",
            "device": "cpu",
        }
    )
    with pytest.raises(UsageError, match=REFUSED[name]):
        train(recipe, tmp_path / "run")
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
