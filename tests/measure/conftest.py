from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lengthwise.subjects import LoadedModel
from lengthwise.subjects.loaded_model import SIDE_BY_SIDE
from lengthwise.subjects.proof import Proofs
from lengthwise.subjects.reading import ReadingPath
from lengthwise.testing import tiny_llama, tiny_tokenizer
from lengthwise.text import TokenDocument, TokenDocuments
from tests.readings import in_memory

VOCABULARY = 320


class FakeModel(LoadedModel):
    """A model whose logits are a function of the tokens, [B, T] -> [B, T, V]."""

    head: Any = SimpleNamespace(logits=lambda hidden: hidden)
    vocab_size = 0
    max_positions = None
    config: Any = None
    remarks: Any = ()
    device = torch.device("cpu")

    def __init__(
        self,
        logits: Callable[[Tensor], Tensor],
        vocab_size: int,
        *,
        max_positions: int | None = None,
        tokenizer: Any = None,
    ) -> None:
        self.logits, self.vocab_size, self.max_positions = logits, vocab_size, max_positions
        self.name, self.tokenizer = "fake", tokenizer or tiny_tokenizer()
        self.model = torch.nn.Module().eval()
        self.config = SimpleNamespace(model_type="fake", rope_parameters=None)
        self.path = ReadingPath()
        # Each row is a function of its own tokens.
        self._proofs = {"None": Proofs({SIDE_BY_SIDE: 1 << 40})}
        self.calls: list[tuple[int, ...]] = []

    def look_before(self) -> None:
        """It has no code of its own."""

    check_unchanged = look_before

    def describe(self) -> dict[str, Any]:
        return {}

    def hidden_states(self, input_ids: Tensor) -> Tensor:
        self.calls.append(tuple(input_ids.shape))
        return self.logits(input_ids)


def token_documents(sizes: list[int], *, vocabulary: int = VOCABULARY, seed: int = 0) -> TokenDocuments:
    """Documents of random tokens."""
    rng = np.random.default_rng(seed)
    documents = tuple(
        TokenDocument(f"doc{index}", rng.integers(vocabulary, size=size).astype(np.int32))
        for index, size in enumerate(sizes)
    )
    return TokenDocuments(documents, "random", "corpus", "")


@pytest.fixture(scope="session")
def documents() -> TokenDocuments:
    return token_documents([900, 700, 800, 600])


@pytest.fixture(scope="session")
def model() -> LoadedModel:
    return in_memory()


@pytest.fixture(scope="session")
def other_model() -> LoadedModel:
    return in_memory(tiny_llama(seed=1), "other")


@pytest.fixture
def fake() -> type[FakeModel]:
    return FakeModel


@pytest.fixture
def make_documents() -> Callable[..., TokenDocuments]:
    return token_documents
