"""The animals: each architecture of the installed transformers, and published settings of rope and windows."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from tokenizers.processors import TemplateProcessing
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from checks.zoo.shrink import HEAD, HEADS, POSITIONS, TOKENS, WIDTH, shrunk

Settings = dict[str, Any]
_NEEDLES = (
    "A storekeeper wrote down some locker numbers in the middle of the text below. Remember them; you will be asked "
    "for them at the end.\n\nQuestion: What is the locker number of the bell?\nAnswer: The locker number of it is"
)
SPREAD = 0.2
"""The standard deviation of weights. With the usual 0.02 a model of this size predicts the same everywhere."""
_FULL, _SLIDING = "full_attention", "sliding_attention"
_MIXED = [_SLIDING, _FULL] * 2
_ORIGINAL = {"rope_theta": 1e4, "original_max_position_embeddings": 48}
_YARN = _ORIGINAL | {"rope_type": "yarn", "factor": 4.0}
_LLAMA3 = _ORIGINAL | {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
_DYNAMIC = {
    "rope_parameters": {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 1e4},
    "max_position_embeddings": 48,
}
_LONGROPE = _ORIGINAL | {
    "rope_type": "longrope",
    "short_factor": [1.0 + 0.05 * index for index in range(HEAD // 2)],
    "long_factor": [1.0 + 0.9 * index for index in range(HEAD // 2)],
}
_PLAIN = {"rope_type": "default", "rope_theta": 1e4}

NEEDED: dict[str, Settings] = {
    "bailing_hybrid": {"layer_group_size": 2},
    "bamba": {"attn_layer_indices": [1, 3]},
    "cohere": {"logit_scale": 1.0},
    "cohere2": {"logit_scale": 1.0},
    "cohere2_moe": {"logit_scale": 1.0, "sliding_window_pattern": 2},
    "cohere_compass_text": {
        "layer_types": [_SLIDING, _SLIDING, _SLIDING, _FULL],
        "rope_parameters": {_SLIDING: _PLAIN | {"mrope_section": [4, 2, 2]}, _FULL: None},
    },
    "dbrx": {
        "attn_config": {"kv_n_heads": 2, "rope_theta": 1e4, "clip_qkv": 8.0},
        "ffn_config": {"ffn_hidden_size": 32, "moe_top_k": 2},
    },
    "deepseek_v2": {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1},
    # Which of nearly equal scores it keeps is a matter of rounding.
    "doge": {"keep_window_size": POSITIONS},
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "layer_types": _MIXED},
    "dots3_note_text": {
        "swa_num_attention_heads": HEADS, "swa_num_key_value_heads": HEADS, "swa_q_lora_rank": 8,
        "swa_kv_lora_rank": 8, "swa_head_dim": 24, "swa_qk_nope_head_dim": HEAD, "swa_v_head_dim": HEAD,
    },
    "dots3_note_vision_encoder": {"adapter_in_dim": WIDTH, "adapter_out_dim": WIDTH},
    "exaone4": {"sliding_window_pattern": 2},
    "exaone_moe": {"sliding_window_pattern": 2},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"] * 2, "position_embedding_type": "rope"},
    "inkling_text": {"logits_mup_width_multiplier": 1.0},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "laguna": {"layer_types": _MIXED},
    "lfm2": {"layer_types": ["conv", _FULL, "conv", _FULL], "full_attn_idxs": [1, 3]},
    "lfm2_moe": {"layer_types": ["conv", _FULL, "conv", _FULL]},
    "longcat_flash": {"head_dim": HEAD // 2, "num_layers": 2, "mla_scale_q_lora": True},
    "mamba2": {"num_heads": 2 * WIDTH // HEAD},
    "mellum": {"layer_types": _MIXED},
    "minimax": {"layer_types": ["linear_attention", _FULL] * 2},
    "nemotron": {"num_key_value_heads": 2},
    "qwen4_exp_text": {
        "indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": HEAD, "indexer_budget": 32,
        "indexer_compress_ratio": 4, "ple_layer_ids": [1], "split_ngram_parts": 4,
    },
    "reformer": {"axial_pos_embds_dim": [WIDTH // 2, WIDTH // 2], "axial_pos_shape": [16, POSITIONS // 16]},
    "xmod": {"default_language": "en_XX", "languages": ["en_XX"]},
    "zamba": {"attention_hidden_size": 2 * WIDTH, "attention_head_dim": 2 * HEAD, "n_mamba_heads": 2},
    "zamba2": {
        "attention_hidden_size": 2 * WIDTH, "attention_head_dim": 2 * HEAD, "num_key_value_heads": HEADS,
        "num_query_groups": HEADS, "layers_block_type": ["mamba", "hybrid"] * 2, "hybrid_layer_ids": [1, 3],
        "use_mem_rope": True,
    },
}  # fmt: skip
"""By architecture: what a tiny configuration needs that no rule gives."""
NO_TEXT = {
    "blt": "it reads bytes, in patches of its own making",
    "dots3_note": "only its images are large; dots3_note_text is its text model",
    "emu3": "AutoModelForCausalLM makes its text model, and does not load it",
    "mllama": "AutoModelForCausalLM makes its text model, and does not load it",
    "gemma3n": "its images need the package timm; gemma3n_text is its text model",
    "gemma4_assistant": "it drafts from the cache of another model",
    "gemma4_unified_assistant": "it drafts from the cache of another model",
    "musicgen": "it writes audio codes",
    "musicgen_melody": "it writes audio codes",
}
"""By architecture: why it is no text model by itself."""
_BOS = "a tokenizer with BOS"
PUBLISHED: dict[tuple[str, str], Settings] = {
    ("llama", _BOS): {},
    ("llama", "linear"): {"rope_parameters": _PLAIN | {"rope_type": "linear", "factor": 4.0}},
    ("llama", "dynamic NTK"): _DYNAMIC,
    ("internlm3", "dynamic NTK"): _DYNAMIC,
    ("llama", "YaRN"): {"rope_parameters": _YARN},
    ("llama", "Llama 3"): {"rope_parameters": _LLAMA3},
    ("qwen3", "YaRN"): {"rope_parameters": _YARN},
    ("deepseek_v3", "YaRN"): {"rope_parameters": _YARN | {"mscale": 1.0, "mscale_all_dim": 1.0}},
    ("gpt_oss", "YaRN"): {"rope_parameters": _YARN | {"truncate": False}},
    ("ministral3", "YaRN and scaled queries"): {"rope_parameters": _YARN | {"llama_4_scaling_beta": 0.1}},
    ("phi3", "LongRoPE"): {"rope_parameters": _LONGROPE, "original_max_position_embeddings": 48},
    ("phimoe", "LongRoPE"): {"rope_parameters": _LONGROPE | {"short_mscale": 1.2, "long_mscale": 1.2}},
    ("phi3", "partial rope"): {"rope_parameters": _PLAIN | {"partial_rotary_factor": 0.75}},
    ("gpt_neox", "whole rope"): {"rope_parameters": _PLAIN | {"partial_rotary_factor": 1.0}},
    ("gemma3_text", "linear in full layers"): {
        "rope_parameters": {_SLIDING: _PLAIN, _FULL: _PLAIN | {"rope_type": "linear", "factor": 8.0}},
    },
    ("gemma4_text", "proportional"): {
        "rope_parameters": {
            _SLIDING: _PLAIN, _FULL: _PLAIN | {"rope_type": "proportional", "partial_rotary_factor": 0.25},
        },
    },
    ("olmo3", "YaRN"): {"rope_parameters": {_SLIDING: _PLAIN, _FULL: _YARN}},
    ("exaone4", "Llama 3"): {"rope_parameters": _LLAMA3},
    ("apertus", "Llama 3"): {"rope_parameters": _LLAMA3},
    ("hunyuan_v1_dense", "fixed alpha"): {
        "rope_parameters": _PLAIN | {"rope_type": "dynamic", "alpha": 1000.0, "factor": 1.0},
    },
    ("mistral", "no window"): {"sliding_window": None},
    ("qwen2", "upper layers slide"): {
        "use_sliding_window": True, "sliding_window": 32, "max_window_layers": 2, "layer_types": None,
    },
    ("zaya", "half of its layers slide"): {"sliding_window": 32, "layer_types": ["hybrid_sliding", "hybrid"] * 2},
    ("llama4_text", "scaled far queries"): {"attn_temperature_tuning": True, "floor_scale": 64},
    ("falcon", "ALiBi"): {
        "new_decoder_architecture": False, "alibi": True, "multi_query": False, "num_kv_heads": HEADS,
    },
    ("falcon", "several key heads"): {"new_decoder_architecture": True, "num_kv_heads": 2},
}  # fmt: skip
"""Architecture and variant -> what published configurations set. Lengths are shrunk: 48 tokens for thousands."""


class Animal(NamedTuple):
    """A kind of model of the zoo; `variant` is "" for an architecture with its own settings."""

    architecture: str
    variant: str
    settings: Settings

    @property
    def name(self) -> str:
        """What it is called."""
        return name_of(self.architecture, self.variant)


def name_of(architecture: str, variant: str) -> str:
    """What a kind of model is called."""
    return f"{architecture}, {variant}" if variant else architecture


def animals() -> list[Animal]:
    """All, by name."""
    plain: dict[tuple[str, str], Settings] = {(key, ""): {} for key in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES}
    return [Animal(*key, settings) for key, settings in sorted((plain | PUBLISHED).items())]


def made(animal: Animal) -> Any:
    """A tiny random model of it.

    Raises:
        Exception: transformers makes no such model, or has no text model for it.
    """
    if animal.architecture in NO_TEXT:
        raise LookupError(NO_TEXT[animal.architecture])
    kind = CONFIG_MAPPING[animal.architecture]
    # Some classes write into the rope parameters that they are given.
    config = kind(**shrunk(kind().to_dict(), NEEDED) | copy.deepcopy(animal.settings))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config)
        for tensor in model.parameters():
            if not tensor.any():
                # Biases, sinks and gates that begin with nothing would change nothing.
                tensor.data.normal_(std=SPREAD / 2)
            spread = float(tensor.detach().std()) if tensor.numel() > 1 else 0.0
            # Those that are drawn around 0: no decays, gains or steps.
            if tensor.dim() > 1 and 0 < spread < 0.1 and abs(float(tensor.detach().mean())) < spread:
                tensor.data *= SPREAD / spread
    return model.eval()


def build(animal: Animal, folder: Path) -> None:
    """Write `made` with a tokenizer, as an ordinary model folder; raises as it does."""
    made(animal).save_pretrained(folder)
    _tokenizer("<s>" if animal.variant == _BOS else None).save_pretrained(folder)


def _tokenizer(bos: str | None) -> PreTrainedTokenizerFast:
    """A byte-level BPE of TOKENS ids that knows the words of the needle tasks, so that their prompts are short."""
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer, inner.decoder = (
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        decoders.ByteLevel(),
    )
    special, alphabet = ["<|end|>", *([bos] if bos else [])], pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=TOKENS, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    inner.train_from_iterator([_NEEDLES], trainer)
    if bos:
        inner.post_processor = TemplateProcessing(single=f"{bos} $A", special_tokens=[(bos, 1)])
    return PreTrainedTokenizerFast(tokenizer_object=inner, bos_token=bos, eos_token="<|end|>")
