"""Tiny models as GGUF files, as llama.cpp's converter writes them, without transformers' reader."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from transformers import PreTrainedModel, PreTrainedTokenizerFast

ARCHITECTURES = {"gemma3_text": "gemma3", "qwen2_moe": "qwen2moe", "qwen3_moe": "qwen3moe"}
"""Model type -> the file's name of it, where they differ."""
_NORMS_PLUS_ONE = ("gemma2", "gemma3", "nemotron")
_CONV1D = ("attn_qkv.weight", "attn_output.weight", "ffn_up.weight", "ffn_down.weight")


def interleave(weight: np.ndarray, heads: int) -> np.ndarray:
    """From transformers' order of rotary rows (halves) to GGUF's (pairs)."""
    rows = weight.shape[0]
    return weight.reshape(heads, 2, rows // heads // 2, -1).swapaxes(1, 2).reshape(weight.shape)


def keys_of(model: PreTrainedModel) -> dict[str, Any]:
    """The keys that the converter writes for this architecture, without its name, rope scaling apart."""
    config: Any = model.config
    heads = config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    rope: Any = getattr(config, "rope_parameters", None) or {}
    whole = rope.get("full_attention", rope)
    eps = {"attention.layer_norm_rms_epsilon": getattr(config, "rms_norm_eps", None)}
    if eps["attention.layer_norm_rms_epsilon"] is None:
        names = ("layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps")
        eps = {
            "attention.layer_norm_epsilon": next(
                getattr(config, name) for name in names if hasattr(config, name)
            )
        }
    keys: dict[str, Any] = {
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "feed_forward_length": getattr(config, "intermediate_size", None) or 4 * config.hidden_size,
        "attention.head_count": heads,
        "attention.head_count_kv": getattr(config, "num_key_value_heads", heads),
        **eps,
        "vocab_size": config.vocab_size,
    }
    if whole:
        keys["rope.freq_base"] = float(whole["rope_theta"])
        keys["rope.dimension_count"] = int(width * whole.get("partial_rotary_factor", 1.0))
    if getattr(config, "head_dim", None):
        keys |= {"attention.key_length": width, "attention.value_length": width}
    for name, key in {
        "sliding_window": "attention.sliding_window",
        "attn_logit_softcapping": "attn_logit_softcapping",
        "final_logit_softcapping": "final_logit_softcapping",
        "num_experts": "expert_count",
        "num_experts_per_tok": "expert_used_count",
        "moe_intermediate_size": "expert_feed_forward_length",
        "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
    }.items():
        if getattr(config, name, None):
            keys[key] = getattr(config, name)
    return keys


def tensors_of(model: PreTrainedModel) -> dict[str, np.ndarray]:
    """The tensors as the file has them."""
    config: Any = model.config
    kind = ARCHITECTURES.get(config.model_type, config.model_type)
    arch = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == kind)
    names = gguf.get_tensor_name_map(arch, config.num_hidden_layers)
    found = {}
    for name, tensor in model.state_dict().items():
        array = tensor.float().numpy()
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        if name.endswith("gate_up_proj"):
            place = f"blk.{name.split('.')[2]}.ffn"
            gate, up = np.split(array, 2, axis=1)
            found |= {f"{place}_gate_exps.weight": gate, f"{place}_up_exps.weight": up}
            continue
        stem = name if name.endswith("down_proj") else name.rpartition(".")[0]
        suffix = ".weight" if name.endswith("down_proj") else f".{name.rpartition('.')[2]}"
        new = f"{names.get_name(stem) or names.get_name(stem.removeprefix('transformer.'))}{suffix}"
        assert not new.startswith("None"), name
        if kind == "llama" and ".attn_q." in new:
            array = interleave(array, config.num_attention_heads)
        if kind == "llama" and ".attn_k." in new:
            array = interleave(array, config.num_key_value_heads)
        if kind in _NORMS_PLUS_ONE and new.endswith("norm.weight"):
            array = array + 1
        if kind == "bloom" and ".attn_qkv." in new:
            by_head = array.reshape(config.num_attention_heads, 3, -1, *array.shape[1:])
            array = by_head.swapaxes(0, 1).reshape(array.shape)
        if kind == "gpt2" and new.endswith(_CONV1D):
            array = array.T
        if new.endswith("ffn_gate_inp_shexp.weight"):
            array = array[0]
        found[new] = array
    return found


def write_gguf(
    path: Path,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    *,
    more: Mapping[str, Any] | None = None,
    without: tuple[str, ...] = (),
    stored: Mapping[str, tuple[Any, np.ndarray]] | None = None,
) -> Path:
    """A model and its tokenizer as a GGUF file in fp32.

    Args:
        stored: tensors that are quantized: type and blocks.
        more: further keys (of the architecture without its name, of others whole) and tensors; None leaves one out.
        without: tensors to leave out.
    """
    kind = ARCHITECTURES.get(model.config.model_type, model.config.model_type)
    vocabulary = tokenizer.get_vocab()
    merges = json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"]
    everything = {
        **keys_of(model),
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": sorted(vocabulary, key=vocabulary.__getitem__),
        "tokenizer.ggml.token_type": [1] * len(vocabulary),
        "tokenizer.ggml.merges": [" ".join(pair) for pair in merges],
        "tokenizer.ggml.eos_token_id": tokenizer.eos_token_id,
    }
    if tokenizer.bos_token_id is not None:
        everything |= {
            "tokenizer.ggml.bos_token_id": tokenizer.bos_token_id,
            "tokenizer.ggml.add_bos_token": True,
        }
    if model.config.pad_token_id is not None:
        everything["tokenizer.ggml.padding_token_id"] = model.config.pad_token_id
    tensors = tensors_of(model)
    for name, value in (more or {}).items():
        (tensors if isinstance(value, np.ndarray) else everything)[name] = value
    writer = gguf.GGUFWriter(path, kind)
    for key, value in everything.items():
        key = key if key.startswith(("general.", "tokenizer.", "split.")) else f"{kind}.{key}"
        if isinstance(value, list):
            writer.add_array(key, value)
        elif value is not None:
            kinds = {
                bool: writer.add_bool,
                int: writer.add_uint32,
                float: writer.add_float32,
                str: writer.add_string,
            }
            kinds[type(value)](key, value)
    for name, array in tensors.items():
        if name in (stored or {}):
            kind_of, blocks = stored[name]
            writer.add_tensor(name, blocks, raw_dtype=kind_of)
        elif name not in without:
            writer.add_tensor(name, np.ascontiguousarray(array, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
