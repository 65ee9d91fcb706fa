"""Caches and vocabularies that do not fit: a message in place of a traceback, and a verdict that names them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model

from checks.zoo.architectures import animals, build
from lengthwise import Perplexity, Subject, UsageError, run
from lengthwise.subjects import as_model
from lengthwise.subjects.caches import KV_CACHES
from lengthwise.subjects.reading import reading_path
from lengthwise.testing import save_tiny_model, tiny_llama, tiny_text, tiny_tokenizer

PACKAGES = ("quanto", "hqq", "fp8")


@pytest.fixture(scope="module", params=["lfm2", "qwen3_next"])
def hybrid(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    [animal] = (each for each in animals() if each.name == request.param)
    folder = tmp_path_factory.mktemp("hybrid") / "model"
    build(animal, folder)
    return folder


def words(*models: object, text: list[str], **b: object) -> list[object]:
    sides = [word for name, value in b.items() for word in ("--b", f"{name}={value}")]
    return ["compare", *models, *text, "--lengths", 64, "--windows", 1, *sides]


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("cache", [name for name in KV_CACHES if not name.startswith(PACKAGES)])
def test_every_cache_of_a_hybrid_reads_it_or_is_refused_in_words(cache, hybrid, text, lengthwise):
    done = lengthwise(*words(hybrid, hybrid, text=text, kv_cache=cache, read="chunks=16"))
    assert done.code in (0, 2), done
    assert "Traceback" not in done.err
    if done.code == 2:
        assert cache in done.err or "Cache" in done.err


@pytest.mark.parametrize("cache", [name for name in KV_CACHES if "offloaded" in name])
def test_an_offloaded_cache_of_a_model_that_was_handed_over(cache, monkeypatch):
    """Its settings say "auto", and it is on the processor of a machine with CUDA."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    model = as_model((tiny_llama(), tiny_tokenizer()))
    model.path = reading_path(Subject(model=model.name, kv_cache=cache, read="chunks=8"))
    with pytest.raises(UsageError, match="no CUDA device"):
        run(Perplexity(lengths=(16,), windows=1), model, [tiny_text(60)])


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
    done = lengthwise("ppl", model, "--adapter", "adapter", *text, "--lengths", 64, "--windows", 1)
    assert done.code == 2
    assert "has 328 rows of the vocabulary, and the model 320" in done.err
