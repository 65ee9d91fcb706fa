"""Greedy replies of every kind of model against plain forward passes without a cache."""

import logging
import re
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache, GenerationConfig

from lengthwise.checkpoints.head import FullLogits, NonFiniteLogits
from lengthwise.checkpoints.hidden import cache_argument
from lengthwise.errors import UsageError
from lengthwise.settings import Subject
from lengthwise.subjects import LoadedModel
from lengthwise.subjects.reading import ReadingPath, Tokens, reading_path
from lengthwise.testing import tiny_tokenizer
from tests.architectures import tiny_model
from tests.readings import PassesOf, some_prompts, some_tokens

SIZES: dict[str, Any] = {
    "vocab_size": 320, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 512, "initializer_range": 0.3, "eos_token_id": None,
    "bos_token_id": None, "pad_token_id": None,
}  # fmt: skip
MAMBA = {
    "mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 16, "mamba_n_groups": 1, "mamba_expand": 2,
    "mamba_chunk_size": 16,
}  # fmt: skip
MOE = {"num_local_experts": 4, "num_experts_per_tok": 2}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "a plain cache": ("llama", {}),
    "sliding windows": ("mistral", {"sliding_window": 16}),
    "sliding and full layers": ("gemma3_text", {"head_dim": 8, "sliding_window": 16}),
    "ALiBi": ("bloom", {"n_layer": 2, "n_head": 4}),
    "learned positions": ("gpt2", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 512}),
    "bamba": ("bamba", {"attn_layer_indices": [2], "attn_rotary_emb": 8, **MAMBA}),
    "jamba": (
        "jamba",
        {
            "attn_layer_offset": 2, "attn_layer_period": 4, "expert_layer_offset": 1, "expert_layer_period": 2,
            "num_experts": 4, "num_experts_per_tok": 2, "mamba_d_state": 16, "mamba_dt_rank": 4,
            "use_mamba_kernels": False,
        },
    ),
    "minimax": (
        "minimax",
        {"head_dim": 8, "layer_types": ["linear_attention", "full_attention"] * 2, "block_size": 16, **MOE},
    ),
    "zamba2": (
        "zamba2",
        {
            "layers_block_type": ["mamba", "hybrid"] * 2, "hybrid_layer_ids": [1, 3], "num_mem_blocks": 1,
            "mamba_d_state": 16, "mamba_headdim": 8, "n_mamba_heads": 8, "mamba_ngroups": 1, "chunk_size": 16,
            "use_mem_rope": True, "adapter_rank": 8, "num_key_value_heads": 4,
        },
    ),
    "lfm2": ("lfm2", {"layer_types": ["conv", "conv", "full_attention", "conv"], "conv_L_cache": 3}),
    "mamba": ("mamba", {"state_size": 16, "time_step_rank": 4}),
    "dynamic NTK": (
        "llama",
        {"max_position_embeddings": 40,
         "rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}},
    ),
    "LongRoPE at its switch": (
        "phi3",
        {"rope_parameters": {
            "rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 4,
            "long_factor": [1.0, 2.0, 4.0, 8.0], "original_max_position_embeddings": 40, "factor": 12.8},
         },
    ),
}  # fmt: skip
"""Kinds of model: transformers' type and what differs from SIZES."""


def as_loaded(model: Any, name: str = "tiny") -> LoadedModel:
    """A model whose tokenizer decodes tokens to their numbers."""
    tokenizer = tiny_tokenizer()
    tokenizer.decode = lambda ids, **_: " ".join(map(str, ids))  # type: ignore[method-assign]
    tokenizer.eos_token = None
    return LoadedModel(model, tokenizer, name, "memory")


def made(kind: str) -> LoadedModel:
    model_type, settings = KINDS[kind]
    config = AutoConfig.for_model(model_type, **(SIZES | settings))
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(config).eval()
    model.generation_config.eos_token_id = None
    return as_loaded(model, kind)


@cache
def llama() -> LoadedModel:
    return as_loaded(tiny_model("llama-gqa", eos_token_id=None).double())


def written(model: LoadedModel, prompts: list[Tokens], **settings: Any) -> list[Tokens]:
    return [tuple(map(int, reply.split())) for reply in model.write(prompts, **settings)]


def plainly(model: LoadedModel, prompt: Tokens, new_tokens: int) -> Tokens:
    """Each token by a pass over all tokens before it, by a model that has read nothing else."""
    ids = list(prompt)
    with torch.no_grad():
        for _ in range(new_tokens):
            logits = model.model(torch.tensor([ids]), use_cache=False).logits[0, -1]
            ids.append(int(logits.argmax()))
    return tuple(ids[len(prompt) :])


