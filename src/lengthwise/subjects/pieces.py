"""Token sequences read piece by piece, and forks that continue without moving the original. Without gradients."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers.cache_utils import (
    Cache,
    DynamicCache,
    DynamicLayer,
    DynamicSlidingWindowLayer,
    QuantizedCache,
    QuantizedLayer,
)

from lengthwise.checkpoints.head import Head
from lengthwise.checkpoints.hidden import (
    accepted,
    additive_mask,
    cache_among,
    cache_argument,
    first_position,
    hidden_states_and_output,
)
from lengthwise.checkpoints.position_limits import read_again_after
from lengthwise.checkpoints.position_modules import frequencies_of, set_frequencies
from lengthwise.errors import MissingError, UsageError, reason
from lengthwise.subjects.caches import check_offloading
from lengthwise.subjects.proof import one_pass
from lengthwise.subjects.weights import reported

if TYPE_CHECKING:
    from lengthwise.subjects.weights import Weights

_WINDOW, _CHUNK = "sliding_window", "attention_chunk_size"
_KINDS = {"full_attention": None, "sliding_attention": _WINDOW, "chunked_attention": _CHUNK}
"""The setting that says how far a kind of layer sees."""


class PieceReader:
    """Sequences read side by side, each token once: keys and values of what was read are kept.

    A sequence may be padded on the left of any piece; masks and positions keep the padding out. `cache` is an empty
    one to begin with; None leaves it to the model.
    """

    def __init__(self, model: Weights, *, cache: Cache | None = None) -> None:
        self._model = model
        self._cache: Any = cache
        self._own = cache is not None
        self._mask: Tensor | None = None
        """[B, tokens read], 0 where it was padding; None before the first piece."""
        self._ids: Tensor | None = None
        """The tokens read [B, N], of a model that will read all of them again."""
        self._again = read_again_after(model.model)
        self._padded = False
        self._frequencies = frequencies_of(model.following_ropes, fresh=True)

    @torch.no_grad()
    def read(self, tokens: NDArray[np.integer] | Tensor, real: Tensor | None = None) -> Tensor:
        """Read the next tokens [B, T] of every sequence: what `Weights.head` takes for them, [B, T, ...].

        `real` [B, T] is 0 where a token is padding (see `takes_padding`). UsageError if the model keeps no key-value
        cache that can be continued, or cannot use the given one.
        """
        # A copy: documents are read-only.
        ids = torch.as_tensor(tokens if isinstance(tokens, Tensor) else np.array(tokens, dtype=np.int64))
        model = self._model
        ids = ids.to(model.device)
        self._padded = self._padded or (real is not None and not bool(real.all()))
        real = torch.ones_like(ids) if real is None else real.to(ids)
        first = self._mask is None
        continuing = self._continuing if self._own or not first else {}
        mask = real.new_zeros((len(ids), 0)) if self._mask is None else self._mask
        positions = (mask.sum(dim=1, keepdim=True) + real.cumsum(dim=1) - 1).clamp(min=0)
        if self._again is not None:
            self._ids = ids if self._ids is None else torch.cat([self._ids, ids], dim=1)
            if ids.shape[1] == 1 and mask.shape[1] == self._again:
                return self._read_again()
        # A mask may be another one behind a cache, or deep in a text. What a given cache does deep in it is measured.
        size, end = ids.shape[1], mask.shape[1] + ids.shape[1]
        piece, deep = model.proofs.blind_behind
        longer = size > 1 and (size > piece or (end >= 2 * deep and not self._own))
        before = self.fork() if longer and not first and not self._padded else None
        self._mask = torch.cat([mask, real], dim=1)
        # Always: some models count the tokens of a cache in another way, and a cache that forgets counts fewer.
        arguments: dict[str, Any] = accepted(
            model.model, position_ids=positions + first_position(model.model)
        )
        if self._padded:
            arguments["attention_mask"] = self._mask
        hidden, self._cache = self._run(input_ids=ids, use_cache=True, **arguments, **continuing)
        self._frequencies = frequencies_of(model.following_ropes)
        if first and not self._padded:
            model.check_blind(ids, hidden)
        if before is not None:
            # First: reading it again would ask for the same.
            model.proofs.blind_behind = max(size, piece), max(end, deep)
            model.check_blind(ids, hidden, lambda some: before.fork().read(some.expand(len(ids), -1))[:1])
        return hidden

    def _read_again(self) -> Tensor:
        """Read all tokens in one pass, through an empty cache, and give what the last one gets [B, 1, ...].

        As transformers generates with Phi-3's LongRoPE, whose frequencies are others from here on.
        """
        assert self._ids is not None
        if self._own:
            raise UsageError(
                f"{self._model.name} drops its cache after {self._again:,} tokens, where its frequencies change, and "
                f"transformers generates without {self._model.path.option or 'the given cache'} from there on",
                fix="use read=chunks=N, or shorter or longer texts, in which no single token is read there",
            )
        whole = PieceReader(self._model)
        last = whole.read(self._ids)[:, -1:]
        vars(self).update(vars(whole))
        return last

    def read_passes(self, tokens: NDArray[np.integer], passes: Sequence[int]) -> list[Tensor]:
        """Read the next tokens [B, T] of every sequence, so many in each pass: what `read` gives of each."""
        return [self.read(piece) for piece in np.split(tokens, np.cumsum(passes)[:-1], axis=1)]

    @torch.no_grad()
    def read_beside(
        self, tokens: NDArray[np.integer], positions: NDArray[np.integer], allowed: Tensor
    ) -> Tensor:
        """Read tokens [N] of one sequence at positions [N] of their own, and forget them: as `read`, [N, ...].

        `allowed` [N, tokens read + N] is True where a token attends. UsageError if the cache drops or moves what it
        was given, or the model takes no position ids, or has layers for which no mask can be made.
        """
        cache, model = self._continued, self._model
        if not self.takes_padding or not accepted(model.model, position_ids=None):
            raise UsageError("its cache does not keep all tokens, or it takes no position ids")
        ids, places = (
            torch.from_numpy(np.array(each, dtype=np.int64)).to(model.device) for each in (tokens, positions)
        )
        keys = torch.cat([torch.arange(allowed.shape[1] - len(places), device=model.device), places])
        allowed = allowed.to(model.device)
        hidden, _ = self._run(
            input_ids=ids[None],
            position_ids=places[None] + first_position(model.model),
            attention_mask=layer_masks(model.config, allowed, places, keys, model.model.dtype),
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
            self._ids = None if self._ids is None else self._ids[:, :length]

    def _run(self, **arguments: Any) -> tuple[Tensor, Any]:
        """What the head takes [B, T, ...], and the cache."""
        # Its first use reads a few tokens to prove it.
        model, head = self._model, self._model.head
        set_frequencies(model.following_ropes, self._frequencies)
        ids, option = arguments["input_ids"], model.path.option
        option = f" ({option})" if option and self._own else ""
        through = (
            f" through a {type(self._cache).__name__}{option}" if self._own else " through a cache of its own"
        )
        with (
            reported(model.model, ids.numel()),
            one_pass(model.name, ids.shape[1], through),
        ):
            if isinstance(head, Head):
                hidden, output = hidden_states_and_output(model.model, **arguments)
            else:
                output = model.model(**arguments)
                hidden = output.logits
        # One token at a time, the head would be read twice.
        found = model.checked(hidden, output) if ids.shape[1] > 1 else model.at_head(hidden)
        return found, cache_among(output)

    def fork(self, rows: int | None = None, *, keep: bool = True) -> PieceReader:
        """A reader that continues from here on its own, with `rows` copies of the one sequence side by side.

        Where this reader will not read on (`keep` is False), the fork takes its memory.
        """
        fork = copy.copy(self)
        if self._mask is None:
            return fork
        fork._cache = _copied(self._continued) if keep else self._continued
        if rows is not None and rows > 1:
            fork._cache.batch_repeat_interleave(rows)
            fork._mask = self._mask.repeat_interleave(rows, dim=0)
            fork._ids = None if self._ids is None else self._ids.repeat_interleave(rows, dim=0)
        return fork

    @property
    def takes_padding(self) -> bool:
        """Whether padding after what was read does no harm: a sliding window would count it as tokens."""
        if self._mask is None:
            return True
        # An EncoderDecoderCache, which BERT's decoders make, has no layers of its own.
        layers = getattr(self._continued, "layers", None)
        return layers is not None and all(type(layer) is DynamicLayer for layer in layers)

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
        if name is None:
            raise UsageError(
                f"{self._model.name} takes no cache of keys and values",
                expected="one pass, or a model whose forward pass can go on from such a cache",
            )
        return {name: self._continued}


def whole_cache(model: Weights) -> Cache | None:
    """An empty cache that forgets nothing; None where the model's own is one. UsageError for other layers."""
    return None if kinds_of(model.config) == ["full_attention"] else DynamicCache()


