"""Likelihoods of answers against plain forward passes, in fp64."""

from collections.abc import Sequence
from itertools import chain
from types import SimpleNamespace

import pytest
import torch

from lengthwise.checkpoints.head import NonFiniteLogits
from lengthwise.errors import UsageError
from lengthwise.evaluation.likelihood import likelihoods
from lengthwise.subjects import LoadedModel
from lengthwise.subjects.reading import Tokens
from tests.architectures import tiny_model
from tests.readings import PassesOf, in_memory, some_prompts, some_tokens

ANSWERS: list[Sequence[Tokens]] = [[(5,), (6, 7), (6, 8, 9)], [(5,), (4,)], [(300, 301), (5,)]]
PROMPTS = {
    "a common beginning": some_prompts(),
    "none": [some_tokens(size, size) for size in (20, 31, 25)],
}


def loaded(name: str, **overrides: int) -> LoadedModel:
    return in_memory(tiny_model(name, **overrides).double(), name)


def plainly(model: LoadedModel, prompt: Tokens, answer: Tokens) -> float:
    with torch.no_grad():
        logits = model.model(torch.tensor([[*prompt, *answer]])).logits[0].double()
    rows = logits[len(prompt) - 1 : -1].log_softmax(dim=-1)
    return float(rows.gather(1, torch.tensor(answer)[:, None]).sum())


@pytest.mark.parametrize("beginning", PROMPTS)
@pytest.mark.parametrize(
    "name", ["llama-gqa", "gemma3-text-soft-cap", "mistral", "gpt2", "bloom-alibi", "phi-bias"]
)
def test_they_equal_whole_forward_passes(name: str, beginning: str) -> None:
    model, prompts = loaded(name), PROMPTS[beginning]
    expected = [
        plainly(model, prompt, answer)
        for prompt, answers in zip(prompts, ANSWERS, strict=True)
        for answer in answers
    ]
    for batch_size in (1, 2, 8):
        found = likelihoods(model, prompts, ANSWERS, batch_size=batch_size)
        assert [*chain(*found)] == pytest.approx(expected, abs=1e-5)


def test_what_is_shared_is_read_once() -> None:
    model = loaded("llama-gqa")
    passes = PassesOf(model)
    likelihoods(model, some_prompts(), ANSWERS)
    # 36 tokens but the last, which the shortest prompt's answers are predicted from; then all that differs; and the
    # longest row whole, as a proof.
    assert passes.taken() == [(1, 35), (1, 1 + 5 + 2 + 2 + 1), (1, 43)]
    likelihoods(model, [some_tokens(30, 1)], [[(5, 6), (7, 8), (9,)]])
    assert passes.taken() == [(1, 29), (1, 3)], (
        "a question is read once for all answers, nothing proven twice"
    )
    likelihoods(model, [some_tokens(60, 1)], [[(5, 6), (7, 8), (9,)]])
    assert passes.taken() == [(1, 59), (1, 3), (1, 61)], "a longer text is a new proof"
    likelihoods(model, [some_tokens(50, 1)], [[(5,), (6,), (7,)]])
    # Answers of one token: the row of each from the cache, which is proven the first time.
    assert passes.taken() == [(1, 49), *[(1, 1)] * 3, (1, 50)]


def test_a_head_that_is_not_proven_goes_through_full_logits() -> None:
    expected = likelihoods(loaded("llama-gqa"), some_prompts(), ANSWERS)
    other = loaded("llama-gqa")
    other.model.lm_head.register_forward_hook(lambda *args: args[2] + 1.0)
    assert type(other.head).__name__ == "FullLogits"
    found = likelihoods(other, some_prompts(), ANSWERS)
    assert [*chain(*found)] == pytest.approx([*chain(*expected)], abs=1e-5)


def test_a_table_of_positions_is_not_exceeded() -> None:
    with pytest.raises(UsageError, match=r"43 .* gpt2 .* 40 "):
        likelihoods(loaded("gpt2", max_position_embeddings=40), some_prompts(), ANSWERS)


def test_logits_that_are_not_finite_are_refused() -> None:
    model = loaded("llama-gqa")
    model.__dict__["head"] = SimpleNamespace(logits=lambda hidden: hidden * float("nan"))
    with pytest.raises(NonFiniteLogits) as caught:
        likelihoods(model, some_prompts(), ANSWERS)
    assert caught.value.model == "llama-gqa"
