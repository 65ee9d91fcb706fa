"""Token sequences read piece by piece, and forks that continue without moving the original. Without gradients."""

from __future__ import annotations

import copy
import logging
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
from lengthwise.checkpoints.position_limits import rope_by_input_length
from lengthwise.errors import MissingError, UsageError, reason

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lengthwise.subjects.weights import LoadedModel

logger = logging.getLogger(__name__)

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 6e-2}
"""Largest difference allowed between two ways to read the same tokens, as a share of the largest hidden value."""


class PieceReader:
    """Sequences read side by side, each token once: keys and values of what was read are kept.

    A sequence may be padded on the left of any piece; masks and positions keep the padding out.

    Args:
        model: the model.
        cached: False reads everything again at each step, for models whose cache cannot be continued
            (`reader_of` decides). It takes no padding.
        cache: an empty cache to begin with; None leaves it to the model.
    """

    def __init__(self, model: LoadedModel, *, cached: bool = True, cache: Cache | None = None) -> None:
        self._model = model
        self.cached = cached
        self._cache: Any = cache
        self._own = cache is not None
        self._mask: Tensor | None = None
        """[B, tokens read], 0 where it was padding; None before the first piece."""
        self._ids = torch.empty((1, 0), dtype=torch.long)
        """The tokens read, [B, T], if there is no cache."""

    @torch.no_grad()
    def read(self, tokens: NDArray[np.integer] | Tensor, real: Tensor | None = None) -> Tensor:
        """Read the next tokens of every sequence.

        Args:
            tokens: ids [B, T].
            real: [B, T], 0 where a token is padding; None if none is. See `takes_padding`.

        Returns:
            What `LoadedModel.head` takes for these tokens, [B, T, ...].

        Raises:
            UsageError: the model keeps no key-value cache that can be continued.
        """
        # A copy: documents are read-only.
        ids = torch.as_tensor(tokens if isinstance(tokens, Tensor) else np.array(tokens, dtype=np.int64))
        if not self.cached:
            before = self._ids.expand(len(ids), -1)
            self._ids = torch.cat([before, ids], dim=1)
            return self._model.hidden_states(self._ids)[:, before.shape[1] :]
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
        if isinstance(self._model.head, Head):
            hidden, output = hidden_states_and_output(self._model.model, **arguments)
        else:
            output = self._model.model(**arguments)
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


def reader_of(model: LoadedModel) -> PieceReader:
    """A reader with a cache if this is proven on a few tokens to agree with reading at once, else without.

    Proven at the first call for a model.
    """
    if model.continues is None:
        reason = _why_not_cached(model)
        if reason is not None:
            logger.warning("%s: every length is read from its beginning (slower): %s", model.name, reason)
        model.continues = reason is None
    return PieceReader(model, cached=model.continues)


@torch.no_grad()
def read_along(model: LoadedModel, ids: Tensor) -> Tensor:
    """What `model.head.logits` takes for every token [B, T, ...], read along `model.path` with `model.make_cache`.

    Args:
        model: the model.
        ids: [B, T].

    Raises:
        UsageError: the cache cannot be made for this model, or cannot be continued.
    """
    if model.path.in_one_pass:
        return model.hidden_states(ids)
    cache = None
    if model.make_cache is not None:
        try:
            cache = model.make_cache(model.config, ids.shape[1])
        except (ImportError, ValueError, TypeError) as error:
            missing = isinstance(error, ImportError)
            kind = MissingError if missing else UsageError
            raise kind(f"the cache of {model.name} cannot be made: {reason(error)}") from error
    reader = PieceReader(model, cache=cache)
    return torch.cat(
        [reader.read(piece) for piece in ids.split(model.path.pieces(ids.shape[1]), dim=1)], dim=1
    )


def _why_not_cached(model: LoadedModel) -> str | None:
    method = rope_by_input_length(model.config)
    if method is not None:
        return f"{method} rope depends on how many tokens are read in one go"
    if cache_argument(model.model) is None:
        return "the model takes no key-value cache"
    tokens = np.random.default_rng(0).integers(model.vocab_size, size=(1, 12))
    whole = model.hidden_states(torch.from_numpy(tokens)).double()
    reader = PieceReader(model)
    try:
        pieces = [reader.read(tokens[:, :3]), reader.read(tokens[:, 3:6])]
        ahead = reader.fork().read(tokens[:, 6:])
        pieces += [reader.read(tokens[:, 6:7]), reader.read(tokens[:, 7:])]
    except UsageError as error:
        return error.problem
    why = differs(torch.cat(pieces, dim=1), whole) or differs(ahead, whole[:, 6:])
    return why and f"reading in pieces {why}"


def differs(found: Tensor, expected: Tensor) -> str | None:
    """`differs by ...` where two readings of the same tokens differ by more than rounding."""
    allowed = TOLERANCE.get(found.dtype, 1e-3) * expected.double().abs().max().item()
    difference = (found.double() - expected.double()).abs().max().item()
    return None if difference <= allowed else f"differs by {difference:.3g} where {allowed:.1g} is rounding"


def _copied(cache: Any) -> Any:
    """A cache that grows on its own from here. Layers that replace their tensors share them."""
    if not all(type(layer) in (DynamicLayer, DynamicSlidingWindowLayer) for layer in cache.layers):
        return copy.deepcopy(cache)
    copied = copy.copy(cache)
    copied.layers = [copy.copy(layer) for layer in cache.layers]
    return copied
