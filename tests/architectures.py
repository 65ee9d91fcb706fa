"""A tiny model of each architecture that lengthwise is tested on."""

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from lengthwise.checkpoints.resolve import quiet_transformers

_COMMON: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "initializer_range": 0.3,
    "bos_token_id": None,
    "eos_token_id": 0,
    "pad_token_id": None,
}
_GPT2: dict[str, Any] = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
_GEMMA: dict[str, Any] = {
    "num_key_value_heads": 2,
    "head_dim": 8,
    "query_pre_attn_scalar": 8,
    "sliding_window": 16,
}

# Transformers' model type and what differs from _COMMON. Together they have every way from final hidden
# states to logits (bias, scale, divisor, soft cap, tied or not) and every kind of positions.
TINY_ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama-gqa": ("llama", {"num_key_value_heads": 2}),
    "llama-tied": ("llama", {"tie_word_embeddings": True}),
    "qwen2": ("qwen2", {"num_key_value_heads": 2}),
    "qwen3": ("qwen3", {"num_key_value_heads": 2, "head_dim": 8}),
    "gemma2-soft-cap": ("gemma2", _GEMMA | {"final_logit_softcapping": 5.0}),
    "gemma3-text": ("gemma3_text", _GEMMA),
    "gemma3-text-soft-cap": ("gemma3_text", _GEMMA | {"final_logit_softcapping": 5.0}),
    "mistral": ("mistral", {"num_key_value_heads": 2, "sliding_window": 16}),
    "gpt-neox": ("gpt_neox", {}),
    "gpt2": ("gpt2", _GPT2),
    "phi3": ("phi3", {"num_key_value_heads": 2}),
    "olmo2": ("olmo2", {}),
    "cohere-scale": ("cohere", {"logit_scale": 0.25}),
    "granite-divisor": ("granite", {"logits_scaling": 8.0, "embedding_multiplier": 6.0}),
    "phi-bias": ("phi", {}),
    "gptj-bias": ("gptj", _GPT2 | {"rotary_dim": 4}),
    "opt": ("opt", {"ffn_dim": 64, "word_embed_proj_dim": 32}),
    "bloom-alibi": ("bloom", {"n_layer": 2, "n_head": 4}),
}


def tiny_model(name: str, *, vocab_size: int = 320, seed: int = 0, **overrides: Any) -> PreTrainedModel:
    """A model of TINY_ARCHITECTURES in eval mode, fp32, with weights (and head bias) drawn from `seed`."""
    model_type, settings = TINY_ARCHITECTURES[name]
    config = AutoConfig.for_model(model_type, vocab_size=vocab_size, **(_COMMON | settings | overrides))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config).eval()
        bias = model.get_output_embeddings().bias
        if bias is not None:
            torch.nn.init.normal_(bias)
    return model


def random_ids(batch: int = 2, length: int = 12) -> torch.Tensor:
    """Token ids [B, T] for these models, the same at each call."""
    return torch.randint(320, (batch, length), generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def logits(model: Any, length: int = 100) -> torch.Tensor:
    """The model's own for one row of `random_ids`, [1, T, V]."""
    return model(input_ids=random_ids(1, length)).logits


def with_lora(model: Any, **settings: Any) -> Any:
    """The model with LoRA on its queries, whose weights are random unless `settings` say otherwise."""
    from peft import LoraConfig, get_peft_model

    given = {"r": 2, "task_type": "CAUSAL_LM", "target_modules": ["q_proj"], "init_lora_weights": False}
    torch.manual_seed(0)
    with quiet_transformers():
        return get_peft_model(model, LoraConfig(**(given | settings))).eval()
