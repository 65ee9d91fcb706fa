"""What measurements ask of any model (`Predictor`), and the model whose weights are here (`LoadedModel`)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from lengthwise.checkpoints.extension import Extension, read_extension
from lengthwise.checkpoints.head import (
    FullLogits,
    Head,
    NonFiniteLogits,
    chunk_rows,
    find_head,
    hidden_states_for,
    require_finite,
)
from lengthwise.checkpoints.hidden import device_of, whole_tensor
from lengthwise.checkpoints.position_limits import (
    check_positions_fit,
    max_positions,
    rope_parameters,
    trained_length,
)
from lengthwise.errors import UsageError
from lengthwise.settings import KINDS, kind_of
from lengthwise.subjects.path import ReadingPath
from lengthwise.text import tokenizer_fingerprint

if TYPE_CHECKING:
    from numpy.typing import NDArray

SAMPLED = 1024
"""Elements of each tensor that a fingerprint reads."""


class Reader(Protocol):
    """What deciding on the items of a measurement needs of a model; a dry run knows it without the weights."""

    name: str
    """As the user wrote it."""
    tokenizer: Any
    path: ReadingPath
    """How a comparison reads it."""

    @property
    def max_positions(self) -> int | None:
        """Tokens of the longest view; None without a limit."""

    @property
    def trained_length(self) -> int | None:
        """Context in tokens that the model was trained for, before any extension; None if not known."""


class Predictor(Reader, Protocol):
    """A model that gives the log-probabilities of given tokens: a `LoadedModel`, or an `Endpoint` that serves one.

    Code that needs hidden states, and so the whole distribution at every position, takes a `LoadedModel`.
    """

    def check_ready(self, tokens: int) -> None:
        """Raise UsageError if views of `tokens` tokens cannot be read."""

    def token_losses(self, views: Sequence[NDArray[Any]], labels: Sequence[NDArray[Any]]) -> list[Tensor]:
        """-log p(label) after the last N tokens of each view: fp64 [N] each, nats, on the CPU.

        Args:
            views: ids [T], the token at each position; T may differ.
            labels: the token after each of the last N tokens of its view, [N]. All but the last are in the view too.

        Raises:
            NonFiniteLogits: with the index of the view (`view`) and the position in it.
        """
        ...

    def next_logits(self, view: NDArray[Any]) -> Tensor:
        """Logits (up to a constant) of the token after a view: [1, V]."""
        ...

    def fingerprint(self) -> dict[str, str]:
        """What a resumed run must find unchanged."""
        ...

    def describe(self) -> dict[str, Any]:
        """What a result records about its model; JSON values only."""
        ...


@dataclass
class LoadedModel:
    """A causal LM in eval mode with its tokenizer.

    Attributes:
        model: the transformers model (a PeftModel if an adapter was given).
        tokenizer: its tokenizer.
        name: the model as the user wrote it.
        source: its folder, or hub id and commit.
        adapter: the adapter's folder or hub id, if one was given.
        config: the configuration of the text model.
        max_positions: the number of positions that have an embedding; None if every position has one (rope, ALiBi).
        continues: whether its cache is proven to continue a text; None before `reader_of` has looked.
        branches: up to how many tokens in a pass it is proven to read several continuations at once; 0 if it cannot,
            None before the first (`lengthwise.subjects.branches`).
        path: how a comparison reads it; every other measurement decides by itself.
        make_cache: (configuration, most tokens) -> the cache of that path; None: the model makes it.
    """

    model: Any
    tokenizer: Any
    name: str
    source: str
    adapter: str | None = None
    config: Any = field(init=False, repr=False)
    max_positions: int | None = field(init=False, repr=False)
    continues: bool | None = field(init=False, repr=False, compare=False, default=None)
    branches: int | None = field(init=False, repr=False, compare=False, default=None)
    path: ReadingPath = field(default_factory=ReadingPath, repr=False)
    make_cache: Callable[[Any, int], Any] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.config = self.model.config.get_text_config()
        self.max_positions = max_positions(self.model)

    @cached_property
    def head(self) -> Head | FullLogits:
        """The output head, proven at its first use to give the model's own logits; see `find_head`."""
        return find_head(self.model)

    @property
    def device(self) -> torch.device:
        """The device of the input embedding."""
        return device_of(self.model.get_input_embeddings())

    @property
    def vocab_size(self) -> int:
        """V, the number of logits (padding of the vocabulary included)."""
        return self.config.vocab_size

    @property
    def trained_length(self) -> int | None:
        """Context in tokens that the model was trained for, before any extension; None if not recorded."""
        return trained_length(self.config)

    @property
    def extension(self) -> Extension | None:
        """What `lengthwise.extend` did to the model, now or before it was saved; None if nothing."""
        return read_extension(self.config)

    def check_ready(self, tokens: int) -> None:
        """Raise UsageError if the model has no positions for `tokens` tokens, or is in training mode."""
        check_positions_fit(self.max_positions, tokens, name=self.name)
        if self.model.training:
            raise UsageError(f"{self.name} is in training mode", fix="call model.eval() before measuring")

    @torch.no_grad()
    def hidden_states(
        self, input_ids: Tensor, *, position_ids: Tensor | None = None, attention_mask: Tensor | None = None
    ) -> Tensor:
        """What `self.head.logits` takes: final hidden states [B, T, d] (full logits for `FullLogits`).

        Without gradients. Position ids need not be consecutive: every token attends to all tokens before it.

        Raises:
            UsageError: more positions than the model's table has.
        """
        if self.max_positions is not None:
            needed = input_ids.shape[1] if position_ids is None else int(position_ids.max()) + 1
            check_positions_fit(self.max_positions, needed, name=self.name)
        device = self.device
        hidden = hidden_states_for(
            self.model,
            self.head,
            input_ids.to(device),
            position_ids=None if position_ids is None else position_ids.to(device),
            attention_mask=None if attention_mask is None else attention_mask.to(device),
        )
        return self.at_head(hidden)

    def at_head(self, hidden: Tensor) -> Tensor:
        """Hidden states on the device of the output head, which may be another than that of the last layer."""
        return hidden.to(self.head.weight.device) if isinstance(self.head, Head) else hidden

    def token_losses(
        self, views: Sequence[NDArray[np.integer]], labels: Sequence[NDArray[np.integer]]
    ) -> list[Tensor]:
        """See `Predictor.token_losses`. Views of one length go through one forward pass, others one by one."""
        if len({(len(view), len(some)) for view, some in zip(views, labels, strict=True)}) > 1:
            return [self.token_losses([v], [some])[0] for v, some in zip(views, labels, strict=True)]
        length, scored = len(views[0]), len(labels[0])
        hidden = self.hidden_states(torch.from_numpy(np.stack(views)))[:, length - scored :]
        try:
            losses = target_losses(self, hidden.flatten(0, 1), np.concatenate(labels))
        except NonFiniteLogits as error:
            view, row = divmod(error.position, scored)
            raise NonFiniteLogits(length - scored + row, view=view) from error
        return list(losses.split(scored))

    def next_logits(self, view: NDArray[np.integer]) -> Tensor:
        """See `Predictor.next_logits`."""
        return self.head.logits(self.hidden_states(torch.from_numpy(view)[None])[0, -1:])

    def fingerprint(self) -> dict[str, str]:
        """Hashes of the weights (adapter included), the configuration and the tokenizer."""
        return {
            "weights": weights_fingerprint(self.model),
            "config": config_fingerprint(self.config),
            "tokenizer": tokenizer_fingerprint(self.tokenizer),
        }

    def describe(self) -> dict[str, Any]:
        """What a result records about its model; JSON values only. Proves the head."""
        head = self.head
        extension = self.extension
        return {
            "name": self.name,
            "source": self.source,
            "adapter": self.adapter,
            "architecture": self.config.model_type,
            "parameters": sum(parameter.numel() for parameter in self.model.parameters()),
            "dtype": str(self.model.dtype).removeprefix("torch."),
            "device": str(self.device),
            "vocab_size": self.vocab_size,
            "trained_length": self.trained_length,
            "max_positions": self.max_positions,
            "rope_parameters": rope_parameters(self.config),
            "extension": None if extension is None else extension.to_dict(),
            "attn_implementation": self.config._attn_implementation,
            "head": "proven" if isinstance(head, Head) else f"full logits: {head.reason}",
            "tokenizer": type(self.tokenizer).__name__,
        }


