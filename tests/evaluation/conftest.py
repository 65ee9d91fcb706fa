from __future__ import annotations

from typing import Any

import pytest

from lengthwise.testing import tiny_text, tiny_tokenizer
from lengthwise.text import Corpus


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    return tiny_tokenizer()


@pytest.fixture(scope="session")
def corpus() -> Corpus:
    documents = {f"{index}.txt": tiny_text(600, seed=index) for index in range(4)}
    return Corpus.of("words", documents, split="all", split_rule="all documents")
