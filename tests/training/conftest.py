import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lengthwise.errors import Interrupted
from lengthwise.runs import RunFolder
from lengthwise.settings import checked
from lengthwise.text import TokenDocument
from lengthwise.training.recipe import Recipe
from tests.tiny_folders import filled

# Tests and the programs that they start import what they share by its name.
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model folder `model`, four texts in `text`, and a token cache."""
    return filled(tmp_path_factory.mktemp("training"), texts=4, words=600)


@pytest.fixture(autouse=True, scope="module")
def _cache(shared: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LENGTHWISE_CACHE", str(shared / "cache"))
        yield


@pytest.fixture(scope="session")
def recipe_settings(shared: Path) -> dict[str, Any]:
    return {
        "model": str(shared / "model"),
        "data": {"corpus": str(shared / "text"), "split": "all"},
        "length": 16,
        "steps": 6,
        "batch": {"size": 4},
        "objective": {"alpha": 1.0, "divergence": "jeffreys"},
        "optimizer": {"learning_rate": 0.01, "warmup_steps": 2},
        "device": "cpu",
        "save_every": 2,
    }


@pytest.fixture(scope="session")
def make(recipe_settings: dict[str, Any]) -> Callable[..., Recipe]:
    def build(**changes: Any) -> Recipe:
        return checked(Recipe, recipe_settings | changes, source="recipe")

    return build


@pytest.fixture(scope="session")
def stopped_at() -> Callable[[int], AbstractContextManager[pytest.ExceptionInfo[Interrupted]]]:
    """Expects a run that gets Ctrl-C while the metrics of this step are written."""

    @contextmanager
    def stopped(step: int) -> Iterator[pytest.ExceptionInfo[Interrupted]]:
        original = RunFolder.append_metrics

        def append(folder: RunFolder, record: Any) -> None:
            original(folder, record)
            if record["step"] == step:
                raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patch, pytest.raises(Interrupted) as caught:
            patch.setattr(RunFolder, "append_metrics", append)
            yield caught

    return stopped


@pytest.fixture(scope="session")
def documents() -> list[TokenDocument]:
    rng = np.random.default_rng(0)
    return [TokenDocument(f"d{index}", rng.integers(0, 320, size=400, dtype=np.int32)) for index in range(3)]
