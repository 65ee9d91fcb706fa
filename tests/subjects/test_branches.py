"""Branches of a text read in one pass are those that are read one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    GPTNeoConfig,
    LlamaConfig,
    MistralConfig,
    PreTrainedConfig,
)

from lengthwise.subjects import LoadedModel
from lengthwise.subjects import branches as module
from lengthwise.subjects.branches import read_branch_by_branch, read_tree, read_with_branches
from lengthwise.subjects.pieces import PieceReader
from lengthwise.testing import tiny_tokenizer

SIZES: dict[str, Any] = {
    "vocab_size": 320, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 128,
}  # fmt: skip
NEO: dict[str, Any] = {"vocab_size": 320, "hidden_size": 32, "num_layers": 2, "num_heads": 4}
TOKENS = np.random.default_rng(0).integers(320, size=60)
BRANCH, PLACES = TOKENS[:9], [5, 6, 20, 44, 60]
TOGETHER: dict[str, PreTrainedConfig] = {
    "rope": LlamaConfig(**SIZES),
    "a table of positions": GPT2Config(vocab_size=320, n_embd=32, n_layer=2, n_head=4, n_positions=128),
}
ONE_BY_ONE: dict[str, PreTrainedConfig] = {
    "a sliding window": MistralConfig(**SIZES, sliding_window=16, num_key_value_heads=2),
    "local attention inside a layer": GPTNeoConfig(
        **NEO, attention_types=[[["global", "local"], 1]], window_size=16, max_position_embeddings=128
    ),
    "rope by the length of the input": LlamaConfig(
        **SIZES, rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
    ),
}


def made(config: PreTrainedConfig, attention: str = "sdpa") -> LoadedModel:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention).eval()
    return LoadedModel(model, tiny_tokenizer(), "made", "memory")


def both(model: LoadedModel) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [
        read(model, TOKENS, [BRANCH] * len(PLACES), PLACES, piece=16)
        for read in (read_with_branches, read_branch_by_branch)
    ]


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", TOGETHER)
def test_together_as_one_by_one(kind: str, attention: str) -> None:
    model = made(TOGETHER[kind], attention)
    # The first time is the proof's.
    for _ in range(2):
        for together, apart in zip(*both(model), strict=True):
            torch.testing.assert_close(together, apart, rtol=1e-4, atol=1e-4)
        assert model.branches


@pytest.mark.parametrize(
    "kind", ["rope", "a table of positions", "a sliding window", "local attention inside a layer"]
)
def test_one_by_one_is_a_pass_for_each(kind: str) -> None:
    model = made((TOGETHER | ONE_BY_ONE)[kind], "eager")
    _, found = read_branch_by_branch(model, TOKENS, [BRANCH] * len(PLACES), PLACES, piece=16)
    for place, branch in zip(PLACES, found, strict=True):
        tokens = torch.from_numpy(np.concatenate([TOKENS[:place], BRANCH]))
        whole = model.hidden_states(tokens[None])[0, place:]
        torch.testing.assert_close(branch, whole, rtol=1e-4, atol=1e-4)


def test_a_table_that_ends_with_the_text() -> None:
    """Nothing is read beyond it: on a GPU a position without a row would end the process."""
    config = GPT2Config(vocab_size=320, n_embd=32, n_layer=2, n_head=4, n_positions=len(TOKENS))
    model = made(config)
    places = [5, 20, len(TOKENS) - len(BRANCH)]
    _, together = read_with_branches(model, TOKENS, [BRANCH] * len(places), places, piece=16)
    assert model.branches
    _, apart = read_branch_by_branch(model, TOKENS, [BRANCH] * len(places), places, piece=16)
    torch.testing.assert_close(together, apart, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ONE_BY_ONE)
def test_models_that_cannot(kind: str) -> None:
    model = made(ONE_BY_ONE[kind], "eager")
    for first, second in zip(*both(model), strict=True):
        torch.testing.assert_close(first, second)
    assert not model.branches


def test_the_text_is_not_read_again_for_a_branch(monkeypatch: pytest.MonkeyPatch) -> None:
    model = made(TOGETHER["rope"])
    both(model)
    passes: list[int] = []
    forward = model.model.model.forward

    def counted(input_ids: torch.Tensor, **rest: Any) -> Any:
        passes.append(input_ids.shape[1])
        return forward(input_ids=input_ids, **rest)

    monkeypatch.setattr(model.model.model, "forward", counted)
    read_with_branches(model, TOKENS, [BRANCH] * len(PLACES), PLACES, piece=16)
    # Places 44 and 60; 20; 5 and 6.
    assert passes == [len(TOKENS), 2 * len(BRANCH), len(BRANCH), 2 * len(BRANCH)]


@pytest.mark.parametrize("kind", [*TOGETHER, *ONE_BY_ONE])
def test_a_text_without_branches(kind: str) -> None:
    model = made((TOGETHER | ONE_BY_ONE)[kind], "eager")
    text, branches = read_with_branches(model, TOKENS, [], [], piece=60)
    assert len(branches) == 0
    torch.testing.assert_close(
        text, model.hidden_states(torch.from_numpy(TOKENS)[None])[0], rtol=1e-4, atol=1e-4
    )


ROWS = [(7,), (7, 8), (7, 8, 9), (7, 9), (8, 7), (9, 9, 9, 9)]


def tree(model: LoadedModel, size: int) -> list[torch.Tensor] | None:
    reader = PieceReader(model)
    reader.read(TOKENS[None, :size])
    return read_tree(model, reader, ROWS, size)


@pytest.mark.parametrize("most", [1, 4, 512])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", TOGETHER)
def test_a_tree_is_its_rows_one_by_one(
    kind: str, attention: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_NODES", most)
    model = made(TOGETHER[kind], attention)
    found = tree(model, 30)
    assert found is not None
    for row, states in zip(ROWS, found, strict=True):
        whole = model.hidden_states(torch.tensor([[*TOKENS[:30].tolist(), *row]]))[0, 30:]
        torch.testing.assert_close(states, whole, rtol=1e-4, atol=1e-4)


def test_a_longer_text_is_proven_again() -> None:
    model = made(ONE_BY_ONE["local attention inside a layer"], "eager")
    assert tree(model, 4) is not None, "its windows of 16 tokens hold the text and all rows"
    assert model.branches == 4 + 10, "the text and the tree"
    assert tree(model, 30) is None
    assert tree(model, 4) is None, "refused once is refused"
