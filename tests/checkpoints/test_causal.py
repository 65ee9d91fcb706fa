"""A checkpoint is a causal language model if AutoModelForCausalLM loads it, whatever it was saved as."""

import json
from pathlib import Path

import pytest

from lengthwise.checkpoints.resolve import read_config
from lengthwise.errors import UsageError

LOADED = {
    "llama": "LlamaForCausalLM",
    "gpt2": "GPT2LMHeadModel",
    "gemma3": "Gemma3ForConditionalGeneration",
    "gemma4": "Gemma4ForConditionalGeneration",
    "llama4": "Llama4ForConditionalGeneration",
    "llama4_text": "Llama4ForCausalLM",
    "qwen3_5": "Qwen3_5ForConditionalGeneration",
}
REFUSED = {
    "mistral3": ("Mistral3ForConditionalGeneration", "save its language model .*MistralForCausalLM"),
    "llava": ("LlavaForConditionalGeneration", "save its language model .*LlamaForCausalLM"),
    "qwen2_5_vl": ("Qwen2_5_VLForConditionalGeneration", "serve this one"),
    "t5": ("T5ForConditionalGeneration", "use a decoder-only model"),
    "bert": ("BertForMaskedLM", "saved as BertForMaskedLM"),
    "qwen3": ("Qwen3ForSequenceClassification", "saved as Qwen3ForSequenceClassification"),
}


def folder(path: Path, kind: str, saved_as: str) -> str:
    (path / "config.json").write_text(json.dumps({"model_type": kind, "architectures": [saved_as]}))
    return str(path)


@pytest.mark.parametrize("kind", LOADED)
def test_what_transformers_loads(kind: str, tmp_path: Path) -> None:
    assert read_config(folder(tmp_path, kind, LOADED[kind])).model_type == kind


@pytest.mark.parametrize("kind", REFUSED)
def test_what_it_does_not_load_is_refused_with_the_way_out(kind: str, tmp_path: Path) -> None:
    saved_as, says = REFUSED[kind]
    with pytest.raises(UsageError, match=f"(?s)is not a causal language model.*{says}"):
        read_config(folder(tmp_path, kind, saved_as))
