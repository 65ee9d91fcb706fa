"""Token sequences read piece by piece: every token is read once, and a fork continues without moving the original.

`CachedReader` keeps keys and values. `PlainReader` reads everything again at each step, for models whose cache
cannot be continued; `reader_kind` tells which of the two a model needs. Nothing here takes gradients.
"""

from __future__ import annotations

import copy
import inspect
import logging
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from lengthwise.errors import UsageError
from lengthwise.models.head import Head
from lengthwise.models.hidden import capture_hidden_states, passed_to_head, unwrap
from lengthwise.models.position_limits import rope_by_input_length

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from transformers.cache_utils import Cache

    from lengthwise.models.loaded_model import LoadedModel

logger = logging.getLogger(__name__)

# Largest difference allowed between reading in pieces and at once, as a share of the largest hidden value.
_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 6e-2}


class CachedReader:
    """Sequences read side by side, each token once: keys and values of what was read are kept.

    A sequence may be padded on the left of any piece; masks and positions keep the padding out.
    """

    def __init__(self, model: LoadedModel) -> None:
        self._model = model
        self._forward = inspect.signature(unwrap(model.model).forward).parameters
        self._cache: Any = None
        self._mask: Tensor | None = None
        """[B, tokens read], 0 where it was padding; None before the first piece."""

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
        ids = _tensor(tokens).to(self._model.device)
        real = torch.ones_like(ids) if real is None else real.to(ids)
        if self._mask is None:
            arguments: dict[str, Any] = {}
            self._mask = real.new_zeros((len(ids), 0))
        else:
            arguments = {"past_key_values": self._continued}
        positions = (self._mask.sum(dim=1, keepdim=True) + real.cumsum(dim=1) - 1).clamp(min=0)
        self._mask = torch.cat([self._mask, real], dim=1)
        # Without padding the model's own defaults say the same, and are faster.
        if not bool(self._mask.all()):
            arguments["attention_mask"] = self._mask
            if "position_ids" in self._forward:
                arguments["position_ids"] = positions
        return self._run(input_ids=ids, use_cache=True, **arguments)

    def fork(self, rows: int | None = None, *, keep: bool = True) -> CachedReader:
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
        from transformers.cache_utils import DynamicLayer

        if self._mask is None:
            return True
        return all(type(layer) is DynamicLayer for layer in self._continued.layers)

    @property
    def _continued(self) -> Cache:
        from transformers.cache_utils import Cache

        if not isinstance(self._cache, Cache):
            raise UsageError(
                f"{self._model.name} keeps no key-value cache that can be continued",
                expected="a decoder whose forward pass takes past_key_values",
            )
        return self._cache

    def _run(self, **arguments: Any) -> Tensor:
        model = self._model
        if not isinstance(model.head, Head):
            output = model.model(**arguments)
            self._cache = getattr(output, "past_key_values", None)
            return output.logits
        if "logits_to_keep" in self._forward:
            arguments["logits_to_keep"] = 1
        with capture_hidden_states(model.model, passed_on=passed_to_head(model.model)) as captured:
            output = model.model(**arguments)
        self._cache = getattr(output, "past_key_values", None)
        return model.at_head(captured.hidden_states)


class PlainReader:
    """`CachedReader` for models without a cache that can be continued: reads everything again at each step."""

    def __init__(self, model: LoadedModel) -> None:
        self._model = model
        self._read = torch.empty((1, 0), dtype=torch.long)

    def read(self, tokens: NDArray[np.integer] | Tensor) -> Tensor:
        """Read the next tokens [B, T] of every sequence; as `CachedReader.read`, without padding."""
        ids = _tensor(tokens)
        before = self._read.expand(len(ids), -1)
        self._read = torch.cat([before, ids], dim=1)
        return self._model.hidden_states(self._read)[:, before.shape[1] :]

    def fork(self) -> PlainReader:
        """A reader that continues from here on its own."""
        return copy.copy(self)


def reader_kind(model: LoadedModel) -> type[CachedReader] | type[PlainReader]:
    """`CachedReader` if it is proven on a few tokens to agree with reading at once, else `PlainReader`."""
    reason = _why_not_cached(model)
    if reason is None:
        return CachedReader
    logger.warning("%s: every length is read from its beginning (slower): %s", model.name, reason)
    return PlainReader


def _why_not_cached(model: LoadedModel) -> str | None:
    method = rope_by_input_length(model.config)
    if method is not None:
        return f"{method} rope depends on how many tokens are read in one go"
    if "past_key_values" not in inspect.signature(unwrap(model.model).forward).parameters:
        return "the model takes no key-value cache"
    tokens = np.random.default_rng(0).integers(model.vocab_size, size=(1, 12))
    whole = model.hidden_states(torch.from_numpy(tokens)).double()
    reader = CachedReader(model)
    try:
        pieces = [reader.read(tokens[:, :3]), reader.read(tokens[:, 3:6])]
        ahead = reader.fork().read(tokens[:, 6:])
        pieces += [reader.read(tokens[:, 6:7]), reader.read(tokens[:, 7:])]
    except UsageError as error:
        return error.problem
    allowed = _TOLERANCE.get(ahead.dtype, 1e-3) * whole.abs().max().item()
    for found, expected in ((torch.cat(pieces, dim=1), whole), (ahead, whole[:, 6:])):
        difference = (found.double() - expected).abs().max().item()
        if not difference <= allowed:
            return f"reading in pieces differs by {difference:.3g} where {allowed:.1g} is rounding"
    return None


def _tensor(tokens: NDArray[np.integer] | Tensor) -> Tensor:
    return tokens if isinstance(tokens, Tensor) else torch.from_numpy(np.array(tokens, dtype=np.int64))


def _copied(cache: Any) -> Any:
    """A cache that grows on its own from here. Layers that replace their tensors share them."""
    from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

    if not all(type(layer) in (DynamicLayer, DynamicSlidingWindowLayer) for layer in cache.layers):
        return copy.deepcopy(cache)
    copied = copy.copy(cache)
    copied.layers = [copy.copy(layer) for layer in cache.layers]
    return copied
