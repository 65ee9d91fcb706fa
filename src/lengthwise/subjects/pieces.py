"""Token sequences read piece by piece, and forks that continue without moving the original. Without gradients."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer, DynamicSlidingWindowLayer

from lengthwise.checkpoints.head import Head
from lengthwise.checkpoints.hidden import (
    accepted,
    additive_mask,
    cache_among,
    cache_argument,
    hidden_states_and_output,
)
from lengthwise.errors import MissingError, UsageError, reason
from lengthwise.subjects.layer_progress import reported

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lengthwise.subjects.weights import Weights


class PieceReader:
    """Sequences read side by side, each token once: keys and values of what was read are kept.

    A sequence may be padded on the left of any piece; masks and positions keep the padding out.

    Args:
        model: the model.
        cache: an empty cache to begin with; None leaves it to the model.
    """

    def __init__(self, model: Weights, *, cache: Cache | None = None) -> None:
        self._model = model
        self._cache: Any = cache
        self._own = cache is not None
        self._mask: Tensor | None = None
        """[B, tokens read], 0 where it was padding; None before the first piece."""

    @torch.no_grad()
    def read(self, tokens: NDArray[np.integer] | Tensor, real: Tensor | None = None) -> Tensor:
        """Read the next tokens of every sequence.

        Args:
            tokens: ids [B, T].
            real: [B, T], 0 where a token is padding; None if none is. See `takes_padding`.

        Returns:
            What `Weights.head` takes for these tokens, [B, T, ...].

        Raises:
            UsageError: the model keeps no key-value cache that can be continued.
        """
        # A copy: documents are read-only.
        ids = torch.as_tensor(tokens if isinstance(tokens, Tensor) else np.array(tokens, dtype=np.int64))
        model = self._model
        ids = ids.to(model.device)
        real = torch.ones_like(ids) if real is None else real.to(ids)
        arguments: dict[str, Any] = {"input_ids": ids, "use_cache": True}
        first = self._mask is None
        if self._mask is None:
            self._mask = real.new_zeros((len(ids), 0))
        if self._own or not first:
            arguments |= self._continuing
        positions = (self._mask.sum(dim=1, keepdim=True) + real.cumsum(dim=1) - 1).clamp(min=0)
        self._mask = torch.cat([self._mask, real], dim=1)
        # Without padding the model's own defaults say the same, and are faster.
        if not bool(self._mask.all()):
            arguments |= {"attention_mask": self._mask, **accepted(model.model, position_ids=positions)}
        elif self._own:
            # A cache that forgets counts fewer tokens than were read.
            arguments |= accepted(model.model, position_ids=positions)
        hidden, self._cache = self._run(**arguments)
        return hidden

    @torch.no_grad()
    def read_beside(
        self, tokens: NDArray[np.integer], positions: NDArray[np.integer], allowed: Tensor
    ) -> Tensor:
        """Read tokens of one sequence at positions of their own, and forget them.

        Args:
            tokens, positions: [N].
            allowed: [N, tokens read + N], True where a token attends.

        Returns:
            As `read`, [N, ...].

        Raises:
            UsageError: the cache drops or moves what it was given, or the model takes no position ids.
        """
        cache, model = self._continued, self._model
        if not self.takes_padding or not accepted(model.model, position_ids=None):
            raise UsageError(f"{model.name} has layers that see a part of the text, or takes no position ids")
        ids, places = (
            torch.from_numpy(np.array(each, dtype=np.int64))[None].to(model.device)
            for each in (tokens, positions)
        )
        hidden, _ = self._run(
            input_ids=ids,
            position_ids=places,
            attention_mask=additive_mask(allowed.to(model.device), model.model.dtype),
            use_cache=True,
            **self._continuing,
        )
        cache.crop(-len(tokens))
        return hidden[0]

    def cut(self, length: int) -> None:
        """Forget all but the first `length` tokens read."""
        assert self._mask is not None
        if length < self._mask.shape[1]:
            self._continued.crop(length - self._mask.shape[1])
            self._mask = self._mask[:, :length]

    def _run(self, **arguments: Any) -> tuple[Tensor, Any]:
        """What the head takes [B, T, ...], and the cache."""
        model, head = self._model.model, self._model.head
        with reported(model, arguments["input_ids"].numel()):
            if isinstance(head, Head):
                hidden, output = hidden_states_and_output(model, **arguments)
            else:
                output = model(**arguments)
                hidden = output.logits
        return self._model.at_head(hidden), cache_among(output)

    def fork(self, rows: int | None = None, *, keep: bool = True) -> PieceReader:
        """A reader that continues from here on its own.

        Args:
            rows: how many copies of the one sequence read so far continue side by side; None leaves the rows.
            keep: whether this reader will read on; if not, the fork takes its memory.

        Raises:
            UsageError: as `read`.
        """
        fork = copy.copy(self)
        if self._mask is None:
            return fork
        fork._cache = _copied(self._continued) if keep else self._continued
        if rows is not None and rows > 1:
            fork._cache.batch_repeat_interleave(rows)
            fork._mask = self._mask.repeat_interleave(rows, dim=0)
        return fork

    @property
    def takes_padding(self) -> bool:
        """Whether padding after what was read does no harm: a sliding window would count it as tokens."""
        return self._mask is None or all(type(layer) is DynamicLayer for layer in self._continued.layers)

    @property
    def _continued(self) -> Cache:
        if not isinstance(self._cache, Cache):
            raise UsageError(
                f"{self._model.name} keeps no key-value cache that can be continued",
                expected="a decoder whose forward pass takes a key-value cache",
            )
        return self._cache

    @property
    def _continuing(self) -> dict[str, Cache]:
        """The argument by which a forward pass continues what was read."""
        name = cache_argument(self._model.model)
        return {} if name is None else {name: self._continued}


def made_cache(model: Weights, tokens: int) -> Cache | None:
    """An empty cache of the model's path for at most `tokens` tokens; None leaves it to the model.

    Raises:
        UsageError, MissingError: it cannot be made for this model.
    """
    if model.make_cache is None:
        return None
    try:
        return model.make_cache(model.config, tokens)
    except (ImportError, ValueError, TypeError) as error:
        kind = MissingError if isinstance(error, ImportError) else UsageError
        raise kind(f"the cache of {model.name} cannot be made: {reason(error)}") from error


@torch.no_grad()
def read_along(model: Weights, ids: Tensor) -> Tensor:
    """What `model.head.logits` takes for every token [B, T, ...], read along `model.path` with `model.make_cache`.

    Args:
        model: the model.
        ids: [B, T].

    Raises:
        UsageError: the cache cannot be made for this model, or cannot be continued.
    """
    if model.path.in_one_pass:
        return model.hidden_states(ids)
    reader = PieceReader(model, cache=made_cache(model, ids.shape[1]))
    return torch.cat(
        [reader.read(piece) for piece in ids.split(model.path.pieces(ids.shape[1]), dim=1)], dim=1
    )


def _copied(cache: Any) -> Any:
    """A cache that grows on its own from here. Layers that replace their tensors share them."""
    if not all(type(layer) in (DynamicLayer, DynamicSlidingWindowLayer) for layer in cache.layers):
        return copy.deepcopy(cache)
    copied = copy.copy(cache)
    copied.layers = [copy.copy(layer) for layer in cache.layers]
    return copied
