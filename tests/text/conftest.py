from __future__ import annotations

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
