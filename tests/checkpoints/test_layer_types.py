"""Models whose types of layers have rotary positions of their own (Gemma 3): only full attention is extended."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from lengthwise.checkpoints import extend
from lengthwise.checkpoints.clex_rotary import clex_modules
from lengthwise.checkpoints.extending import find_rotary
from lengthwise.checkpoints.extension import plan_extension, read_extension
from lengthwise.checkpoints.resolve import quiet_transformers
from lengthwise.checkpoints.saving import save_whole
from lengthwise.errors import UsageError
from lengthwise.positions import ROPE_METHODS
from lengthwise.subjects import load
from lengthwise.testing import tiny_tokenizer
from tests.architectures import logits, tiny_model

LAYERS = ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]
OPTIONS: dict[str, dict[str, Any]] = {
    "abf": {"theta": 2e6},
    "eabf": {"skip_layers": 2, "theta": 2e6},
    "longrope": {"long_factor": [1.0, 2.0, 3.0, 4.0]},
}


def gemma(**overrides: Any) -> Any:
    return tiny_model("gemma3-text", num_hidden_layers=4, layer_types=LAYERS, **overrides)


def extended(method: str) -> Any:
    model = gemma()
    extend(model, method, factor=2.0, **OPTIONS.get(method, {}))
    for _, module in clex_modules(model):
        torch.nn.init.normal_(module.frequencies.down, std=0.1)
    return model


@pytest.mark.parametrize("method", ROPE_METHODS)
def test_only_full_attention_is_extended_and_survives_saving(method: str, tmp_path: Path) -> None:
    before, model = gemma(), extended(method)
    extension = read_extension(model.config)
    assert (extension.layer_type, extension.theta) == ("full_attention", 1e6)
    local = {"rope_type": "default", "rope_theta": 1e4}
    assert model.config.rope_parameters["sliding_attention"] == local
    [(_, _, old)], [(_, _, new)] = find_rotary(before), find_rotary(model)
    assert torch.equal(new.sliding_attention_inv_freq, old.sliding_attention_inv_freq)
    assert new.sliding_attention_attention_scaling == 1
    if method != "clex":
        at_first = None if new.rope_type["full_attention"].startswith("lengthwise") else 64
        frequencies, scaling = extension.inverse_frequencies(at_first)
        torch.testing.assert_close(new.full_attention_inv_freq, frequencies)
        assert new.full_attention_attention_scaling == pytest.approx(scaling)
    assert (logits(model) - logits(before)).abs().max() > 1e-3
    marked = [hasattr(layer.self_attn, "query_scale_length") for layer in model.model.layers]
    assert marked == [False, False, False, method == "eabf"]

    save_whole(model, tiny_tokenizer(), tmp_path / "m")
    loaded = load(str(tmp_path / "m"))
    assert loaded.extension == extension
    assert loaded.describe()["extension"] == extension.to_dict()
    assert (loaded.trained_length, loaded.config.max_position_embeddings) == (
        64,
        64 if method == "dynamic_ntk" else 128,
    )
    torch.testing.assert_close(logits(loaded.model), logits(model))
    if extension.to_hf_config() is not None:
        with quiet_transformers():
            plain = AutoModelForCausalLM.from_pretrained(tmp_path / "m").eval()
        torch.testing.assert_close(logits(plain), logits(model))
    assert "full_attention" in (tmp_path / "m" / "README.md").read_text()


def test_what_cannot_be_extended() -> None:
    with pytest.raises(UsageError, match="sliding_attention"):
        extend(tiny_model("gemma3-text", layer_types=["sliding_attention"] * 2), "yarn", factor=2.0)
    rope = {"full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0}}
    with pytest.raises(UsageError, match="linear by 8"):
        extend(gemma(rope_parameters=rope), "yarn", factor=2.0)
    with pytest.raises(UsageError, match="ntk by 2"):
        extend(extended("ntk"), "yarn", factor=2.0)
    with pytest.raises(UsageError, match="skip_layers = 4") as caught:
        extend(gemma(), "eabf", factor=2.0, skip_layers=4)
    assert caught.value.expected == "0 to 3"


def test_the_record_names_layers_only_where_there_are_types() -> None:
    assert "layer_type" not in plan_extension(tiny_model("llama-gqa").config, "ntk", factor=2.0).to_dict()
    record = plan_extension(gemma().config, "ntk", factor=2.0).to_dict()
    assert json.loads(json.dumps(record))["layer_type"] == "full_attention"
