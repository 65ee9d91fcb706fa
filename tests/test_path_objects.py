"""A folder or file is named by a path object as by its text, at every door of the Python interface."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lengthwise
from lengthwise.checkpoints.doctor import examine
from lengthwise.checkpoints.resolve import read_config, read_tokenizer
from lengthwise.checkpoints.saving import plan_extended, save_extended
from lengthwise.measure import Comparison, Perplexity
from lengthwise.settings import Subject
from lengthwise.subjects import open_model
from lengthwise.testing import save_tiny_model, tiny_text
from lengthwise.training import Recipe, plan
from tests.architectures import with_lora

SHORT: dict[str, Any] = {"lengths": (64,), "windows": 1}
DATA: dict[str, Any] = {"split": "all"}


def recipe(model: Any, text: Any) -> Recipe:
    return Recipe(
        model=model, data={"corpus": text, **DATA}, length=16, steps=1, optimizer={"learning_rate": 1e-3}
    )


def values(results: Any) -> list[Any]:
    return [row.value for row in results.rows]


DOORS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "load": lambda model, text, out: lengthwise.load(model).describe(),
    "Subject": lambda model, text, out: Subject(model=model, text=text).model_dump(),
    "open_model": lambda model, text, out: open_model(Subject(model=model)).name,
    "run": lambda model, text, out: values(lengthwise.run(Perplexity(**SHORT), model, text)),
    "compare": lambda model, text, out: values(lengthwise.run(Comparison(**SHORT), model, text, other=model)),
    "compare, side B": lambda model, text, out: Comparison(**SHORT, side_b={"model": model}).model_dump(),
    "recipe": lambda model, text, out: [
        plan(recipe(model, text))["parameters"],
        recipe(model, text).to_dict(),
    ],
    "read_config": lambda model, text, out: read_config(model).to_dict(),
    "read_tokenizer": lambda model, text, out: read_tokenizer(model)("a b").input_ids,
    "plan_extended": lambda model, text, out: plan_extended(model, "yarn", factor=2.0),
    "save_extended": lambda model, text, out: save_extended(model, "yarn", out, factor=2.0),
    "examine": lambda model, text, out: examine(model),
    "examine, config only": lambda model, text, out: examine(model, config_only=True),
}


@pytest.mark.parametrize("door", DOORS)
def test_a_path_is_taken_as_its_text(door: str, tmp_path: Path) -> None:
    model, text = Path(save_tiny_model(tmp_path / "model")), tmp_path / "text.txt"
    text.write_text(tiny_text(3000))

    def found(model: Any, text: Any) -> Any:
        out = tmp_path / type(model).__name__
        said = DOORS[door](model, text, out)
        return {**said, "written_to": None} if out.exists() else said

    assert found(model, text) == found(str(model), str(text))


def test_an_adapter_is_read_by_its_path(tmp_path: Path) -> None:
    model, adapter = Path(save_tiny_model(tmp_path / "model")), tmp_path / "adapter"
    with_lora(lengthwise.load(model).model).save_pretrained(adapter)
    by_text = lengthwise.load(str(model), adapter=str(adapter))
    by_path = lengthwise.load(model, adapter=adapter)
    assert by_path.describe() == by_text.describe()
    assert by_path.adapter == str(adapter)
    opened = open_model(Subject(model=model, adapter=adapter))
    assert isinstance(opened, lengthwise.LoadedModel)
    assert opened.adapter == str(adapter)
    assert examine(model, adapter=adapter) == examine(str(model), adapter=str(adapter))
    assert lengthwise.check_rope(by_path.model, adapter=adapter) == lengthwise.check_rope(by_text)
