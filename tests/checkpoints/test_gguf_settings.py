"""A GGUF file computes what the checkpoint computes that it was made from, or it is refused."""

from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from lengthwise.checkpoints.doctor import examine
from lengthwise.checkpoints.position_limits import trained_length
from lengthwise.checkpoints.resolve import quiet_transformers
from lengthwise.errors import UsageError
from lengthwise.positions.rope import plain_frequencies
from lengthwise.subjects import load
from lengthwise.testing import tiny_tokenizer
from tests.gguf_files import write_gguf
from tests.tiny_folders import rewritten

pytestmark = pytest.mark.usefixtures("cache")

_SIZES: dict[str, Any] = {
    "vocab_size": 320, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "max_position_embeddings": 256, "bos_token_id": None, "eos_token_id": 0, "pad_token_id": 0,
}  # fmt: skip
_WIDE: dict[str, Any] = {"intermediate_size": 96}
_GEMMA: dict[str, Any] = {"head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 16}
_EXPERTS: dict[str, Any] = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
# Of each, what its class has otherwise than the file says where the file is not asked.
MODELS: dict[str, dict[str, Any]] = {
    "llama": _WIDE | {"head_dim": 24},
    "qwen2": _WIDE,
    "qwen3": _WIDE | {"head_dim": 24},
    "phi3": _WIDE | {"sliding_window": 32, "partial_rotary_factor": 0.75},
    "gemma2": _WIDE | _GEMMA | {"final_logit_softcapping": 5.0, "attn_logit_softcapping": 7.0},
    "gemma3_text": _WIDE | _GEMMA | {"num_hidden_layers": 6},
    "stablelm": _WIDE | {"use_qkv_bias": True, "partial_rotary_factor": 0.5, "layer_norm_eps": 1e-3},
    "starcoder2": _WIDE | {"sliding_window": 16},
    "nemotron": _WIDE | {"norm_eps": 1e-3, "partial_rotary_factor": 0.75},
    "qwen2_moe": _WIDE | _EXPERTS | {"shared_expert_intermediate_size": 48},
    "qwen3_moe": _WIDE | _EXPERTS | {"head_dim": 24, "norm_topk_prob": True},
    "falcon": {"multi_query": True, "num_kv_heads": 1, "num_key_value_heads": 1},
    "bloom": {"num_key_value_heads": 4},
    "gpt2": {"num_key_value_heads": 4},
}
L0 = 64
_ORIGINAL = {"original_max_position_embeddings": L0}
SCALINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "linear": {"factor": 4.0},
    "yarn": {"factor": 4.0, **_ORIGINAL},
    "yarn-ends": {"rope_type": "yarn", "factor": 4.0, **_ORIGINAL, "beta_fast": 16.0, "beta_slow": 2.0},
    "llama3": {"factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, **_ORIGINAL},
    "longrope": {**_ORIGINAL, "attention_factor": 1.25},
}
_KEYS = {
    "factor": "factor",
    "original_max_position_embeddings": "original_context_length",
    "beta_fast": "yarn_beta_fast",
    "beta_slow": "yarn_beta_slow",
    "attention_factor": "attn_factor",
}
# Llama has every scaling, Gemma 3 in the layers of one type; the others one each, in turn.
_SCALED = [name for name in MODELS if name not in ("bloom", "gpt2", "phi3", "llama", "gemma3_text")]
CASES = [
    *((name, "default") for name in MODELS),
    *((name, kind) for name in ("llama", "gemma3_text") for kind in SCALINGS if kind != "default"),
    *zip(_SCALED, cycle(kind for kind in SCALINGS if kind != "default"), strict=False),
    # Its class refuses other kinds than its own.
    ("phi3", "longrope"),
]


def made(name: str, kind: str = "default", **changed: Any) -> Any:
    """The checkpoint: every weight random, norms too."""
    settings: dict[str, Any] = {**_SIZES, **MODELS[name], **changed}
    rope = {"rope_type": kind, "rope_theta": 5000.0, **SCALINGS[kind]}
    rotated = int(settings.get("head_dim", 16) * settings.get("partial_rotary_factor", 1.0))
    if kind == "longrope":
        lists = [[round(1 + k / 8 + more, 3) for k in range(rotated // 2)] for more in (0.0, 1.0)]
        rope |= {"short_factor": lists[0], "long_factor": lists[1]}
        settings |= {"original_max_position_embeddings": L0} if name == "phi3" else {}
    if name not in ("bloom", "gpt2"):
        settings["rope_parameters"] = rope
    if name == "gemma3_text":
        local = {"rope_type": "default", "rope_theta": 10_000.0}
        settings["rope_parameters"] = {"full_attention": rope, "sliding_attention": local}
    with quiet_transformers(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(name, **settings)).eval()
        for path, weight in model.named_parameters():
            torch.nn.init.normal_(weight, mean=float("norm" in path and "weight" in path), std=0.2)
    return model


def scaling_keys(model: Any) -> dict[str, Any]:
    """The scaling of a checkpoint as llama.cpp's converter writes it: keys, and tensors of divisors."""
    rope = model.config.rope_parameters if hasattr(model.config, "rope_parameters") else {}
    rope = (rope or {}).get("full_attention", rope or {})
    kind = rope.get("rope_type", "default")
    found: dict[str, Any] = {f"rope.scaling.{key}": rope[name] for name, key in _KEYS.items() if name in rope}
    if kind in ("linear", "yarn"):
        found["rope.scaling.type"] = kind
    if kind == "longrope":
        for which in ("short", "long"):
            found[f"rope_factors_{which}.weight"] = np.array(rope[f"{which}_factor"])
    if kind == "llama3":
        own = next(
            each for name, each in model.named_buffers() if name.endswith("inv_freq") and "slid" not in name
        )
        divided = plain_frequencies(rope["rope_theta"], 2 * len(own)) / own.double()
        found = {"rope_freqs.weight": divided.numpy()}
    return found


def logits(model: Any, length: int) -> torch.Tensor:
    ids = torch.randint(320, (1, length), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        return model(input_ids=ids).logits


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_every_scaling_of_every_architecture(name: str, kind: str, tmp_path: Path) -> None:
    model = made(name, kind)
    path = write_gguf(tmp_path / "made.gguf", model, tiny_tokenizer(), more=scaling_keys(model))
    loaded = load(str(path)).model
    # On both sides of the original length; LongRoPE has other frequencies there.
    for length in (L0 // 2, 3 * L0):
        torch.testing.assert_close(logits(loaded, length), logits(model, length), rtol=2e-4, atol=2e-4)
    assert trained_length(loaded.config) == trained_length(model.config)
    assert examine(str(path), config_only=True)["faults"] == []


_NO_WEIGHT = "blk.1.ffn_up.weight"
REFUSED: dict[str, tuple[dict[str, Any], tuple[str, ...], str]] = {
    "a scaling of an unknown kind": ({"rope.scaling.type": "dynamic"}, (), "dynamic"),
    "attention scaled without YaRN": ({"rope.scaling.attn_factor": 1.2}, (), "attn_factor"),
    "LongRoPE without its lists": ({"rope.scaling.type": "longrope"}, (), "longrope"),
    "divisors of no known kind": ({"rope_freqs.weight": np.linspace(1, 3, 12)}, (), "rope_freqs"),
    "YaRN by another formula": (
        {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.yarn_log_multiplier": 0.1},
        (),
        "yarn_log_multiplier",
    ),
    # llama.cpp does not look at it, and the checkpoint's class may: the two differ.
    "YaRN with a factor of its own": (
        {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.yarn_attn_factor": 0.878},
        (),
        "yarn_attn_factor",
    ),
    "heads that rotate in part": ({"rope.dimension_count": 16}, (), "rotates 24 dimensions"),
    "a window where the class has none": ({"attention.sliding_window": 16}, (), "sliding_window = 16"),
    "logits that are scaled": ({"logit_scale": 0.25}, (), "logit_scale"),
    "a soft cap": ({"final_logit_softcapping": 5.0}, (), "final_logit_softcapping"),
    "experts": ({"expert_used_count": 2, "expert_weights_scale": 2.5}, (), "expert_weights_scale = 2.5"),
    "heads that differ by layer": ({"attention.head_count_kv": [2, 1]}, (), "num_key_value_heads"),
    "attention to later tokens": ({"attention.causal": False}, (), "attention.causal"),
    "a key that nobody knows": ({"attention.sharpness": 2.0}, (), "attention.sharpness"),
    "one part of several": ({"split.count": 2}, (), "in 2 parts"),
    "YaRN that shrinks": (
        {"rope.scaling.type": "yarn", "rope.scaling.factor": 0.5},
        (),
        "shrinks the context",
    ),
    "no tokenizer": (
        dict.fromkeys(f"tokenizer.ggml.{key}" for key in ("model", "tokens", "merges", "token_type")),
        (),
        "it lacks tokenizer.ggml.model, tokenizer.ggml.tokens",
    ),
    "no length": ({"context_length": None}, (), "it lacks llama.context_length"),
    **{
        f"no {key}": ({key: None}, (), words)
        for key, words in {
            "attention.head_count": "a file without attention.head_count",
            # Of it the reader knows in which order the rows of queries and keys are.
            "attention.head_count_kv": "a file without attention.head_count_kv",
            "attention.layer_norm_rms_epsilon": "a file without the epsilon",
        }.items()
    },
    "no weight for a layer": ({}, (_NO_WEIGHT,), "layers.1.mlp.up_proj.weight"),
    "a weight of another shape": ({_NO_WEIGHT: np.ones((7, 64))}, (), "layers.1.mlp.up_proj.weight"),
    "a weight without a place": ({"blk.0.attn_q.bias": np.ones(96)}, (), "numbers"),
    "text split by another rule": ({"tokenizer.ggml.pre": "deepseek-llm"}, (), "deepseek-llm"),
    "text split by no rule": ({"tokenizer.ggml.pre": None}, (), "tokenizer.ggml.pre"),
    "text split by llama.cpp's own rule": ({"tokenizer.ggml.pre": "default"}, (), "tokenizer.ggml.pre"),
    "BOS that is not added": ({"tokenizer.ggml.add_bos_token": True}, (), "add_bos_token"),
}


@pytest.mark.parametrize(("more", "without", "words"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_rebuilt_is_refused(more, without, words, tmp_path):
    path = write_gguf(tmp_path / "made.gguf", made("llama"), tiny_tokenizer(), more=more, without=without)
    with pytest.raises(UsageError) as caught:
        load(str(path))
    assert words in caught.value.problem
    assert f"llama.cpp:{path}" in str(caught.value.fix)


def test_a_window_that_only_the_class_has_is_refused(tmp_path: Path) -> None:
    more = {"attention.sliding_window": None}
    with pytest.raises(UsageError, match="without attention"):
        load(str(write_gguf(tmp_path / "made.gguf", made("gemma3_text"), tiny_tokenizer(), more=more)))


def test_settings_that_change_nothing_are_no_reason(tmp_path: Path) -> None:
    more = {
        "logit_scale": 1.0, "attention.causal": True, "attention.sliding_window": 0, "expert_used_count": 0,
        "rope.scaling.type": "none", "rope.scaling.factor": 8.0, "rope.scaling.attn_factor": 1.0,
        "tokenizer.ggml.pre": "smollm", "tensor_data_layout": "jploski", "rope_freqs.weight": np.ones(12),
    }  # fmt: skip
    model = made("llama")
    loaded = load(str(write_gguf(tmp_path / "made.gguf", model, tiny_tokenizer(), more=more)))
    torch.testing.assert_close(logits(loaded.model, 32), logits(model, 32))


@pytest.mark.parametrize("pattern", [3, [True, True, False] * 2], ids=str)
def test_which_layers_have_a_window(pattern: Any, tmp_path: Path) -> None:
    model = made("gemma3_text", layer_types=(["sliding_attention"] * 2 + ["full_attention"]) * 2)
    more = {"attention.sliding_window_pattern": pattern}
    loaded = load(str(write_gguf(tmp_path / "made.gguf", model, tiny_tokenizer(), more=more)))
    torch.testing.assert_close(logits(loaded.model, 3 * L0), logits(model, 3 * L0))


@pytest.mark.parametrize(
    "changed",
    [
        {"rope_parameters": {"rope_type": "default", "rope_theta": 5000.0}},
        {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, **_ORIGINAL}},
        {"rope_parameters": {"rope_type": "yarn", "rope_theta": 5000.0, "factor": 8.0, **_ORIGINAL}},
        {"max_position_embeddings": 512},
        {"rms_norm_eps": 1e-3},
    ],
    ids=str,
)
def test_doctor_compares_a_model_with_its_file(changed: dict[str, Any], tmp_path: Path) -> None:
    model = made("llama", "yarn")
    path = write_gguf(tmp_path / "made.gguf", model, tiny_tokenizer(), more=scaling_keys(model))
    assert examine(str(path), config_only=True)["faults"] == []
    rewritten(Path(load(str(path)).source), **changed)
    (fault,) = examine(str(path), config_only=True)["faults"]
    assert fault["fault"] == "unlike its file"
    assert next(iter(changed)) in fault["problem"]
