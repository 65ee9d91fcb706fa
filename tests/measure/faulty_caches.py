"""Caches with the faults that serving really has, for `--b cache=tests.measure.faulty_caches:NAME`."""

from __future__ import annotations

from typing import Any

import torch
from transformers import Cache
from transformers.cache_utils import DynamicLayer

SINKS, RECENT = 4, 252
OFFSET_FROM = 512
FORGETS = 128


class _Seen(DynamicLayer):
    """A layer that may hold fewer tokens than it has seen."""

    seen = 0

    def update(self, key_states: Any, value_states: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        self.seen += key_states.shape[-2]
        return super().update(key_states, value_states, *args, **kwargs)

    def get_seq_length(self) -> int:
        return self.seen

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        held = (self.keys.shape[-2] if self.is_initialized else 0) + query_length
        return held, self.seen + query_length - held

    def keep(self, index: Any) -> None:
        self.keys, self.values = self.keys[:, :, index], self.values[:, :, index]


class EvictsTheMiddle(_Seen):
    """StreamingLLM's rule: the first tokens and the most recent ones stay."""

    def update(self, key_states: Any, value_states: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        found = super().update(key_states, value_states, *args, **kwargs)
        if (held := self.keys.shape[-2]) > SINKS + RECENT:
            self.keep([*range(SINKS), *range(held - RECENT, held)])
        return found


class Forgets(_Seen):
    """A sliding window where the model has none: only the most recent tokens stay."""

    window = FORGETS

    def update(self, key_states: Any, value_states: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        found = super().update(key_states, value_states, *args, **kwargs)
        self.keep(slice(-self.window, None))
        return found


class Forgets1024(Forgets):
    """The same with a greater window."""

    window = 1024


class OffByOne(DynamicLayer):
    """After some tokens every key meets the value of its neighbour."""

    def update(self, key_states: Any, value_states: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        keys, values = super().update(key_states, value_states, *args, **kwargs)
        return (keys, values.roll(1, dims=-2)) if keys.shape[-2] > OFFSET_FROM else (keys, values)


class Rounds(DynamicLayer):
    """Keys and values in few bits, by head and token; the tokens of this pass are still exact."""

    bits = 4

    def update(self, key_states: Any, value_states: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        exact = [states.clone() for states in super().update(key_states, value_states, *args, **kwargs)]
        new = key_states.shape[-2]
        for states in (self.keys, self.values):
            states[:, :, -new:] = _rounded(states[:, :, -new:], self.bits)
        return exact[0], exact[1]


class Rounds2(Rounds):
    """The same in two bits."""

    bits = 2


def _rounded(states: torch.Tensor, bits: int) -> torch.Tensor:
    low, high = states.aminmax(dim=-1, keepdim=True)
    step = ((high - low) / (2**bits - 1)).clamp(min=1e-9)
    return ((states - low) / step).round() * step + low


def evicts_the_middle() -> Cache:
    return Cache(layer_class_to_replicate=EvictsTheMiddle)


def forgets() -> Cache:
    return Cache(layer_class_to_replicate=Forgets)


def forgets_1024() -> Cache:
    return Cache(layer_class_to_replicate=Forgets1024)


def off_by_one() -> Cache:
    return Cache(layer_class_to_replicate=OffByOne)


def four_bits() -> Cache:
    return Cache(layer_class_to_replicate=Rounds)


def two_bits() -> Cache:
    return Cache(layer_class_to_replicate=Rounds2)