APART = [some_tokens(size, size) for size in (37, 50, 44, 38)]
"""Prompts without a common beginning, of which one begins short of 40 tokens and ends beyond."""


@pytest.mark.parametrize("kind", KINDS)
def test_replies_are_those_of_plain_passes(kind: str) -> None:
    models = {at_once: made(kind) for at_once in (1, 4)}
    for prompts in (APART, some_prompts()):
        expected = [plainly(made(kind), prompt, 6) for prompt in prompts]
        for at_once, model in models.items():
            assert written(model, prompts, new_tokens=6, at_once=at_once) == expected, at_once


SAID = {
    "minimax": ["several lengths"],
    # Since transformers 5.24 its forward pass takes a cache, which padding spoils.
    "mamba": ["decoding|several lengths"],
    "zamba2": ["decoding"],
    "dynamic NTK": ["dynamic rope"],
    "LongRoPE at its switch": ["longrope rope"],
}
"""What is read the slow way, and why."""


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_read_slowly_is_said_once(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    model = made(kind)
    with caplog.at_level(logging.WARNING, logger="lengthwise"):
        for _ in range(2):
            model.write(APART, new_tokens=4, at_once=4)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == len(SAID.get(kind, ()))
    for text, word in zip(said, SAID.get(kind, ()), strict=True):
        assert re.search(word, text)


def test_a_common_beginning_and_steps_are_read_once() -> None:
    model = as_loaded(tiny_model("llama-gqa", eos_token_id=None).double())
    passes = PassesOf(model)
    model.write(some_prompts(), new_tokens=2, at_once=3)
    # The beginning of all; the longest reply by itself, and its proof; the rest side by side, and the proof of both.
    first = [(1, 35), (1, 6), (1, 1), (1, 42)]
    assert passes.taken() == [*first, (2, 3), (2, 1), (1, 39), (1, 37)]
    model.write(some_prompts(), new_tokens=2, at_once=2)
    assert passes.taken() == [(1, 35), (2, 6), (2, 1), (1, 42), (1, 39), (1, 1), (1, 1)], (
        "more padding than before"
    )
    model.write(some_prompts(), new_tokens=2, at_once=2)
    assert passes.taken() == [(1, 35), (2, 6), (2, 1), (1, 1), (1, 1)], "nothing is proven twice"


def test_a_window_that_padding_would_shorten_is_not_padded() -> None:
    """Between a common beginning and the rest, padding is inside the windows."""
    model = made("sliding windows")
    model.write(some_prompts(), new_tokens=4, at_once=3)
    assert not any("several lengths" in shortcut for shortcut in model.proofs.up_to)


def test_a_reply_ends_at_eos_at_a_stop_id_and_where_told() -> None:
    model = as_loaded(tiny_model("llama-gqa", eos_token_id=None).double())
    prompts = [some_tokens(20, 4)]
    [whole] = written(model, prompts, new_tokens=6)
    third = whole[2]
    [stopped] = written(model, prompts, new_tokens=6, stop_ids=frozenset({third}))
    assert stopped == whole[: whole.index(third)]
    [at_text] = written(model, prompts, new_tokens=6, until=lambda text: len(text) > 0)
    assert len(at_text) == 1
    [forced] = written(model, prompts, new_tokens=3, stop_ids=frozenset({whole[0]}), at_least=1)
    assert forced[0] != whole[0]
    model.model.generation_config.eos_token_id = [third, 319]
    assert written(model, prompts, new_tokens=6)[0] == stopped


SETTINGS: dict[str, tuple[Any, bool]] = {
    "repetition_penalty": (5.0, True), "no_repeat_ngram_size": (1, True), "suppress_tokens": ("first", True),
    "begin_suppress_tokens": ("first", True), "forced_eos_token_id": (5, True), "min_new_tokens": (6, True),
    "do_sample": (True, False), "temperature": (0.5, False), "top_k": (3, False), "max_length": (30, False),
}  # fmt: skip
"""What generation_config.json can say; whether greedy replies of `generate` would be others. Draws are none here."""


@pytest.mark.parametrize("name", SETTINGS)
def test_what_generate_would_do_otherwise_is_said_and_replies_are_those_of_generate_without_it(name):
    model = as_loaded(tiny_model("llama-gqa", eos_token_id=None, max_position_embeddings=256).double())
    prompt, (value, is_said) = some_tokens(20, 4), SETTINGS[name]
    [plain] = written(model, [prompt], new_tokens=6)
    assert model.describe()["remarks"] == []
    setattr(model.model.generation_config, name, [plain[0]] if value == "first" else value)
    assert written(model, [prompt], new_tokens=6) == [plain]
    assert [name in remark for remark in model.describe()["remarks"]] == [True] * is_said
    model.model.generation_config = GenerationConfig(eos_token_id=None, pad_token_id=0)
    ids = torch.tensor([prompt])
    replied = model.model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=6, do_sample=False
    )
    assert tuple(replied[0, 20:].tolist()) == plain


