"""Replies and likelihoods against plain forward passes and transformers' own generate, in fp64."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cache
from itertools import chain
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from lengthwise.checkpoints.head import NonFiniteLogits
from lengthwise.errors import UsageError
from lengthwise.evaluation.decoding import Tokens, likelihoods, replies
from lengthwise.subjects import LoadedModel
from lengthwise.testing import tiny_tokenizer
from tests.architectures import tiny_model

FAMILIES = ("llama-gqa", "gemma3-text-soft-cap", "mistral", "gpt2", "bloom-alibi", "phi-bias")


def loaded(name: str, **overrides: Any) -> LoadedModel:
    """A model whose tokenizer decodes tokens to their numbers."""
    model = tiny_model(name, eos_token_id=None, **overrides).double()
    tokenizer = tiny_tokenizer()
    tokenizer.decode = lambda ids, **_: " ".join(map(str, ids))  # type: ignore[method-assign]
    return LoadedModel(model, tokenizer, name, "memory")


def written(*arguments: Any, **settings: Any) -> list[Tokens]:
    """The tokens of `replies`."""
    return [tuple(map(int, reply.split())) for reply in replies(*arguments, **settings)]


@cache
def unchanged(name: str) -> LoadedModel:
    """One for several tests, none of which changes it."""
    return loaded(name)


def random_tokens(size: int, seed: int) -> Tokens:
    return tuple(torch.randint(3, 320, (size,), generator=torch.Generator().manual_seed(seed)).tolist())


def prompts() -> list[Tokens]:
    """Three that share 36 tokens, of different lengths, one of them a beginning of another."""
    shared = random_tokens(36, 0)
    return [(*shared, *random_tokens(5, 1)), shared, (*shared, *random_tokens(2, 2))]


ANSWERS: list[Sequence[Tokens]] = [[(5,), (6, 7), (6, 8, 9)], [(5,), (4,)], [(300, 301), (5,)]]


def plain_likelihood(model: LoadedModel, prompt: Tokens, answer: Tokens) -> float:
    with torch.no_grad():
        logits = model.model(torch.tensor([[*prompt, *answer]])).logits[0].double()
    rows = logits[len(prompt) - 1 : -1].log_softmax(dim=-1)
    return float(rows.gather(1, torch.tensor(answer)[:, None]).sum())


@pytest.mark.parametrize("name", FAMILIES)
def test_likelihoods_equal_whole_forward_passes(name: str) -> None:
    model = unchanged(name)
    expected = [
        plain_likelihood(model, prompt, answer)
        for prompt, answers in zip(prompts(), ANSWERS, strict=True)
        for answer in answers
    ]
    for batch_size in (1, 2, 8):
        found = likelihoods(model, prompts(), ANSWERS, batch_size=batch_size)
        assert [*chain(*found)] == pytest.approx(expected, abs=1e-5)


def plain_reply(model: LoadedModel, prompt: Tokens, new_tokens: int) -> Tokens:
    ids = list(prompt)
    with torch.no_grad():
        for _ in range(new_tokens):
            ids.append(int(model.model(torch.tensor([ids])).logits[0, -1].argmax()))
    return tuple(ids[len(prompt) :])


@pytest.mark.parametrize("name", FAMILIES)
def test_replies_equal_decoding_without_a_cache(name: str) -> None:
    model = unchanged(name)
    expected = [plain_reply(model, prompt, 4) for prompt in prompts()]
    for batch_size in (1, 8):
        assert written(model, prompts(), new_tokens=4, batch_size=batch_size) == expected


def test_unrelated_prompts_are_batched_with_padding() -> None:
    model = loaded("llama-gqa")
    some = [random_tokens(size, size) for size in (3, 17, 9, 1)]
    found = written(model, some, new_tokens=5, batch_size=4)
    assert found == [plain_reply(model, prompt, 5) for prompt in some]


class Counting:
    """Counts the tokens that a model reads."""

    def __init__(self, model: LoadedModel) -> None:
        self.read: list[tuple[int, ...]] = []
        assert model.head
        model.model.register_forward_pre_hook(self._note, with_kwargs=True)

    def _note(self, _module: Any, _args: Any, kwargs: dict[str, Any]) -> None:
        self.read.append(tuple(kwargs["input_ids"].shape))


def test_what_is_shared_is_read_once() -> None:
    model = loaded("llama-gqa")
    counting = Counting(model)
    likelihoods(model, prompts(), ANSWERS)
    # 36 tokens but the last, which the shortest prompt's answers are predicted from; then all that differs; and the
    # longest row whole, as a proof.
    assert counting.read == [(1, 35), (1, 1 + 5 + 2 + 2 + 1), (1, 43)]
    counting.read.clear()
    likelihoods(model, [random_tokens(30, 1)], [[(5, 6), (7, 8), (9,)]])
    assert counting.read == [(1, 29), (1, 3)], (
        "a question is read once for all its answers, and nothing proven twice"
    )
    counting.read.clear()
    likelihoods(model, [random_tokens(60, 1)], [[(5, 6), (7, 8), (9,)]])
    assert counting.read == [(1, 59), (1, 3), (1, 61)], "a longer text is a new proof"
    counting.read.clear()
    likelihoods(model, [random_tokens(50, 1)], [[(5,), (6,), (7,)]])
    assert counting.read == [(1, 49), (1, 1)], "answers of one token share their row"
    counting.read.clear()
    replies(model, prompts(), new_tokens=2, batch_size=3)
    assert counting.read == [(1, 35), (3, 6), (3, 1)]


def test_a_reply_ends_at_eos_at_a_stop_id_and_where_told() -> None:
    model = loaded("llama-gqa")
    [prompt] = [random_tokens(20, 4)]
    [whole] = written(model, [prompt], new_tokens=6)
    third = whole[2]
    cut = whole.index(third)
    [stopped] = written(model, [prompt], new_tokens=6, stop_ids=frozenset({third}))
    assert stopped == whole[:cut]
    [at_text] = written(model, [prompt], new_tokens=6, until=lambda text: len(text) > 0)
    assert len(at_text) == 1
    first = whole[0]
    [forced] = written(model, [prompt], new_tokens=3, stop_ids=frozenset({first}), at_least=1)
    assert forced[0] != first
    model.model.generation_config.eos_token_id = [third, 319]
    assert written(model, [prompt], new_tokens=6)[0] == stopped


def test_a_row_that_ended_does_not_disturb_the_others() -> None:
    model = loaded("llama-gqa")
    some = [random_tokens(20, seed) for seed in (4, 5)]
    whole = written(model, some, new_tokens=6)
    stop = whole[0][0]
    assert stop not in whole[1]
    found = written(model, some, new_tokens=6, batch_size=2, stop_ids=frozenset({stop}))
    assert found == [(), whole[1]]


def test_a_head_that_is_not_proven_goes_through_full_logits() -> None:
    expected = likelihoods(loaded("llama-gqa"), prompts(), ANSWERS)
    other = loaded("llama-gqa")
    other.model.lm_head.register_forward_hook(lambda *args: args[2] + 1.0)
    assert type(other.head).__name__ == "FullLogits"
    found = likelihoods(other, prompts(), ANSWERS)
    assert [*chain(*found)] == pytest.approx([*chain(*expected)], abs=1e-5)
    assert other.head


def test_a_table_of_positions_is_not_exceeded() -> None:
    model = loaded("gpt2", max_position_embeddings=40)
    with pytest.raises(UsageError, match=r"43 .* gpt2 .* 40 "):
        likelihoods(model, prompts(), ANSWERS)
    with pytest.raises(UsageError, match="44"):
        replies(model, prompts(), new_tokens=4)


def test_logits_that_are_not_finite_are_refused() -> None:
    model = loaded("llama-gqa")
    bad = dataclasses.replace(model)
    bad.__dict__["head"] = SimpleNamespace(logits=lambda hidden: hidden * float("nan"))
    with pytest.raises(NonFiniteLogits) as caught:
        replies(bad, prompts(), new_tokens=2)
    assert caught.value.model == "llama-gqa"
    with pytest.raises(NonFiniteLogits):
        likelihoods(bad, prompts(), ANSWERS)
