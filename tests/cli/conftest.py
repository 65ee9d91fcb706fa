from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lengthwise.testing import save_tiny_model, tiny_text


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model `model`, a folder of six texts `text`, and a cache."""
    folder = tmp_path_factory.mktemp("cli")
    save_tiny_model(folder / "model")
    (folder / "text").mkdir()
    for index in range(6):
        (folder / "text" / f"{index}.txt").write_text(tiny_text(600, seed=index))
    return folder


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
    path.write_text(
        f"""\
model: {shared / "model"}
data:
  corpus: {shared / "text"}
  split: all
length: 16
steps: 4
batch:
  size: 2
objective:
  alpha: 0.1
optimizer:
  learning_rate: 1e-3
precision: float32
device: cpu
save_every: 2
"""
    )
    return path
