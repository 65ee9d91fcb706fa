"""Every branch of a text is what one plain pass over its part of the text and itself gives."""

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig

from lengthwise.subjects import Branch, LoadedModel, Reading
from lengthwise.subjects import branches as module
from lengthwise.subjects.branches import CONTINUED, TOGETHER, read_with_branches
from tests.readings import in_memory
from tests.subjects.test_writing import KINDS, MOE, SIZES

WINDOWS = {"layer_types": ["sliding_attention", "full_attention"] * 2, "sliding_window": 16}
CHUNKS = {"layer_types": ["chunked_attention", "full_attention"] * 2, "attention_chunk_size": 16}
OWN: dict[str, tuple[str, dict[str, Any]]] = {
    "some layers with a window": ("qwen2", WINDOWS | {"use_sliding_window": True}),
    "gpt-oss": ("gpt_oss", WINDOWS | MOE | {"head_dim": 8}),
    "chunks": ("llama4_text", CHUNKS | {"head_dim": 8, "intermediate_size_mlp": 64, "num_local_experts": 2}),
    "local attention inside a layer": (
        "gpt_neo",
        {"num_layers": 4, "num_heads": 4, "attention_types": [[["global", "local"], 2]], "window_size": 16},
    ),
}
"""Beside those of test_writing.py."""


def config_of(kind: str, **more: Any) -> PreTrainedConfig:
    model_type, settings = (KINDS | OWN)[kind]
    return AutoConfig.for_model(model_type, **(SIZES | settings | more))


TOGETHER_KINDS = (
    "a plain cache", "learned positions", "sliding windows", "sliding and full layers", "some layers with a window",
    "gpt-oss", "chunks",
)  # fmt: skip
ONE_BY_ONE = ("local attention inside a layer", "ALiBi")
EVERY = *TOGETHER_KINDS, *ONE_BY_ONE, "dynamic NTK"
WITHOUT = [(kind, "sdpa") for kind in ("gpt-oss", *ONE_BY_ONE)]
"""transformers has no such attention for them."""
TOKENS = np.random.default_rng(0).integers(320, size=60)
SIDE = TOKENS[:9]
PLACES = [0, 5, 6, 20, 44, 44, 60]


def made(config: PreTrainedConfig, attention: str = "sdpa") -> LoadedModel:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            # Far from what a window or a chunk would not show.
            parameter.normal_(0, 0.3) if parameter.dim() > 1 else None
    return in_memory(model, "made")


READ: dict[Any, torch.Tensor] = {}
"""What was read plainly: configuration and tokens -> logits."""


def plain(model: LoadedModel, tokens: Any) -> torch.Tensor:
    """What transformers' own forward pass gives, without a cache, of a model that has read nothing."""
    attention, ids = model.config._attn_implementation, torch.as_tensor(np.asarray(tokens))[None]
    key = model.config.to_json_string(), attention, *ids[0].tolist()
    if key not in READ:
        fresh = made(model.config, attention).model
        with torch.no_grad():
            READ[key] = fresh(input_ids=ids, use_cache=False).logits[0]
    return READ[key]


def asked(
    tokens: np.ndarray, places: Sequence[int] = PLACES, side: np.ndarray = SIDE, *, scored: int = 20
) -> Reading:
    branches = [Branch(place=place, tokens=(side + place) % 320, labels=side) for place in places]
    return Reading(tokens=tokens, labels=tokens[:scored], branches=branches)


def check(model: LoadedModel, reading: Reading) -> None:
    text, found = read_with_branches(model, reading)
    logits = [model.head.logits(each) for each in (text, *found)]
    if len(reading.labels):
        torch.testing.assert_close(logits[0], plain(model, reading.tokens), rtol=1e-3, atol=1e-3)
    for branch, own in zip(reading.branches, logits[1:], strict=True):
        whole = plain(model, [*reading.tokens[: branch.place], *branch.tokens])[branch.place :]
        torch.testing.assert_close(own, whole, rtol=1e-3, atol=1e-3)


def shortcut(model: LoadedModel) -> str | None:
    return next((name for name in (TOGETHER, CONTINUED) if model.proofs.up_to.get(name)), None)


