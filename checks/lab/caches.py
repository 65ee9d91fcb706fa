"""Caches with the faults that serving really has, for `--b cache=checks.lab.caches:NAME` and for the table."""

from __future__ import annotations

from typing import Any

import torch
from transformers import Cache
from transformers.cache_utils import DynamicLayer


class Sound(DynamicLayer):
    """A layer that forgets nothing; what all others are made of."""

    seen = 0
    index = 0
    """Which layer of the model it belongs to."""

    def update(self, key_states: Any, value_states: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        self.seen += key_states.shape[-2]
        return super().update(key_states, value_states, *args, **kwargs)

    def get_seq_length(self) -> int:
        return self.seen

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        held = (self.keys.shape[-2] if self.is_initialized else 0) + query_length
        return held, self.seen + query_length - held

    def keep(self, index: Any) -> None:
        """Only these tokens stay."""
        self.keys, self.values = self.keys[:, :, index], self.values[:, :, index]


class Forgets(Sound):
    """A sliding window where the model has none: only the most recent tokens stay, after the first `sinks`."""

    window, sinks = 128, 0

    def update(self, key_states: Any, value_states: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        found = super().update(key_states, value_states, *args, **kwargs)
        if (held := self.keys.shape[-2]) > self.sinks + self.window:
            self.keep([*range(self.sinks), *range(held - self.window, held)])
        return found


class Thins(Sound):
    """Beyond a budget, of all but the most recent tokens every second one goes."""

    budget, recent = 192, 64

    def update(self, key_states: Any, value_states: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        found = super().update(key_states, value_states, *args, **kwargs)
        if (held := self.keys.shape[-2]) > self.budget:
            self.keep([*range(0, held - self.recent, 2), *range(held - self.recent, held)])
        return found


class EveryOther(Sound):
    """Of all but the most recent tokens every second one is forgotten, by its place in the text."""

    recent = 64
    places: tuple[int, ...] = ()
    """Where the tokens that are still held stood in the text."""

    def update(self, key_states: Any, value_states: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        found = super().update(key_states, value_states, *args, **kwargs)
        places = [*self.places, *range(self.seen - key_states.shape[-2], self.seen)]
        kept = [i for i, place in enumerate(places) if place % 2 == 0 or i >= len(places) - self.recent]
        self.places = tuple(places[i] for i in kept)
        self.keep(kept)
        return found


class Loses(Sound):
    """A block of tokens is lost once it was read."""

    start, block = 128, 64

    def update(self, key_states: Any, value_states: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        keys, values = (each.clone() for each in super().update(key_states, value_states, *args, **kwargs))
        old = keys.shape[-2] - key_states.shape[-2]
        values[:, :, min(self.start, old) : min(self.start + self.block, old)] = 0
        return keys, values


class LosesLast(Sound):
    """The last token of the pass before is lost, as by a count that is off by one."""

    def update(self, key_states: Any, value_states: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        keys, values = (each.clone() for each in super().update(key_states, value_states, *args, **kwargs))
        if old := keys.shape[-2] - key_states.shape[-2]:
            values[:, :, old - 1] = 0
        return keys, values


class Overwrites(Sound):
    """A ring: what does not fit the budget takes the places of the oldest tokens, with their positions."""

    budget = 200

    def update(self, key_states: Any, value_states: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        found = [each.clone() for each in super().update(key_states, value_states, *args, **kwargs)]
        over = min(max(0, found[0].shape[-2] - key_states.shape[-2] - self.budget), self.budget)
        for states in found:
            states[:, :, :over] = states[:, :, self.budget : self.budget + over]
        return found[0], found[1]


class Noise(Sound):
    """What is read back has noise, of this size as a share of its spread."""

    size = 0.01

    def update(self, key_states: Any, value_states: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        exact = [states.clone() for states in super().update(key_states, value_states, *args, **kwargs)]
        generator = torch.Generator().manual_seed(7 * self.seen + self.index)
        own = self.values[:, :, -key_states.shape[-2] :]
        own += self.size * own.std() * torch.randn(own.shape, generator=generator).to(own)
        return exact[0], exact[1]


class SwapsHeads(Sound):
    """The values of the first two heads are read back in each other's place."""

    def update(self, key_states: Any, value_states: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        keys, values = (each.clone() for each in super().update(key_states, value_states, *args, **kwargs))
        old = slice(0, keys.shape[-2] - key_states.shape[-2])
        values[:, [0, 1], old] = values[:, [1, 0], old]
        return keys, values


class OffByOne(Sound):
    """After `start` tokens what is read back is rolled by one place: the values, the keys, or both in turn."""

    start, which = 512, "values"

    def update(self, key_states: Any, value_states: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        keys, values = super().update(key_states, value_states, *args, **kwargs)
        if self.seen <= self.start:
            return keys, values
        return (keys.roll(1, dims=-2), values) if self.which == "keys" else (keys, values.roll(1, dims=-2))


class Drops(Sound):
    """What was cached before this pass is lost in one head (`head`), or in all of them."""

    head: int | None = None

    def update(self, key_states: Any, value_states: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        keys, values = (each.clone() for each in super().update(key_states, value_states, *args, **kwargs))
        values[:, slice(None) if self.head is None else self.head, : -key_states.shape[-2]] = 0
        return keys, values


class MixesRows(Sound):
    """What was cached is that of the other text in the batch."""

    def update(self, key_states: Any, value_states: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        keys, values = (each.clone() for each in super().update(key_states, value_states, *args, **kwargs))
        old = slice(None, -key_states.shape[-2])
        return _with(keys, old, keys[:, :, old].roll(1, dims=0)), _with(
            values, old, values[:, :, old].roll(1, dims=0)
        )


class Stale(Sound):
    """The first tokens are still those of the text that was read before."""

    block = 64
    memory: dict[int, tuple[Any, Any]]
    """Layer -> the first keys and values of the last text."""

    def update(self, key_states: Any, value_states: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        keys, values = (each.clone() for each in super().update(key_states, value_states, *args, **kwargs))
        if self.seen == key_states.shape[-2]:
            before = self.memory.get(self.index)
            self.stale = None if before is None else [each[: len(keys)] for each in before]
            self.memory[self.index] = (keys[:, :, : self.block].clone(), values[:, :, : self.block].clone())
        elif self.stale is not None and len(self.stale[0]) == len(keys):
            first = slice(None, self.stale[0].shape[-2])
            keys, values = _with(keys, first, self.stale[0]), _with(values, first, self.stale[1])
        return keys, values


class Rounds(Sound):
    """Keys and values in few bits, by token or by channel, or as FP8; the tokens of this pass are still exact."""

    bits, parts, over = 4, ("keys", "values"), -1
    stored_as: torch.dtype | None = None

    def update(self, key_states: Any, value_states: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        exact = [states.clone() for states in super().update(key_states, value_states, *args, **kwargs)]
        new = key_states.shape[-2]
        for name in self.parts:
            states = getattr(self, name)
            own = states[:, :, -new:]
            states[:, :, -new:] = (
                own.to(self.stored_as) if self.stored_as else rounded(own, self.bits, over=self.over)
            )
        return exact[0], exact[1]


class Miscounts(Sound):
    """After `start` tokens keys are turned as if they stood a token later."""

    start = 256

    def update(self, key_states: Any, value_states: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        if self.seen + key_states.shape[-2] > self.start:
            # By one step of a rope of base 10,000, which every base model has.
            half = key_states.shape[-1] // 2
            angle = 1e4 ** -(torch.arange(half) / half)
            cos, sin = (each.to(key_states).repeat(2) for each in (angle.cos(), angle.sin()))
            one, two = key_states.split(half, dim=-1)
            key_states = key_states * cos + torch.cat([-two, one], dim=-1) * sin
        return super().update(key_states, value_states, *args, **kwargs)


def rounded(states: torch.Tensor, bits: int, *, over: int = -1) -> torch.Tensor:
    """In `bits` bits between the least and the greatest value over one dimension."""
    low, high = states.amin(dim=over, keepdim=True), states.amax(dim=over, keepdim=True)
    step = ((high - low) / (2**bits - 1)).clamp(min=1e-9)
    return ((states - low) / step).round() * step + low


def cache(layer: type[Sound], layers: int, *, only: int | None = None, **settings: Any) -> Cache:
    """A cache of such layers; with `only`, of one such layer among sound ones."""
    kind = type(layer.__name__, (layer,), settings)
    made = [kind() if only in (None, index) else Sound() for index in range(layers)]
    for index, each in enumerate(made):
        each.index = index
    return Cache(layers=made)


def _with(states: torch.Tensor, rows: slice, values: torch.Tensor) -> torch.Tensor:
    states[:, :, rows] = values
    return states


def forgets(config: Any) -> Cache:
    """The most recent 128 tokens, for a command line."""
    return cache(Forgets, config.num_hidden_layers)