@contextmanager
def naming_bad_logits(model: Predictor, text: str | Callable[[int], str]) -> Iterator[None]:
    """Add the model's name and the text to a `NonFiniteLogits` raised inside, unless it has them.

    `text` is in words, or a function of the view where several are read together.
    """
    try:
        yield
    except NonFiniteLogits as error:
        if error.text is not None:
            raise
        words = text if isinstance(text, str) else text(error.view or 0)
        raise NonFiniteLogits(error.position, model=model.name, text=words) from error


@torch.no_grad()
def weights_fingerprint(model: nn.Module) -> str:
    """A hash of the name, shape, dtype and `SAMPLED` evenly spaced elements of every tensor, adapter included.

    It takes milliseconds at 135M parameters. Training or another checkpoint changes nearly every element, which it
    sees. It does not see a change of elements that are not sampled, such as one flipped bit.
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        if not isinstance(tensor, Tensor):
            continue
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        # FSDP2 gathers for a forward pass, and here there is none.
        whole = whole_tensor(model, name, tensor).detach()
        flat = (whole.full_tensor() if isinstance(whole, DTensor) else whole).reshape(-1)
        if len(flat) > SAMPLED:
            flat = flat[torch.linspace(0, len(flat) - 1, SAMPLED, dtype=torch.float64).long().to(flat.device)]
        digest.update(flat.contiguous().cpu().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:32]


def config_fingerprint(config: Any) -> str:
    """The hash of a configuration, without the folder that it was read from and the version that wrote it."""
    plain = config.to_dict()
    for key in ("_name_or_path", "transformers_version", "_attn_implementation_autoset"):
        plain.pop(key, None)
    return hashlib.sha256(json.dumps(plain, sort_keys=True, default=str).encode()).hexdigest()[:32]


def weights_of(model: Predictor, *, needs: str, fix: str) -> LoadedModel:
    """The model, if its weights are here.

    Raises:
        UsageError: it runs elsewhere; says what `needs` the weights, and the `fix`.
    """
    if isinstance(model, LoadedModel):
        return model
    kind = kind_of(model.name)
    raise UsageError(
        f"{model.name} is {'not loaded here' if kind == 'weights' else KINDS[kind]}, and {needs}",
        expected="a model whose weights are loaded here",
        fix=fix,
    )


@torch.no_grad()
def score_rows(
    model: LoadedModel, hidden: Tensor, score: Callable[[Tensor, slice], Tensor], *, first: int = 0
) -> Tensor:
    """`score` of every row, a chunk of logits at a time: fp64 [N, ...], on the CPU.

    Args:
        model, hidden: what `model.hidden_states` gives, [N, ...].
        score: (logits [n, V], the slice of rows they are of) -> [n, ...].
        first: position of the first row in the text, for errors.

    Raises:
        NonFiniteLogits: a score is NaN or infinite; its position counts from `first`.
    """
    size = chunk_rows(model.vocab_size, hidden.device)
    parts = []
    for start in range(0, max(1, len(hidden)), size):
        rows = slice(start, min(start + size, len(hidden)))
        try:
            scores = score(model.head.logits(hidden[rows]), rows)
            require_finite(scores)
        except NonFiniteLogits as error:
            raise NonFiniteLogits(first + start + error.position) from error
        parts.append(scores.cpu().double())
    return torch.cat(parts)


def target_losses(
    model: LoadedModel, hidden: Tensor, labels: NDArray[np.integer] | Tensor, *, first: int = 0
) -> Tensor:
    """-log p(label) of every row: fp64 [N], nats, on the CPU.

    Args:
        model, hidden, first: as `score_rows`.
        labels: the token that follows each row, [N].

    Raises:
        NonFiniteLogits: a loss is NaN or infinite; its position counts from `first`.
    """
    # A copy: documents are read-only views of the token cache, which torch does not take.
    targets = labels if isinstance(labels, Tensor) else torch.from_numpy(np.array(labels, dtype=np.int64))
    targets = targets.to(hidden.device)

    def losses(logits: Tensor, rows: slice) -> Tensor:
        return torch.nn.functional.cross_entropy(logits, targets[rows], reduction="none")

    return score_rows(model, hidden, losses, first=first)
