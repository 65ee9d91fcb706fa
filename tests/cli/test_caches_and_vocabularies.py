"""Caches and vocabularies that do not fit: a message in place of a traceback, and a verdict that names them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM

from lengthwise.subjects.path import KV_CACHES
from lengthwise.testing import save_tiny_model, tiny_llama, tiny_tokenizer

HYBRIDS: dict[str, dict[str, Any]] = {
    "lfm2": {"layer_types": ["conv", "full_attention"], "num_key_value_heads": 2},
    "qwen3_next": {
        "layer_types": ["linear_attention", "full_attention"],
        "num_key_value_heads": 2,
        "head_dim": 8,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 2,
        "num_experts": 2,
        "num_experts_per_tok": 1,
        "moe_intermediate_size": 16,
        "shared_expert_intermediate_size": 16,
    },
}
PACKAGES = ("quanto", "hqq", "fp8")


def words(*models: object, text: list[str], **b: object) -> list[object]:
    sides = [word for name, value in b.items() for word in ("--b", f"{name}={value}")]
    return ["compare", *models, *text, "--length", 64, "--limit", 1, *sides]


@pytest.fixture(scope="module", params=HYBRIDS)
def hybrid(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hybrid") / "model"
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    special = {"bos_token_id": None, "eos_token_id": 0, "pad_token_id": None}
    config = AutoConfig.for_model(request.param, vocab_size=320, **sizes, **special, **HYBRIDS[request.param])
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("cache", [name for name in KV_CACHES if not name.startswith(PACKAGES)])
def test_every_cache_of_a_hybrid_reads_it_or_is_refused_in_words(
    cache: str, hybrid: Path, text: list[str], lengthwise: Callable[..., Any]
):
    done = lengthwise(*words(hybrid, hybrid, text=text, kv_cache=cache, read="chunks=16"))
    assert done.code in (0, 2), done
    assert "Traceback" not in done.err
    if done.code == 2:
        assert cache in done.err or "Cache" in done.err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is CUDA")
@pytest.mark.parametrize("cache", [name for name in KV_CACHES if "offloaded" in name])
def test_a_cache_that_needs_cuda_is_refused_before_anything_is_read(
    cache: str, model: str, text: list[str], lengthwise: Callable[..., Any]
):
    for more in ([], ["--dry-run"]):
        done = lengthwise(*words(model, model, text=text, kv_cache=cache), *more)
        assert (done.code, "no CUDA device" in done.err, "tok/s" in done.err) == (2, True, False)


def test_a_verdict_names_the_vocabulary(model: str, text: list[str], lengthwise: Callable[..., Any]):
    bigger = save_tiny_model(Path("bigger"))
    other = tiny_llama()
    other.resize_token_embeddings(384, mean_resizing=False)
    with torch.no_grad():
        other.get_output_embeddings().weight[320:] = 0
    other.save_pretrained(bigger)
    done = lengthwise(*words(model, bigger, text=text))
    assert done.code == 0
    assert "The vocabularies have other sizes (+64 rows in B)" in " ".join(done.out.split())


@pytest.mark.filterwarnings("default")
def test_an_adapter_of_a_resized_vocabulary(model: str, text: list[str], lengthwise: Callable[..., Any]):
    base = tiny_llama(tie_word_embeddings=False)
    base.resize_token_embeddings(328, mean_resizing=False)
    config = LoraConfig(r=2, target_modules=["q_proj"], modules_to_save=["embed_tokens", "lm_head"])
    get_peft_model(base, config).save_pretrained("adapter")
    done = lengthwise("ppl", model, "--adapter", "adapter", *text, "--length", 64, "--limit", 1)
    assert done.code == 2
    assert "has 328 rows of the vocabulary, and the model 320" in done.err