def made_cache(model: Weights, tokens: int) -> Cache | None:
    """An empty cache of the model's path for at most `tokens` tokens; None leaves it to the model.

    UsageError or MissingError if it cannot be made for this model, or is no empty cache.
    """
    path = model.path
    if path.cache is None:
        return None
    # A model that was handed over may be elsewhere than its settings say.
    check_offloading(path.option.removeprefix("kv_cache="), on_cuda=model.device.type == "cuda")
    try:
        cache = path.cache(model.config, tokens)
    # Unknown kinds of layers fail a look-up.
    except Exception as error:
        kind = MissingError if isinstance(error, ImportError) else UsageError
        raise kind(
            f"{path.option} cannot be made for {model.name}: {reason(error)}",
            fix=f"leave {path.option} out, or name another cache",
        ) from error
    if not isinstance(cache, Cache) or any(map(_has_read, getattr(cache, "layers", ()))):
        found = "one that holds tokens" if isinstance(cache, Cache) else f"a {type(cache).__name__}"
        raise UsageError(
            f"{path.option} gives {found}",
            expected="an empty Cache of transformers, a new one with each call",
        )
    return cache


def _has_read(layer: Any) -> bool:
    """Whether a layer of a cache holds keys, or the state of a recurrent layer."""
    states = getattr(layer, "has_previous_state", False)
    recurrent = any(states.values()) if isinstance(states, dict) else bool(states)
    return recurrent or (getattr(layer, "keys", None) is not None and bool(layer.get_seq_length() > 0))


