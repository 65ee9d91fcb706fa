from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lengthwise.yaml_text import to_yaml
from tests.tiny_folders import filled


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model `model`, a folder of six texts `text`, and a cache."""
    return filled(tmp_path_factory.mktemp("cli"), texts=6, words=600)


@pytest.fixture(autouse=True)
def _surroundings(offline: None, shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No network, our own cache, and an empty folder to be in."""
    monkeypatch.setenv("LENGTHWISE_CACHE", str(shared / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def model(shared: Path) -> str:
    return str(shared / "model")


@pytest.fixture
def text(shared: Path) -> list[str]:
    """The options that name the text."""
    return ["--text", str(shared / "text"), "--split", "all"]


@pytest.fixture
def on_text(lengthwise: Callable[..., Any], model: str, text: list[str]) -> Callable[..., Any]:
    """Run a verb on the tiny model and text: `on_text("ppl", "--json")`."""

    def call(verb: str, *words: object) -> Any:
        return lengthwise(verb, model, *text, *words)

    return call


@pytest.fixture
def recipe(shared: Path, tmp_path: Path) -> Path:
    """A recipe of four small steps."""
    path = tmp_path / "recipe.yaml"
    settings = {
        "model": str(shared / "model"),
        "data": {"corpus": str(shared / "text"), "split": "all"},
        "length": 16,
        "steps": 4,
        "batch": {"size": 2},
        "objective": {"alpha": 0.1},
        "optimizer": {"learning_rate": 1e-3},
        "precision": "float32",
        "device": "cpu",
        "save_every": 2,
    }
    path.write_text(to_yaml(settings))
    return path
