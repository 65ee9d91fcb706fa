from typing import Any

import pytest

from lengthwise.testing import tiny_text, tiny_tokenizer
from lengthwise.text import Corpus, as_corpus


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    return tiny_tokenizer()


@pytest.fixture(scope="session")
def corpus() -> Corpus:
    return as_corpus([tiny_text(600, seed=index) for index in range(4)])
