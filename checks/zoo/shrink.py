"""A tiny configuration of any architecture: the numbers of its default one made small, by their names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

TOKENS = 400
"""Ids of the tokenizer. The special tokens that architectures ask for are behind them, so no text holds one."""
VOCABULARY, WIDTH, LAYERS, HEADS, HEAD, WINDOW, POSITIONS = 416, 64, 4, 4, 16, 32, 1024

_SMALL = (
    (r"type_vocab|task_type|n_langs|num_nextn|num_codebooks|num_mem_blocks|max_distance|token_(id|index)", None),
    # With few heads an indexer often scores exactly 0, and which of equal scores are kept is not defined.
    (r"index(er)?_n_heads", None),
    (r"vocab", VOCABULARY),
    (r"^(hidden_size|d_model|n_embd|dim|emb_dim|embedding_(dim|size)|word_embed_proj_dim|lru_width)$", WIDTH),
    (r"^(attention_hidden_size|(in|out)put_embedding_size|mamba_d_ssm|router_hidden_size)$", WIDTH),
    (r"^(moe|experts?|shared_experts?)_.*(intermediate|ffn_hidden)_size|shared_intermediate_size", 32),
    (r"intermediate_size|ffn|^dff$|^d_inner$|^dim_ff$|feed_forward_size", 128),
    (r"^(num_hidden_layers|n_layers?|num_layers|num_blocks|num_layers_per_stack)$|(de|en)coder_layers$", LAYERS),
    # What lies between them is read several times.
    (r"^n_(in|out)put_layers$", 1),
    (r"mamba_n_heads|mamba_num_heads|n_mamba_heads", 8),
    (r"key_value_heads|kv_heads|num_query_groups", 2),
    (r"heads$|^n_head$", HEADS),
    (r"qk_rope_head_dim|rotary_dim|d_rel", HEAD // 2),
    (r"head_dim|d_head|dim_head|headdim|kv_channels|attention_head_size|mamba_d_head", HEAD),
    (r"per_tok|moe_k$|moe_topk|topk_group|^n_group$|num_expert_group", 2),
    (r"num_(local_|routed_)?experts$|n_routed_experts|zero_expert_num", 4),
    (r"lora_rank|adapter_rank|laurel_rank|norm_rank|dt_rank|time_step_rank|lowrank", 8),
    (r"hidden_size_per_layer_input|ple_embed_dim|rel_extent", HEAD),
    (r"state_size|d_state", HEAD),
    (r"(sliding_)?window(_size)?$|window_len|chunk_size$|chunk_length|local_attention$|block_size", WINDOW),
    (r"index_topk$", 24),
    (r"original_max_position", 128),
    (r"max_(source_|target_)?position|n_positions|n_ctx|max_seq_len|context_length|max_length", POSITIONS),
    (r"first_k_dense_replace|num_dense_layers|moe_layer_start_index", 1),
    (r"moe_layer_end_index", LAYERS - 1),
    (r"num_kv_shared_layers", 0),
)  # fmt: skip
"""(pattern of a name, its value); None leaves the number. The first that matches counts."""
_SPECIAL = (
    "pad_token_id",
    "bos_token_id",
    "sep_token_id",
    "cls_token_id",
    "mask_token_id",
    "decoder_start_token_id",
)


def _small(name: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_small(name, each) for each in value]
    if isinstance(value, dict):
        return {each: _small(str(each), inner) for each, inner in value.items()}
    if type(value) is not int:
        return value
    small = next((small for pattern, small in _SMALL if re.search(pattern, name)), None)
    if small is None or value <= 0:
        return value
    return small if small in (VOCABULARY, POSITIONS) else min(value, small)


def shrunk(default: dict[str, Any], needed: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """The settings that make a configuration tiny, of its default ones; those of configurations inside it too.

    `needed` are those of an architecture that no rule gives.
    """
    layers = {default.get(name) for name in ("num_hidden_layers", "n_layer", "n_layers", "num_layers")} - {
        None
    }
    latent = "qk_rope_head_dim" in default
    found: dict[str, Any] = {}
    for name, value in default.items():
        if name in _SPECIAL:
            found[name] = TOKENS + _SPECIAL.index(name)
        elif name == "eos_token_id":
            found[name] = 0
        elif name in ("is_decoder", "causal"):
            found[name] = True
        elif latent and name in ("head_dim", "qk_head_dim", "num_key_value_heads"):
            # They follow from other numbers.
            found |= {"num_key_value_heads": HEADS} if name == "num_key_value_heads" else {}
        elif name == "head_dim" and value is None:
            found[name] = HEAD
        elif isinstance(value, dict) and "model_type" in value:
            found[name] = {"model_type": value["model_type"], **shrunk(value, needed)}
        elif isinstance(value, list) and len(value) in layers:
            # Every kind of layer that there is.
            distinct = [each for index, each in enumerate(value) if each not in value[:index]]
            found[name] = [_small(name, distinct[index % len(distinct)]) for index in range(LAYERS)]
        elif (
            name != "per_layer_config"
            and not name.startswith("_")
            and (small := _small(name, value)) != value
        ):
            found[name] = small
    return found | needed.get(str(default.get("model_type")), {})
