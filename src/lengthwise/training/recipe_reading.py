"""Reading a recipe: one flat YAML, checked whole before anything is loaded. Torch loads only for the checks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lengthwise.config import override, read_yaml
from lengthwise.errors import UsageError, nearest
from lengthwise.files import named_path
from lengthwise.training.recipe import Recipe


def read_recipe(path: Path | str, overrides: Iterable[str] = ()) -> Recipe:
    """Read a recipe from a YAML file, or one that comes with the package by its name.

    Args:
        path: a YAML file, or a name of `shipped_recipes()`. The `config.yaml` of a training run is one.
        overrides: `section.key=value` assignments that go on top.

    Raises:
        UsageError: no such file or name, or one that cannot be looked up; unknown keys, wrong or impossible values,
            all named at once.
    """
    shipped = shipped_recipes()
    file = shipped.get(str(path)) or named_path(path, what="the recipe")
    if not file.exists() and file.suffix not in (".yaml", ".yml"):
        raise UsageError(
            f"no recipe {str(path)!r}: it is no file and none of this name comes with lengthwise",
            expected=nearest(str(path), shipped),
            fix="lengthwise ls recipes",
        )
    settings = read_yaml(file)
    if settings.get("kind") == "train":
        del settings["kind"]
    return make_recipe(override(settings, overrides), source=str(path))


def make_recipe(settings: Mapping[str, Any], *, source: str = "recipe") -> Recipe:
    """A recipe from plain settings; `source` names them in errors.

    Raises:
        UsageError: as `read_recipe`.
    """
    return Recipe.parse(settings, source=source)


def shipped_recipes() -> dict[str, Path]:
    """Recipes that come with the package, by name."""
    folder = Path(__file__).parent.parent / "recipes"
    return {file.stem: file for file in sorted(folder.glob("*.yaml"))}
