"""The models that pairs are made of: the embedded one with its books, and tiny ones of other architectures."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import transformers

from checks.lab.sides import Base, loaded
from lengthwise.checkpoints.resolve import quiet_transformers
from lengthwise.subjects import LoadedModel, load
from lengthwise.testing import tiny_text, tiny_tokenizer
from lengthwise.text import load_corpus, tokenize

EMBEDDED = "tiny-books"
_SMALL = {
    "vocab_size": 320, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 1024, "bos_token_id": None,
    "eos_token_id": 0, "pad_token_id": None, "initializer_range": 0.08, "attn_implementation": "sdpa",
}  # fmt: skip
ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "llama, large weights": ("Llama", {"initializer_range": 0.3}),
    "mistral": ("Mistral", {"sliding_window": 96}),
    "qwen2": ("Qwen2", {}),
    "qwen3": ("Qwen3", {}),
    "gemma2": ("Gemma2", {"sliding_window": 96, "query_pre_attn_scalar": 16, "attn_implementation": "eager"}),
    "gemma3": ("Gemma3", {"sliding_window": 96, "query_pre_attn_scalar": 16, "sliding_window_pattern": 3}),
    "gpt-neox": ("GPTNeoX", {}),
    "falcon-alibi": (
        "Falcon",
        {"head_dim": None, "alibi": True, "new_decoder_architecture": False, "multi_query": True},
    ),
    "gpt2": ("GPT2", {"n_positions": 1024, "n_embd": 64, "n_layer": 3, "n_head": 4}),
}
"""Name -> class of transformers, and its settings."""


def base_of(name: str) -> Base:
    """A base by its name, in float32."""
    model = load(EMBEDDED, dtype="float32", device="cpu") if name == EMBEDDED else _tiny(name)
    return Base(loaded(model.model, model, kept=True))


def _tiny(name: str) -> LoadedModel:
    kind, settings = ARCHITECTURES[name]
    text = "Text" if kind == "Gemma3" else ""
    with quiet_transformers(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        given = {
            name: value for name, value in (_SMALL | settings).items() if value is not None or "_id" in name
        }
        config = getattr(transformers, f"{kind}{text}Config")(**given)
        classes = {"GPT2": "GPT2LMHeadModel"}
        model = getattr(transformers, classes.get(kind, f"{kind}ForCausalLM"))(config)
    return LoadedModel(model.eval(), tiny_tokenizer(), name, "memory")


@cache
def text_of(name: str, raw: bool = False) -> Any:
    """The text that pairs of a base are compared on; of the embedded model in its tokens, or `raw`."""
    if raw:
        return [text[:8000] for text in list(load_corpus("books").documents.values())[:8]]
    if name == EMBEDDED:
        return tokenize(load_corpus("books"), load(EMBEDDED).tokenizer)
    return [tiny_text(1800, seed=seed) for seed in range(8)]