def test_a_row_that_ended_does_not_disturb_the_others() -> None:
    some = [some_tokens(20, seed) for seed in (4, 5, 6)]
    whole = written(llama(), some, new_tokens=6)
    stop = whole[0][0]
    assert stop not in (*whole[1], *whole[2])
    found = written(llama(), some, new_tokens=6, at_once=3, stop_ids=frozenset({stop}))
    assert found == [(), *whole[1:]]


PATHS = {
    "chunks": {"read": "chunks=7"},
    "one by one": {"read": "decode=9"},
    "a cache that keeps all": {"kv_cache": "full", "read": "chunks=16"},
    "a static cache": {"kv_cache": "static", "read": "chunks=16"},
}


@pytest.mark.parametrize("path", PATHS)
def test_a_path_that_loses_nothing_writes_what_plain_passes_write(path: str) -> None:
    model = as_loaded(tiny_model("llama-gqa", eos_token_id=None).double())
    subject = Subject(model="tiny", **PATHS[path])
    model.path = reading_path(subject)
    for prompts in (APART, some_prompts()):
        assert written(model, prompts, new_tokens=6) == [plainly(model, prompt, 6) for prompt in prompts]
    assert not model.proofs.up_to, "a path is what the user asked for: nothing to prove"


class Lossy(DynamicCache):
    """Keys and values as they are read again are rounded to whole numbers."""

    def update(self, keys: torch.Tensor, values: torch.Tensor, layer: int, *rest: Any, **more: Any) -> Any:
        found = super().update(keys, values, layer, *rest, **more)
        size = keys.shape[-2]
        return tuple(
            torch.cat([each[..., :-size, :].round(), each[..., -size:, :]], dim=-2) for each in found
        )


def test_a_path_that_loses_something_writes_what_its_own_passes_write() -> None:
    """By hand: the passes over the prompt, then a token at a time, with transformers' own arguments."""
    model = as_loaded(tiny_model("llama-gqa", eos_token_id=None).double())
    model.path = ReadingPath(chunk=8, cache=lambda config, _: Lossy(config=config), option="cache=lossy")
    prompts, expected = some_prompts(), list[Tokens]()
    for prompt in prompts:
        own, reply = Lossy(config=model.config), list[int]()
        pieces: list[Any] = [*torch.tensor([prompt]).split(8, dim=1)]
        with torch.no_grad():
            while len(reply) < 6:
                for piece in pieces:
                    given: Any = {cache_argument(model.model): own}
                    logits = model.model(piece, use_cache=True, **given).logits
                reply.append(int(logits[0, -1].argmax()))
                pieces = [torch.tensor([reply[-1:]])]
        expected.append(tuple(reply))
    assert written(model, prompts, new_tokens=6) == expected
    assert expected != [plainly(model, prompt, 6) for prompt in prompts]


def test_a_table_of_positions_is_not_exceeded() -> None:
    model = as_loaded(tiny_model("gpt2", max_position_embeddings=40), "gpt2")
    with pytest.raises(UsageError, match=r"44 .* gpt2 .* 40 "):
        model.write(some_prompts(), new_tokens=4)


def test_logits_that_are_not_finite_are_refused() -> None:
    model = as_loaded(tiny_model("llama-gqa"), "llama-gqa")
    model.__dict__["head"] = SimpleNamespace(logits=lambda hidden: hidden * float("nan"))
    with pytest.raises(NonFiniteLogits) as caught:
        model.write(some_prompts(), new_tokens=2)
    assert caught.value.model == "llama-gqa"


def test_full_logits_are_compared_as_they_are() -> None:
    """Not with the ends of a reply struck out."""
    model, prompts = as_loaded(tiny_model("llama-gqa", eos_token_id=None).double()), some_prompts()
    how: dict[str, Any] = {"new_tokens": 4, "stop_ids": frozenset({5, 6}), "at_least": 4}
    expected = model.write(prompts, **how)
    model.__dict__["head"] = FullLogits("for the test")
    assert model.write(prompts, **how) == expected
    assert 0 not in model.proofs.up_to.values()
