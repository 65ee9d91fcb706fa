"""How a model reads a text: in one pass, in chunks through its cache, or its end token by token, as serving does.

A fault of a cache, of a sliding window or of the decode kernel does not show in one pass: nothing is read back there.
"""

from __future__ import annotations

import inspect
import pkgutil
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from lengthwise.errors import MissingError, UsageError, require_known
from lengthwise.settings import Subject
from lengthwise.versions import need, unpack_quanto

CHUNK = 256
"""Tokens of a pass through a cache, where the user does not say."""
DECODE = 128
"""Tokens that are read one by one, where the user does not say."""


@dataclass(frozen=True)
class ReadingPath:
    """Which tokens of a sequence one forward pass reads."""

    chunk: int | None = None
    """Tokens of a pass; None reads all of them in one."""
    decode: int = 0
    """How many tokens at the end are read one at a time, after a prefill."""

    @property
    def in_one_pass(self) -> bool:
        """Whether nothing is read back from a cache."""
        return self.chunk is None and not self.decode

    def pieces(self, length: int) -> list[int]:
        """The tokens of each pass over a sequence of `length` tokens; they add up to it."""
        decoded = min(self.decode, length)
        size = self.chunk or max(1, length - decoded)
        full, rest = divmod(length - decoded, size)
        return [size] * full + [rest] * (rest > 0) + [1] * decoded


def reading_path(subject: Subject) -> ReadingPath:
    """The path of a subject: what it names; default one pass, or chunks where a cache is named.

    UsageError for an unknown path, or one pass with a cache, which it would never read.
    """
    # llama.cpp reads every token from its cache.
    cached = subject.kind == "weights" and (subject.kv_cache or subject.cache) is not None
    if subject.read is None:
        return ReadingPath(chunk=CHUNK if cached else None)
    parsed = re.fullmatch(r"(prefill)|chunks=0*([1-9]\d*)|decode(?:=0*([1-9]\d*))?", subject.read)
    if parsed is None:
        raise UsageError(
            f"read is {subject.read!r}",
            expected="prefill (one pass), chunks=N (passes of N tokens), decode or decode=N (the last N one by one)",
        )
    prefill, chunk, decode = parsed.groups()
    if chunk and subject.kind == "endpoint":
        raise UsageError(
            f"read is {subject.read!r}, and {subject.model} is an endpoint, whose server decides on its chunks",
            expected="prefill, decode or decode=N",
        )
    if prefill and cached:
        raise UsageError(
            "one pass never reads from a cache",
            expected=f"read=chunks={CHUNK} or read=decode with kv_cache or cache",
        )
    if prefill or chunk:
        return ReadingPath(chunk=int(chunk) if chunk else None)
    return ReadingPath(decode=int(decode or DECODE))


def _cache(kind: str, own: Any, tokens: int, **how: Any) -> Any:
    import transformers

    make = getattr(transformers, kind)
    given = {"config": own, "max_cache_len": tokens}
    takes = inspect.signature(make).parameters
    return make(**{name: value for name, value in given.items() if name in takes} | how)


def _quanto(own: Any, tokens: int, *, nbits: int) -> Any:
    unpack_quanto()
    return _cache("QuantizedCache", own, tokens, backend="quanto", nbits=nbits)


KV_CACHES: dict[str, Callable[[Any, int], Any]] = {
    "dynamic": partial(_cache, "DynamicCache"),
    "full": partial(_cache, "DynamicCache", config=None),
    "offloaded": partial(_cache, "DynamicCache", offloading=True),
    "static": partial(_cache, "StaticCache"),
    "static-offloaded": partial(_cache, "StaticCache", offloading=True),
    "fp8": partial(_cache, "QuantizedCache", backend="fp8"),
    "quanto-int4": partial(_quanto, nbits=4),
    "quanto-int2": partial(_quanto, nbits=2),
    **{
        f"hqq-int{bits}": partial(
            _cache, "QuantizedCache", backend="hqq", nbits=bits, axis_key=1, axis_value=1
        )
        for bits in (8, 4, 3, 2, 1)
    },
}
"""The caches of transformers by name, each (configuration, most tokens) -> Cache.

"dynamic" forgets what lies outside of the sliding windows of a model that has some; "full" forgets nothing.
"""

_OFFLOADED = {"offloaded": "dynamic", "static-offloaded": "static"}
"""The caches that need CUDA, and those that keep the same where they are read."""


def _has_cuda() -> bool:
    # Settings are checked without torch.
    import torch

    return torch.cuda.is_available()


@dataclass(frozen=True)
class ChosenCache:
    """A cache that the user names."""

    option: str
    """As the user writes it."""
    make: Callable[[Any, int], Any]
    """(configuration of the text model, most tokens) -> Cache."""


def cache_maker(subject: Subject) -> ChosenCache | None:
    """What makes the subject's cache for a sequence, of the text model's configuration; None: the model does.

    UsageError for two caches, an unknown one, or a `cache` that is no function; MissingError without its module or
    package.
    """
    if subject.kv_cache is not None and subject.cache is not None:
        raise UsageError("kv_cache and cache each name a cache", expected="one of them")
    if subject.kv_cache is not None:
        require_known(subject.kv_cache, KV_CACHES, "no cache")
    if subject.kv_cache in _OFFLOADED and not _has_cuda():
        raise UsageError(
            f"kv_cache is {subject.kv_cache!r}, which moves layers from a GPU, and there is no CUDA device",
            expected="a machine with CUDA",
            fix=f"use kv_cache={_OFFLOADED[subject.kv_cache]}, which gives the same numbers",
        )
    if (subject.kv_cache or "").startswith("quanto-"):
        need("optimum")
    if subject.cache is None:
        kind = subject.kv_cache
        return None if kind is None else ChosenCache(f"kv_cache={kind}", KV_CACHES[kind])
    if "" not in sys.path:
        # A module in the current folder, as `python -m` finds it.
        sys.path.append("")
    try:
        make = pkgutil.resolve_name(subject.cache)
    except ImportError as error:
        raise MissingError(f"the module of cache {subject.cache!r} cannot be imported: {error}") from error
    except (AttributeError, ValueError):
        make = None
    if not callable(make):
        raise UsageError(
            f"cache is {subject.cache!r}",
            expected="module:function, which returns a transformers Cache (its argument, if it has one, is the "
            "model's configuration)",
        )
    takes = len(inspect.signature(make).parameters) > 0
    return ChosenCache(f"cache={subject.cache}", lambda config, _: make(*[config] * takes))