def in_pieces(model: Weights, ids: Tensor) -> Tensor:
    """What the head takes for every token of `ids` [B, T], read by the passes of `model.path` through its cache.

    UsageError if the cache cannot be made for this model, or cannot be continued.
    """
    reader = PieceReader(model, cache=made_cache(model, ids.shape[1]))
    return torch.cat(reader.read_passes(ids.cpu().numpy(), model.path.pieces(ids.shape[1])), dim=1)


def _copied(cache: Any) -> Any:
    """A cache that grows on its own from here. Layers that replace their tensors share them."""
    # A class of its own keeps more: MiniMax's the states of its linear attention.
    if type(cache) not in (DynamicCache, QuantizedCache):
        return copy.deepcopy(cache)
    replacing = (DynamicLayer, DynamicSlidingWindowLayer)
    if not all(type(layer) in replacing or isinstance(layer, QuantizedLayer) for layer in cache.layers):
        return copy.deepcopy(cache)
    copied = copy.copy(cache)
    copied.layers = [copy.copy(layer) for layer in cache.layers]
    return copied


def kinds_of(config: Any) -> list[str]:
    """The kinds of layers of a text configuration, as transformers' `create_masks_for_generate` tells them apart.

    UsageError for layers that are no attention, or of a kind that is not known here.
    """
    given = getattr(config, "layer_types", None)
    if not given:
        setting = next((name for name in (_WINDOW, _CHUNK) if getattr(config, name, None) is not None), None)
        return [next(kind for kind, own in _KINDS.items() if own == setting)]
    kinds = sorted(set(given))
    if unknown := [kind for kind in kinds if kind not in _KINDS]:
        raise UsageError(
            f"it has layers of {' and '.join(unknown)}", expected=f"layers of {', '.join(_KINDS)}"
        )
    return kinds


def layer_masks(
    config: Any, allowed: Tensor, positions: Tensor, keys: Tensor, dtype: torch.dtype
) -> Tensor | dict[str, Tensor]:
    """What a forward pass takes as `attention_mask` so that each layer sees what its kind does of `allowed`.

    `allowed` [N, K] is True where a token attends in a layer that sees everything; `positions` [N] are those of the
    tokens, `keys` [K] of what they attend to. Gives one mask [1, 1, N, K], or one for each kind of layer.
    """
    masks = {}
    for kind in kinds_of(config):
        setting = _KINDS[kind]
        size = None if setting is None else getattr(config, setting)
        near = allowed
        if size is not None and setting == _WINDOW:
            near = allowed & (keys > positions[:, None] - size)
        elif size is not None:
            near = allowed & (keys // size == positions[:, None] // size)
        masks[kind] = additive_mask(near, dtype)
    return masks if len(masks) > 1 else next(iter(masks.values()))
