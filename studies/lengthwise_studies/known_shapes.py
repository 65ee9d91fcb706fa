"""The shapes of known models, for dry runs where neither the weights nor the hub are at hand."""

from __future__ import annotations

from typing import Any


def _llama(vocabulary: int, width: int, inner: int, layers: int, heads: int, **more: Any) -> dict[str, Any]:
    """The fields of a Llama's config.json; `more` replaces or adds fields."""
    return {
        "model_type": "llama",
        "vocab_size": vocabulary,
        "hidden_size": width,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "max_position_embeddings": 131072,
        "dtype": "bfloat16",
        **more,
    }


_GROUPED: dict[str, Any] = {"num_key_value_heads": 8}
_SMALL: dict[str, Any] = {"tie_word_embeddings": True, "max_position_embeddings": 8192}
_SMOLLM2 = _llama(49152, 576, 1536, 30, 9, num_key_value_heads=3, **_SMALL)
_LLAMA2: dict[str, Any] = {"max_position_embeddings": 4096, "dtype": "float16"}
SHAPES: dict[str, dict[str, Any]] = {
    "meta-llama/Llama-2-7b-hf": _llama(32000, 4096, 11008, 32, 32, **_LLAMA2),
    "meta-llama/Llama-2-13b-hf": _llama(32000, 5120, 13824, 40, 40, **_LLAMA2),
    "meta-llama/Llama-3.1-8B": _llama(128256, 4096, 14336, 32, 32, **_GROUPED),
    "meta-llama/Llama-3.1-70B": _llama(128256, 8192, 28672, 80, 64, **_GROUPED),
    "meta-llama/Llama-3.2-1B": _llama(128256, 2048, 8192, 16, 32, **_GROUPED, tie_word_embeddings=True),
    "HuggingFaceTB/SmolLM2-135M": _SMOLLM2,
    "HuggingFaceTB/SmolLM2-1.7B": _llama(49152, 2048, 8192, 24, 32, **_SMALL),
    "smollm2-135m": _SMOLLM2,
}
"""Fields of config.json, by name. Rope is the default one: it does not change the cost."""


def known_config(name: str) -> Any:
    """The configuration of a model with a known shape; None for others."""
    from transformers import AutoConfig

    fields = dict(SHAPES.get(name, {}))
    return AutoConfig.for_model(fields.pop("model_type"), **fields) if fields else None
