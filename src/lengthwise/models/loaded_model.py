"""`LoadedModel`: a causal LM with its tokenizer and its output head, and the losses of rows that the head takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from lengthwise.errors import UsageError
from lengthwise.models.extension import Extension, read_extension
from lengthwise.models.fingerprint import config_fingerprint, weights_fingerprint
from lengthwise.models.head import FullLogits, Head, find_head, hidden_states_for
from lengthwise.models.logits import NonFiniteLogits, chunks, require_finite
from lengthwise.models.placement import device_of
from lengthwise.models.position_limits import (
    check_positions_fit,
    max_positions,
    rope_parameters,
    trained_length,
)
from lengthwise.text import tokenizer_fingerprint

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lengthwise.models.predictor import Predictor


@dataclass
class LoadedModel:
    """A causal LM in eval mode with its tokenizer.

    Attributes:
        model: the transformers model (a PeftModel if an adapter was given).
        tokenizer: its tokenizer.
        name: the model as the user wrote it.
        source: its folder, or hub id and commit.
        adapter: the adapter's folder or hub id, if one was given.
    """

    model: Any
    tokenizer: Any
    name: str
    source: str
    adapter: str | None = None
    config: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.config = self.model.config.get_text_config()

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
    def max_positions(self) -> int | None:
        """The number of positions that have an embedding; None if every position has one (rope, ALiBi)."""
        return self._max_positions

    # Looked for once, not at every window. (A protocol's property cannot be a cached one.)
    @cached_property
    def _max_positions(self) -> int | None:
        return max_positions(self.model)

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


def weights_of(model: Predictor, *, needs: str, fix: str) -> LoadedModel:
    """The model, if its weights are here.

    Args:
        model: any.
        needs: what asks for them, and why, for the error.
        fix: what to do instead.

    Raises:
        UsageError: it is an endpoint.
    """
    if isinstance(model, LoadedModel):
        return model
    raise UsageError(
        f"{model.name} is an endpoint, and {needs}", expected="a model whose weights are loaded here", fix=fix
    )


@torch.no_grad()
def score_rows(
    model: LoadedModel, hidden: Tensor, score: Callable[[Tensor, slice], Tensor], *, first: int = 0
) -> Tensor:
    """`score` of every row, a chunk of logits at a time: fp64 [N, ...], on the CPU.

    Args:
        model: whose head takes the rows.
        hidden: what `model.hidden_states` gives, [N, ...].
        score: (logits [n, V], the slice of rows they are of) -> [n, ...].
        first: position of the first row in the text, for errors.

    Raises:
        NonFiniteLogits: a score is NaN or infinite; its position counts from `first`.
    """
    parts = []
    for some in list(chunks(len(hidden), model.vocab_size)) or [slice(0, 0)]:
        try:
            scores = score(model.head.logits(hidden[some]), some)
            require_finite(scores)
        except NonFiniteLogits as error:
            raise NonFiniteLogits(first + some.start + error.position) from error
        parts.append(scores.cpu().double())
    return torch.cat(parts)


def target_losses(
    model: LoadedModel, hidden: Tensor, labels: NDArray[np.integer] | Tensor, *, first: int = 0
) -> Tensor:
    """-log p(label) of every row: fp64 [N], nats, on the CPU.

    Args:
        model: whose head takes the rows.
        hidden: what `model.hidden_states` gives, [N, ...].
        labels: the token that follows each row, [N].
        first: position of the first row in the text, for errors.

    Raises:
        NonFiniteLogits: a loss is NaN or infinite; its position counts from `first`.
    """
    # A copy: documents are read-only views of the token cache, which torch does not take.
    targets = labels if isinstance(labels, Tensor) else torch.from_numpy(np.array(labels, dtype=np.int64))
    targets = targets.to(hidden.device)

    def losses(logits: Tensor, some: slice) -> Tensor:
        return torch.nn.functional.cross_entropy(logits, targets[some], reduction="none")

    return score_rows(model, hidden, losses, first=first)
