"""An extended model is saved so that older programs read its rope too, and towers do not hide what was learned."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoConfig,
    AutoTokenizer,
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    GenerationConfig,
)

from lengthwise.checkpoints.clex_rotary import clex_modules
from lengthwise.checkpoints.extending import extend
from lengthwise.checkpoints.resolve import quiet_transformers
from lengthwise.checkpoints.saving import save_whole
from lengthwise.subjects import load
from lengthwise.testing import tiny_tokenizer
from tests.architectures import logits, tiny_model, with_lora

_KEPT = {"factor": 2.0, "original_max_position_embeddings": 64}
# What a program takes that knows rope_theta, rope_scaling and partial_rotary_factor alone.
OLDER: dict[tuple[str, str | None], dict[str, Any]] = {
    ("llama-gqa", None): {"rope_theta": 10_000.0},
    ("llama-gqa", "pi"): {"rope_theta": 10_000.0, "rope_scaling": {"rope_type": "linear", "factor": 2.0}},
    # 10,000 * 2^(8/6)
    ("llama-gqa", "ntk"): {"rope_theta": pytest.approx(25_198.42)},
    ("llama-gqa", "clex"): {
        "rope_theta": 10_000.0,
        "rope_scaling": {"rope_type": "lengthwise_clex", **_KEPT},
    },
    ("phi-bias", "pi"): {
        "rope_theta": 10_000.0,
        "partial_rotary_factor": 0.5,
        "rope_scaling": {"rope_type": "linear", "factor": 2.0},
    },
    ("gemma3-text", None): {},
    ("gpt2", None): {},
}


@pytest.mark.parametrize(("name", "method"), OLDER)
def test_rope_is_saved_in_the_older_keys_too(name: str, method: str | None, tmp_path: Path) -> None:
    model = tiny_model(name)
    if method is not None:
        extend(model, method, factor=2.0)
    save_whole(model, tiny_tokenizer(), tmp_path / "model")
    written = json.loads((tmp_path / "model" / "config.json").read_text())
    keys = ("rope_theta", "rope_scaling", "partial_rotary_factor")
    assert {key: written[key] for key in keys if key in written} == OLDER[name, method]
    with quiet_transformers():
        again = AutoConfig.from_pretrained(tmp_path / "model")
    assert getattr(again, "rope_parameters", None) == getattr(model.config, "rope_parameters", None)


@pytest.mark.parametrize(
    ("limit", "written"), [(64, 128), (100, 128), (128, 128), (20, 20), (10**30, 10**30), (None, None)]
)
@pytest.mark.parametrize("adapted", [False, True])
def test_limits_of_the_former_context_are_raised(
    limit: int | None, written: int | None, adapted: bool, tmp_path: Path
) -> None:
    model, tokenizer = tiny_model("llama-gqa"), tiny_tokenizer()
    extend(model, "pi", factor=2.0)
    if limit is not None:
        tokenizer.model_max_length = model.generation_config.max_length = limit
    save_whole(with_lora(model) if adapted else model, tokenizer, tmp_path / "model")
    again = AutoTokenizer.from_pretrained(tmp_path / "model")
    assert again.model_max_length == (written or tokenizer.model_max_length)
    if not adapted:
        assert GenerationConfig.from_pretrained(tmp_path / "model").max_length == written


def test_what_clex_learns_beside_a_tower(tmp_path: Path) -> None:
    """transformers saves the language model of Gemma 3 under another name than it has in memory."""
    text: dict[str, Any] = {
        "vocab_size": 320, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "head_dim": 8,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "sliding_window": 16,
        "layer_types": ["sliding_attention", "full_attention"], "initializer_range": 0.3,
    }  # fmt: skip
    tower = {
        "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
        "image_size": 28, "patch_size": 14,
    }  # fmt: skip
    torch.manual_seed(0)
    config = Gemma3Config(text_config=text, vision_config=tower, mm_tokens_per_image=4)
    model = Gemma3ForConditionalGeneration(config).eval()
    extend(model, "clex", factor=2.0)
    for _, module in clex_modules(model):
        for weight in module.frequencies.parameters():
            torch.nn.init.normal_(weight, std=0.3)
    save_whole(model, tiny_tokenizer(), tmp_path / "model")
    torch.testing.assert_close(logits(load(str(tmp_path / "model")).model), logits(model))
