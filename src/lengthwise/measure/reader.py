"""A text read piece by piece, with looks ahead: one pass over it serves questions asked at many places."""

from __future__ import annotations

import copy
import inspect
import logging
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor

from lengthwise.measure.running import rope_by_input_length

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lengthwise.models import LoadedModel

logger = logging.getLogger(__name__)

# Largest difference allowed between reading in pieces and at once, as a share of the largest hidden value.
_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 6e-2}


class Reader(Protocol):
    """Reads one sequence; results are what `LoadedModel.head` takes, [T, ...] for T tokens."""

    def read(self, tokens: NDArray[np.int64]) -> Tensor:
        """The next tokens of the sequence."""
        ...

    def look(self, tokens: NDArray[np.int64]) -> Tensor:
        """What `read` would give, without moving on."""
        ...


class CachedReader:
    """Keeps keys and values of what was read, so each token is read once."""

    def __init__(self, model: LoadedModel) -> None:
        from transformers import DynamicCache

        self._model = model
        self._cache = DynamicCache(config=model.config)

    def read(self, tokens: NDArray[np.int64]) -> Tensor:
        """The next tokens of the sequence."""
        return self._run(tokens, self._cache)

    def look(self, tokens: NDArray[np.int64]) -> Tensor:
        """What `read` would give, without moving on."""
        return self._run(tokens, _branch(self._cache))

    @torch.no_grad()
    def _run(self, tokens: NDArray[np.int64], cache: Any) -> Tensor:
        from lengthwise.models import Head, capture_hidden_states, unwrap

        model = self._model
        ids = torch.from_numpy(np.ascontiguousarray(tokens))[None].to(model.device)
        arguments = {"input_ids": ids, "past_key_values": cache, "use_cache": True}
        if not isinstance(model.head, Head):
            return model.model(**arguments).logits[0]
        if "logits_to_keep" in inspect.signature(unwrap(model.model).forward).parameters:
            arguments["logits_to_keep"] = 1
        with capture_hidden_states(model.model) as captured:
            model.model(**arguments)
        return captured.hidden_states[0]


class PlainReader:
    """Reads everything again at each step: for models without a cache that can be continued."""

    def __init__(self, model: LoadedModel) -> None:
        self._model = model
        self._read = np.empty(0, dtype=np.int64)

    def read(self, tokens: NDArray[np.int64]) -> Tensor:
        """The next tokens of the sequence."""
        found = self.look(tokens)
        self._read = np.concatenate([self._read, tokens])
        return found

    def look(self, tokens: NDArray[np.int64]) -> Tensor:
        """What `read` would give, without moving on."""
        whole = torch.from_numpy(np.concatenate([self._read, tokens]))[None]
        return self._model.hidden_states(whole)[0, len(self._read) :]


def reader_kind(model: LoadedModel) -> type[CachedReader] | type[PlainReader]:
    """The cached reader if it is proven on a few tokens to agree with reading at once, else the plain one."""
    reason = _why_not_cached(model)
    if reason is None:
        return CachedReader
    logger.warning("%s: every length is read anew (slower): %s", model.name, reason)
    return PlainReader


def _why_not_cached(model: LoadedModel) -> str | None:
    method = rope_by_input_length(model)
    if method is not None:
        return f"{method} rope depends on how many tokens are read in one go"
    if "past_key_values" not in inspect.signature(_base(model).forward).parameters:
        return "the model takes no key-value cache"
    tokens = np.random.default_rng(0).integers(model.vocab_size, size=12)
    whole = model.hidden_states(torch.from_numpy(tokens)[None])[0].double()
    reader = CachedReader(model)
    pieces = [reader.read(tokens[:3]), reader.read(tokens[3:6])]
    ahead = reader.look(tokens[6:12])
    pieces += [reader.read(tokens[6:7]), reader.read(tokens[7:])]
    allowed = _TOLERANCE.get(pieces[0].dtype, 1e-3) * whole.abs().max().item()
    for found, expected in ((torch.cat(pieces), whole), (ahead, whole[6:])):
        error = (found.double() - expected).abs().max().item()
        if not error <= allowed:
            return f"reading in pieces differs by {error:.3g} where {allowed:.1g} is rounding"
    return None


def _base(model: LoadedModel) -> Any:
    from lengthwise.models import unwrap

    return unwrap(model.model)


def _branch(cache: Any) -> Any:
    """A cache that grows by itself from here. Only layers that replace their tensors may share them."""
    from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

    if not all(type(layer) in (DynamicLayer, DynamicSlidingWindowLayer) for layer in cache.layers):
        return copy.deepcopy(cache)
    branch = copy.copy(cache)
    branch.layers = [copy.copy(layer) for layer in cache.layers]
    return branch
