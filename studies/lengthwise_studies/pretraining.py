"""Pretraining from scratch on the books, with a BPE of their own: a plain loop that can be interrupted."""

from __future__ import annotations

import io
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from lengthwise.errors import LengthwiseError
from lengthwise.files import atomic_write_bytes, atomic_write_json
from lengthwise.machine import progress
from lengthwise.models.hidden import final_hidden_states
from lengthwise.models.resolve import quiet_transformers
from lengthwise.text.corpus import load_corpus
from lengthwise.text.tokens import TokenDocument, TokenDocuments, WindowSampler, sample_windows, tokenize

_CHUNK_ROWS = 256

VOCAB_SIZE = 1024
RECORD_FILE = "pretraining.json"

_END_OF_TEXT = "<|endoftext|>"
_HELD_OUT_WINDOWS = 128


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

    def learning_rate(self, step: int) -> float:
        """The learning rate of step 0, 1, ..."""
        if step < self.warmup_steps:
            return self.peak_learning_rate * (step + 1) / self.warmup_steps
        share = (step - self.warmup_steps) / max(1, self.steps - self.warmup_steps)
        cosine = 0.5 * (1 + math.cos(math.pi * share))
        return self.peak_learning_rate * (self.final_share + (1 - self.final_share) * cosine)


def pretrain(
    model: PreTrainedModel,
    documents: Sequence[TokenDocument],
    settings: Pretraining,
    *,
    checkpoint: Path,
    checkpoint_every: int = 100,
    what: str = "pretraining",
) -> list[float]:
    """Train `model` in place with next-token cross-entropy; returns the loss of every step (nats per token).

    The data of a step depend on the seed and the step alone. Every `checkpoint_every` steps the state is
    written to `checkpoint`. A later call continues from there and ends with the same weights as one that was
    not interrupted (for the same number of threads). The file is removed at the end.

    Raises:
        LengthwiseError: the loss is not finite (the file keeps the last checkpoint before).
    """
    matrices = [parameter for parameter in model.parameters() if parameter.ndim >= 2]
    vectors = [parameter for parameter in model.parameters() if parameter.ndim < 2]
    optimizer = torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": settings.weight_decay},
            {"params": vectors, "weight_decay": 0.0},
        ],
        lr=settings.peak_learning_rate,
        betas=settings.betas,
        fused=True,
    )
    losses = _resume(checkpoint, model, optimizer, settings)
    sampler = WindowSampler(documents, seed=settings.seed)
    model.train()
    done = len(losses)
    bar = progress(range(done, settings.steps), what=what, total=settings.steps, initial=done)
    for step in bar:
        for group in optimizer.param_groups:
            group["lr"] = settings.learning_rate(step)
        loss = next_token_loss(model, _batch(sampler, step, settings))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
        value = loss.item()
        if not math.isfinite(value):
            raise LengthwiseError(f"{what}: the loss of step {step} is {value}")
        optimizer.step()
        optimizer.zero_grad()
        losses.append(value)
        if step % 10 == 0:
            bar.set_postfix_str(f"loss {value:.3f}", refresh=False)
        if len(losses) % checkpoint_every == 0 and len(losses) < settings.steps:
            _save(checkpoint, model, optimizer, settings, losses)
    checkpoint.unlink(missing_ok=True)
    model.eval()
    return losses


def next_token_loss(model: PreTrainedModel, tokens: Tensor) -> Tensor:
    """Mean cross-entropy, in nats per token, of tokens 1 .. T of windows [B, T + 1] given those before.

    For a model whose logits are its hidden states times its output embedding.
    """
    hidden = final_hidden_states(model, tokens[:, :-1])
    weight: Any = model.get_output_embeddings().weight  # pyright: ignore[reportOptionalMemberAccess]
    loss = _LinearCrossEntropy.apply(hidden.flatten(0, 1), weight, tokens[:, 1:].flatten())
    assert isinstance(loss, Tensor)
    return loss


class _LinearCrossEntropy(torch.autograd.Function):
    """cross_entropy(hidden @ weight.T, labels), with the gradients formed in the forward pass.

    For a model this small, passing whole [N, V] tensors through memory costs as much as the head's matrix
    products; a chunk of rows stays in the processor's cache.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
        rows = hidden.shape[0]
        hidden_gradient = torch.empty_like(hidden)
        weight_gradient = torch.zeros_like(weight)
        total = hidden.new_zeros(())
        for start in range(0, rows, _CHUNK_ROWS):
            chunk = hidden[start : start + _CHUNK_ROWS]
            target = labels[start : start + _CHUNK_ROWS, None]
            logits = chunk @ weight.T
            normalizer = logits.logsumexp(-1, keepdim=True)
            total += (normalizer - logits.gather(1, target)).sum()
            error = logits.sub_(normalizer).exp_()
            error.scatter_add_(1, target, error.new_full(target.shape, -1.0))
            hidden_gradient[start : start + _CHUNK_ROWS] = error @ weight
            weight_gradient.addmm_(error.T, chunk)
        ctx.save_for_backward(hidden_gradient.div_(rows), weight_gradient.div_(rows))
        return total / rows

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        hidden_gradient, weight_gradient = ctx.saved_tensors
        return hidden_gradient * gradients[0], weight_gradient * gradients[0], None


def _batch(sampler: WindowSampler, step: int, settings: Pretraining) -> Tensor:
    first = step * settings.batch_size
    windows = [sampler.window(first + row, settings.length + 1) for row in range(settings.batch_size)]
    return torch.from_numpy(np.stack(windows).astype(np.int64))


def _save(
    path: Path,
    model: PreTrainedModel,
    optimizer: torch.optim.Optimizer,
    settings: Pretraining,
    losses: list[float],
) -> None:
    state = {
        "settings": asdict(settings),
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "losses": losses,
    }
    stream = io.BytesIO()
    torch.save(state, stream)
    atomic_write_bytes(path, stream.getvalue())


def _resume(
    path: Path, model: PreTrainedModel, optimizer: torch.optim.Optimizer, settings: Pretraining
) -> list[float]:
    """Take up the state at `path` if it is of the same settings; the losses of the steps done so far."""
    if not path.exists():
        return []
    state = torch.load(path, weights_only=True)
    if state["settings"] != asdict(settings):
        return []
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["losses"]


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


def train_on_books(
    folder: Path,
    settings: Pretraining,
    checkpoint: Path,
    *,
    make: Callable[[], PreTrainedModel],
    name: str,
) -> None:
    """Pretrain the model of `make` on the training books with their BPE, and save it with its record in `folder`."""
    started = time.monotonic()
    train = load_corpus("books", split="train")
    test = load_corpus("books", split="test")
    tokenizer = train_bpe(train.documents.values())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        model = make()
    losses = pretrain(
        model, tokenize(train, tokenizer), settings, checkpoint=checkpoint, what=f"pretraining {name}"
    )
    record: dict[str, Any] = {
        "model": name,
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
def held_out_loss(model: PreTrainedModel, documents: TokenDocuments, length: int) -> float:
    """Mean loss, in nats per token, over windows of `length` tokens of held-out text."""
    windows = sample_windows(documents, length + 1, count=_HELD_OUT_WINDOWS)
    losses = [
        next_token_loss(model, torch.from_numpy(window.ids.astype("int64"))[None]).item()
        for window in windows
    ]
    return sum(losses) / len(losses)
