"""The caches through which a model whose weights are here may read, by name, or made by a function of the user's."""

from __future__ import annotations

import inspect
import pkgutil
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from lengthwise.errors import MissingError, UsageError, reason, require_known
from lengthwise.settings import Subject
from lengthwise.versions import need, unpack_quanto


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


def _is_on_cuda(device: str) -> bool:
    # Settings are checked without torch.
    import torch

    return torch.cuda.is_available() and (device == "auto" or device.startswith("cuda"))


def check_offloading(kind: str, *, on_cuda: bool) -> None:
    """Raise UsageError for a cache that is offloaded from a GPU where the model is on none."""
    if kind in _OFFLOADED and not on_cuda:
        raise UsageError(
            f"kv_cache is {kind!r}, which moves layers from a GPU, and the model is on no CUDA device",
            expected="a machine with CUDA, and a model on it",
            fix=f"use kv_cache={_OFFLOADED[kind]}, which gives the same numbers",
        )


def chosen_cache(subject: Subject) -> tuple[str, Callable[[Any, int], Any]]:
    """The cache that a subject names, as the user writes it, and what makes it (see `ReadingPath.cache`).

    UsageError for two caches, an unknown one, or a `cache` that is no function; MissingError without its module or
    package.
    """
    if subject.kv_cache is not None and subject.cache is not None:
        raise UsageError("kv_cache and cache each name a cache", expected="one of them")
    if (kind := subject.kv_cache) is not None:
        require_known(kind, KV_CACHES, "no cache")
        check_offloading(kind, on_cuda=_is_on_cuda(subject.device))
        if kind.startswith("quanto-"):
            need("optimum")
        return f"kv_cache={kind}", KV_CACHES[kind]
    assert subject.cache is not None
    if "" not in sys.path:
        # A module in the current folder, as `python -m` finds it.
        sys.path.append("")
    try:
        make = pkgutil.resolve_name(subject.cache)
    except ImportError as error:
        raise MissingError(f"the module of cache {subject.cache!r} cannot be imported: {error}") from error
    except (AttributeError, ValueError):
        make = None
    # The user's module runs, and may end in any way.
    except (Exception, SystemExit) as error:
        raise UsageError(
            f"the module of cache {subject.cache!r} ends in {type(error).__name__}: {error}"
        ) from error
    if not callable(make):
        raise UsageError(
            f"cache is {subject.cache!r}",
            expected="module:function, which returns a transformers Cache (its argument, if it has one, is the "
            "model's configuration)",
        )
    try:
        takes = len(inspect.signature(make).parameters) > 0
    except ValueError as error:
        # Of dict and others that are built in.
        raise UsageError(
            f"cache is {subject.cache!r}: {reason(error)}", expected="a function of Python"
        ) from error
    return f"cache={subject.cache}", lambda config, _: make(*[config] * takes)
