"""Tiny models, tokenizers and texts, for the tests of this package and of programs that use it."""

from __future__ import annotations

import random
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from lengthwise.checkpoints.resolve import quiet_transformers

_VOCABULARY = (
    "the a king queen river mountain slowly gently speaks walks sees remembers old young golden broken "
    "house garden window door winter summer and but because when never always light shadow letter answer"
)
_WORDS = _VOCABULARY.split()
_EOS = "<|end|>"


def tiny_text(words: int, *, seed: int = 0) -> str:
    """`words` words of nonsense in sentences; the same for the same seed."""
    rng = random.Random(seed)
    picked = [rng.choice(_WORDS) for _ in range(words)]
    for index in range(9, words, 10):
        picked[index] += ".\n" if index % 50 == 49 else "."
    return " ".join(picked)


@lru_cache(maxsize=8)
def _trained_bpe(vocab_size: int, specials: tuple[str, ...]) -> str:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(specials),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([tiny_text(2000)], trainer)
    return tokenizer.to_str()


def tiny_tokenizer(*, vocab_size: int = 320, bos_token: str | None = None) -> PreTrainedTokenizerFast:
    """A byte-level BPE of exactly `vocab_size` ids that encodes any text; adds no special token by itself."""
    specials = (_EOS,) if bos_token is None else (_EOS, bos_token)
    tokenizer = Tokenizer.from_str(_trained_bpe(vocab_size, specials))
    assert tokenizer.get_vocab_size() == vocab_size, tokenizer.get_vocab_size()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=bos_token,
        eos_token=_EOS,
        clean_up_tokenization_spaces=False,
    )


def tiny_llama(*, vocab_size: int = 320, seed: int = 0, **overrides: Any) -> LlamaForCausalLM:
    """A Llama of some ten thousand parameters in eval mode, fp32, with weights drawn from `seed`.

    `overrides` are keys of `LlamaConfig`. The initial weights are larger than usual, so that predictions differ by
    position and are not all uniform.
    """
    settings: dict[str, Any] = {
        "vocab_size": vocab_size,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128,
        "tie_word_embeddings": True,
        "initializer_range": 0.3,
        "bos_token_id": None,
        "eos_token_id": 0,
        "pad_token_id": None,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(LlamaConfig(**(settings | overrides)))
    return model.eval()


def save_tiny_model(path: Path, *, seed: int = 0, vocab_size: int = 320, **overrides: Any) -> Path:
    """Save `tiny_llama` and `tiny_tokenizer` as a model folder at `path`; returns `path`."""
    with quiet_transformers():
        tiny_llama(vocab_size=vocab_size, seed=seed, **overrides).save_pretrained(path)
    tiny_tokenizer(vocab_size=vocab_size).save_pretrained(path)
    return path
