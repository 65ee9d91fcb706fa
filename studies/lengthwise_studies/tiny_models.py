"""tiny-books and its siblings: other sizes, encodings, trained lengths, amounts of pretraining and seeds.

All are trained from scratch on the books by one plain loop, with the same BPE and optimizer, so they can be compared
on the same tokens.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedModel

from lengthwise.checkpoints.embedded_models import SHIPPED
from lengthwise.checkpoints.hidden import final_hidden_states
from lengthwise.checkpoints.resolve import quiet_transformers
from lengthwise.errors import LengthwiseError
from lengthwise.files import atomic_write_json, build_once, cache_dir
from lengthwise.positions.samplers import random_positions
from lengthwise.progress import progress
from lengthwise.text.corpus import load_corpus
from lengthwise.text.tokens import TokenDocument, tokenize
from lengthwise.text.windows import WindowSampler, sample_windows

RECORD_FILE = "pretraining.json"
VOCABULARY = 1024
LENGTHS = 8
"""Learned position embeddings reach this many times the trained length, so that the model can be read there. Those
beyond the trained length keep their initial values: that is what learned positions are outside of training."""
FARTHER = 4
"""RandomPos draws from this many times the window: as far as its model is read."""
_HELD_OUT_WINDOWS = 128


@dataclass(frozen=True, kw_only=True)
class TinyModel:
    """One pretrained model; the defaults are tiny-books.

    Args:
        seed: of the weights and of the data order.
        encoding: rope is a Llama; randompos the same, pretrained at random positions; nope a SmolLM3 without rope in
            any layer; alibi a BLOOM; learned a GPT-2. So the encodings differ in their blocks too.
        width: of the hidden states; heads are 32 wide.
        layers: blocks.
        length: tokens of a training window.
        steps: of 32 windows.
        logit_scale: of the logits after pretraining, through the last norm of rope; below 1 the model is less sure.
        text: the corpus whose training split it reads.
    """

    seed: int = 0
    encoding: Literal["rope", "randompos", "nope", "alibi", "learned"] = "rope"
    width: int = 128
    layers: int = 4
    length: int = 128
    steps: int = 700
    logit_scale: float = 1.0
    text: str = "books"

    @property
    def configuration(self) -> str:
        """Everything but the seed."""
        scaled = "" if self.logit_scale == 1 else f"-x{self.logit_scale:g}"
        text = "" if self.text == "books" else f"-{self.text}"
        return f"{self.encoding}-{self.width}x{self.layers}-L{self.length}-{self.steps}{text}{scaled}"

    @property
    def name(self) -> str:
        """The configuration and the seed."""
        if self._is_tiny_books:
            return f"tiny-books-{self.steps}-seed{self.seed}"
        return f"tiny-{self.configuration}-seed{self.seed}"

    @property
    def _is_tiny_books(self) -> bool:
        return self.configuration == TinyModel(steps=self.steps).configuration

    def build(self) -> Path:
        """The folder of the model in the cache, pretrained at the first call.

        An ordinary transformers folder with `pretraining.json` beside the weights: settings, the loss of each step,
        the loss on held-out text.

        Raises:
            MissingError: the packages of the books are not installed.
        """
        make = self._train if self.logit_scale == 1 else self._rescale
        return build_once(cache_dir() / "models" / self.name, make, what=f"the model {self.name}")

    def _rescale(self, folder: Path) -> None:
        of = replace(self, logit_scale=1.0).build()
        shutil.copytree(of, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("complete.json"))
        weights = load_file(of / "model.safetensors")
        weights["model.norm.weight"] *= self.logit_scale
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

    def _train(self, folder: Path) -> None:
        started = time.monotonic()
        train, test = (load_corpus(self.text, split=split) for split in ("train", "test"))
        shipped = AutoTokenizer.from_pretrained(SHIPPED)
        # A BPE of the same kind and size, of these texts.
        tokenizer = shipped.train_new_from_iterator(train.documents.values(), VOCABULARY, show_progress=False)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            model = self.make()
        settings = Pretraining(
            steps=self.steps,
            seed=self.seed,
            length=self.length,
            warmup_steps=min(80, self.steps),
            positions=FARTHER * self.length if self.encoding == "randompos" else None,
        )
        name = "tiny-books" if self._is_tiny_books else self.name
        losses = pretrain(model, tokenize(train, tokenizer), settings, what=f"pretraining {name}")
        record = {
            "model": name,
            "corpus": train.name,
            "split_rule": train.split_rule,
            "corpus_fingerprint": train.fingerprint,
            "parameters": model.num_parameters(),
            **vars(settings),
            "threads": torch.get_num_threads(),
            "seconds": round(time.monotonic() - started, 1),
            "held_out_loss": held_out_loss(model, tokenize(test, tokenizer), self.length),
            "losses": [round(loss, 4) for loss in losses],
        }
        with quiet_transformers():
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
        atomic_write_json(folder / RECORD_FILE, record)

    def make(self) -> PreTrainedModel:
        """The model with initial weights. tiny-books: SwiGLU of 352, RMSNorm, RoPE (theta 10000), tied head."""
        heads = self.width // 32
        common = {"vocab_size": VOCABULARY, "bos_token_id": None, "eos_token_id": 0, "pad_token_id": None}
        llama = {
            **common,
            "hidden_size": self.width,
            "intermediate_size": round(self.width * 2.75),
            "num_hidden_layers": self.layers,
            "num_attention_heads": heads,
            "num_key_value_heads": heads,
            "max_position_embeddings": self.length,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
            "tie_word_embeddings": True,
        }
        gpt = {
            "n_embd": self.width,
            "n_layer": self.layers,
            "n_head": heads,
            "n_positions": LENGTHS * self.length,
            **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0),
        }
        bloom = {"hidden_size": self.width, "n_layer": self.layers, "n_head": heads}
        kind, settings = {
            "rope": (transformers.LlamaConfig, llama),
            "nope": (transformers.SmolLM3Config, {**llama, "no_rope_layers": [0] * self.layers}),
            "alibi": (transformers.BloomConfig, {**common, **bloom}),
            "learned": (transformers.GPT2Config, {**common, **gpt}),
            "randompos": (transformers.LlamaConfig, llama),
        }[self.encoding]
        return transformers.AutoModelForCausalLM.from_config(kind(**settings))


@dataclass(frozen=True)
class Pretraining:
    """The settings of one pretraining.

    AdamW with the given betas and decay (matrices only), learning rate warmed up linearly and then lowered
    on a cosine to `final_share` of its peak, gradients clipped to norm `clip`.
    """

    steps: int
    seed: int
    length: int = 128
    batch_size: int = 32
    peak_learning_rate: float = 3e-3
    warmup_steps: int = 80
    final_share: float = 0.05
    weight_decay: float = 0.1
    betas: tuple[float, float] = (0.9, 0.95)
    clip: float = 1.0
    positions: int | None = None
    """RandomPos: the positions of every window are a random subset of so many."""

    def drawn_positions(self, step: int) -> Tensor | None:
        """Position ids [B, T] of a step; None for consecutive ones."""
        if self.positions is None:
            return None
        rng = np.random.default_rng([self.seed, step])
        return torch.stack(
            [random_positions(rng, self.length, self.positions) for _ in range(self.batch_size)]
        )

    def learning_rate(self, step: int) -> float:
        """The learning rate of step 0, 1, ..."""
        if step < self.warmup_steps:
            return self.peak_learning_rate * (step + 1) / self.warmup_steps
        share = (step - self.warmup_steps) / max(1, self.steps - self.warmup_steps)
        cosine = 0.5 * (1 + math.cos(math.pi * share))
        return self.peak_learning_rate * (self.final_share + (1 - self.final_share) * cosine)


def pretrain(
    model: PreTrainedModel, documents: Sequence[TokenDocument], settings: Pretraining, *, what: str
) -> list[float]:
    """Train `model` in place with next-token cross-entropy; returns the loss of every step (nats per token).

    The data of a step depend on the seed and the step alone.

    Raises:
        LengthwiseError: the loss is not finite.
    """
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(
        [
            {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": settings.weight_decay},
            {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
        ],
        betas=settings.betas,
        fused=True,
    )
    sampler, losses = WindowSampler(documents, seed=settings.seed), []
    model.train()
    for step in progress(range(settings.steps), what=what, total=settings.steps):
        for group in optimizer.param_groups:
            group["lr"] = settings.learning_rate(step)
        rows = range(step * settings.batch_size, (step + 1) * settings.batch_size)
        windows = np.stack([sampler.window(row, settings.length + 1) for row in rows])
        loss = next_token_loss(
            model, torch.from_numpy(windows.astype(np.int64)), settings.drawn_positions(step)
        )
        if not loss.isfinite():
            raise LengthwiseError(f"{what}: the loss of step {step} is {loss.item()}")
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, settings.clip)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    model.eval()
    return losses


def next_token_loss(model: PreTrainedModel, tokens: Tensor, positions: Tensor | None = None) -> Tensor:
    """Mean cross-entropy, in nats per token, of tokens 1 .. T of windows [B, T + 1] given those before."""
    # Without a mask and a cache, transformers reads positions with gaps as several texts packed into one row.
    hidden = final_hidden_states(model, tokens[:, :-1], position_ids=positions)
    logits = model.get_output_embeddings()(hidden)  # pyright: ignore[reportOptionalCall]
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


@torch.no_grad()
def held_out_loss(model: PreTrainedModel, documents: Sequence[TokenDocument], length: int) -> float:
    """Mean loss, in nats per token, over windows of `length` tokens of held-out text."""
    windows = sample_windows(documents, length + 1, count=_HELD_OUT_WINDOWS)
    losses = [
        next_token_loss(model, torch.from_numpy(window.ids.astype("int64"))[None]).item()
        for window in windows
    ]
    return sum(losses) / len(losses)
