import importlib.util
from importlib.machinery import ModuleSpec
from pathlib import Path

import numpy as np
import pytest

from lengthwise.testing import tiny_tokenizer
from lengthwise.text import TokenDocument


@pytest.fixture(scope="session")
def tokenizer():
    return tiny_tokenizer()


@pytest.fixture
def numbered() -> list[TokenDocument]:
    """Documents whose token ids say where they stand: 1000 * document + position."""
    sizes = [95, 10, 300, 41, 100]
    return [
        TokenDocument(f"doc{index}", (1000 * index + np.arange(size)).astype(np.int32))
        for index, size in enumerate(sizes)
    ]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose packages are the only ones that are installed."""

    def find_spec(name: str) -> ModuleSpec | None:
        origin = tmp_path / name / "__init__.py"
        return ModuleSpec(name, None, origin=str(origin)) if origin.exists() else None

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    return tmp_path
