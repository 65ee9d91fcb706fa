"""tiny-books: a Llama of 0.94M parameters with its own BPE, trained from scratch on the books."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from lengthwise.cache import build_once, cache_dir
from lengthwise.files import atomic_write_json
from lengthwise.models.pretraining import Pretraining, next_token_loss, pretrain
from lengthwise.models.quiet import quiet_transformers
from lengthwise.text.load import load_corpus
from lengthwise.text.tokens import TokenDocuments, tokenize
from lengthwise.text.windows import sample_windows

PRETRAINING_STEPS = 700
VOCAB_SIZE = 1024
LENGTH = 128
RECORD_FILE = "pretraining.json"

_END_OF_TEXT = "<|endoftext|>"
_HELD_OUT_WINDOWS = 128


def build_tiny_books(*, steps: int = PRETRAINING_STEPS, seed: int = 0) -> Path:
    """The folder of the pretrained model in the cache, trained at the first call (some minutes on two cores).

    An ordinary transformers folder with `pretraining.json` beside the weights: settings, the loss of each
    step, the loss on held-out text. An interrupted training goes on where it was at the next call.

    Args:
        steps: pretraining steps.
        seed: of the weights and of the data order; another seed is another checkpoint of the same recipe.

    Raises:
        MissingError: the packages of the books are not installed.
    """
    folder = cache_dir() / "models" / f"tiny-books-{steps}-seed{seed}"
    checkpoint = folder.with_name(f"{folder.name}.checkpoint")

    def build(temporary: Path) -> None:
        _train(temporary, Pretraining(steps=steps, seed=seed, length=LENGTH), checkpoint)

    return build_once(folder, build, what="the model tiny-books")


def tiny_books_config(vocab_size: int = VOCAB_SIZE) -> LlamaConfig:
    """Width 128, 4 layers, 4 heads of 32, SwiGLU of 352, RMSNorm, RoPE (theta 10000), tied head."""
    return LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=128,
        intermediate_size=352,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=LENGTH,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=None,
    )


def train_bpe(texts: Iterable[str], *, vocab_size: int = VOCAB_SIZE) -> PreTrainedTokenizerFast:
    """A byte-level BPE of `vocab_size` entries, the first of which is the end-of-text token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[_END_OF_TEXT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=_END_OF_TEXT, clean_up_tokenization_spaces=False
    )


def _train(folder: Path, settings: Pretraining, checkpoint: Path) -> None:
    started = time.monotonic()
    train = load_corpus("books", split="train")
    test = load_corpus("books", split="test")
    tokenizer = train_bpe(document.text for document in train.documents)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        model = LlamaForCausalLM(tiny_books_config())
    losses = pretrain(
        model, tokenize(train, tokenizer), settings, checkpoint=checkpoint, what="pretraining tiny-books"
    )
    record: dict[str, Any] = {
        "model": "tiny-books",
        "corpus": train.name,
        "split_rule": train.split_rule,
        "corpus_fingerprint": train.fingerprint,
        "parameters": model.num_parameters(),
        **vars(settings),
        "threads": torch.get_num_threads(),
        "seconds": round(time.monotonic() - started, 1),
        "held_out_loss": held_out_loss(model, tokenize(test, tokenizer), settings.length),
        "losses": [round(loss, 4) for loss in losses],
    }
    with quiet_transformers():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    atomic_write_json(folder / RECORD_FILE, record)


@torch.no_grad()
def held_out_loss(model: LlamaForCausalLM, documents: TokenDocuments, length: int) -> float:
    """Mean loss, in nats per token, over windows of `length` tokens of held-out text."""
    windows = sample_windows(documents, length + 1, count=_HELD_OUT_WINDOWS)
    losses = [
        next_token_loss(model, torch.from_numpy(window.ids.astype("int64"))[None]).item()
        for window in windows
    ]
    return sum(losses) / len(losses)