@pytest.mark.parametrize(
    ("kind", "attention"),
    [
        (kind, attention)
        for attention in ("sdpa", "eager")
        for kind in EVERY
        if (kind, attention) not in WITHOUT
    ],
)
def test_every_branch_equals_a_plain_pass(kind: str, attention: str) -> None:
    """Beyond windows and chunks of 16 tokens; the first reading is the proof's, the second is not compared."""
    model = made(config_of(kind), attention)
    for _ in range(2):
        check(model, asked(TOKENS))
    # A text that goes on after its last branch.
    check(model, asked(TOKENS, [5, 44]))
    # A text of which nothing is scored.
    check(model, asked(TOKENS, scored=0))
    expected = TOGETHER if kind in TOGETHER_KINDS else CONTINUED if kind in ONE_BY_ONE else None
    assert shortcut(model) == expected


def test_a_table_that_ends_with_the_text() -> None:
    """Nothing is read beyond it: on a GPU a position without a row would end the process."""
    model = made(config_of("learned positions", n_positions=len(TOKENS)))
    check(model, asked(TOKENS, [5, 45, len(TOKENS) - len(SIDE)]))
    assert shortcut(model) == TOGETHER


def test_the_text_is_not_read_again_for_a_branch(monkeypatch: pytest.MonkeyPatch) -> None:
    model = made(config_of("a plain cache"))
    read_with_branches(model, asked(TOKENS))
    passes: list[int] = []
    forward = model.model.model.forward

    def counted(input_ids: torch.Tensor, **rest: Any) -> Any:
        passes.append(input_ids.shape[1])
        return forward(input_ids=input_ids, **rest)

    monkeypatch.setattr(model.model.model, "forward", counted)
    read_with_branches(model, asked(TOKENS, [5, 6, 20, 44, 60]))
    # Places 44 and 60; 20; 5 and 6.
    assert passes == [len(TOKENS), 2 * len(SIDE), len(SIDE), 2 * len(SIDE)]


def test_a_proof_costs_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the farthest branch, each time that more is read than ever before, and the fifth time."""
    model = made(config_of("some layers with a window"))
    assert model.head
    passes: list[int] = []
    run = model.hidden_states

    def counted(ids: torch.Tensor) -> torch.Tensor:
        passes.append(ids.shape[1])
        return run(ids)

    monkeypatch.setattr(model, "hidden_states", counted)
    for length in (40, 40, 30, 60, 50):
        read_with_branches(model, asked(TOKENS[:length], [5, length - 12, length - 10]))
    assert passes == [length - 10 + len(SIDE) for length in (40, 60, 50)]


ROWS = [(7,), (7, 8), (7, 8, 9), (7, 9), (8, 7), (9, 9, 9, 9)]


@pytest.mark.parametrize("most", [1, 4, 512])
@pytest.mark.parametrize("kind", EVERY)
def test_a_tree_is_its_rows_one_by_one(kind: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_NODES", most)
    model = made(config_of(kind), "eager")
    branches = [Branch(place=30, tokens=np.array(row), labels=np.array(row)) for row in ROWS]
    check(model, Reading(tokens=TOKENS[:30], branches=branches))


def test_a_longer_text_is_proven_again(caplog: pytest.LogCaptureFixture) -> None:
    model = made(config_of("local attention inside a layer"), "eager")
    check(model, asked(TOKENS[:4], [3, 4], SIDE[:3]))
    assert model.proofs.up_to == {TOGETHER: 7}, "its windows of 16 tokens hold all"
    with caplog.at_level(logging.WARNING):
        for length in (30, 40, 4):
            check(model, asked(TOKENS[:length], [length - 1, length]))
    assert model.proofs.up_to == {TOGETHER: 0, CONTINUED: 49}
    [record] = caplog.records
    assert TOGETHER in record.getMessage()


def test_another_kernel_is_proven_by_itself() -> None:
    model = made(config_of("a plain cache"))
    check(model, asked(TOKENS))
    model.model.set_attn_implementation("eager")
    assert not model.proofs.up_to
    check(model, asked(TOKENS))
    assert shortcut(model) == TOGETHER


def test_a_hybrid_continues_its_state_or_is_read_plainly() -> None:
    """transformers drops the state of Bamba's mixer where several tokens follow a cache."""
    model = made(config_of("bamba"))
    for _ in range(2):
        check(model, asked(TOKENS))
    assert model.proofs.failed(TOGETHER)
