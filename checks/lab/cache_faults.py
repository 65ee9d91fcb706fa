"""Faults of caches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from checks.lab import caches
from checks.lab.sides import EQUAL, UNSEEN, Base, Pair, Says, Side, loaded
from lengthwise.subjects import LoadedModel
from lengthwise.subjects.caches import KV_CACHES
from lengthwise.subjects.reading import ReadingPath

PLACES = ("window", "sinks", "budget", "recent", "start", "block")
"""Settings of a faulty cache that count tokens."""


def path(kind: str, scale: int = 1) -> ReadingPath:
    """`chunks=N`, `decode=N` or `prefill`."""
    name, _, tokens = kind.partition("=")
    if name == "prefill":
        return ReadingPath()
    return (
        ReadingPath(chunk=int(tokens) * scale)
        if name == "chunks"
        else ReadingPath(decode=int(tokens) * scale)
    )


def through(layer: type[caches.Sound] | str | None, read: str = "chunks=64", **settings: Any) -> Side:
    """A side that reads through a faulty cache, through one of transformers by name, or through its own (None)."""

    def side(base: Base) -> LoadedModel:
        scaled = {name: value * base.scale if name in PLACES else value for name, value in settings.items()}
        along = path(read, base.scale)
        if isinstance(layer, str):
            along = replace(along, cache=KV_CACHES[layer], option=layer)
        elif layer is not None:
            if layer is caches.Stale:
                scaled["memory"] = {}
            make = lambda config, _: caches.cache(layer, config.num_hidden_layers, **scaled)  # noqa: E731
            along = replace(along, cache=make, option=layer.__name__)
        return loaded(base.model.model, base.model, head=base.model.head, path=along)

    return side


CAUSE = ("precision of the cache", "quantized", "bos")


def _late(what: str, place: int, b: Side, **more: Any) -> Pair:
    """It begins at a place."""
    return Pair(
        what, Says(("from a place", "growing"), place=place, words=("cache",), never=CAUSE), b, **more
    )


def _once_read(what: str, b: Side, *also: str, **more: Any) -> Pair:
    """It is there from the first token that a cache is read for, and may grow."""
    kinds: Any = ("all positions", "growing", "from a place", *also)
    says = Says(kinds, words=("cache",), never=("another bos",))
    return Pair(what, says, b, **more)


def _faint(what: str, b: Side, **more: Any) -> Pair:
    """It is within rounding at first, and no window, budget or offset."""
    says = Says(
        ("growing", "all positions"), words=("precision of the cache",), never=("window", "another bos")
    )
    return Pair(what, says, b, **more)


STALE = Says(
    ("all positions", "growing", "some windows", "first tokens", "from a place", "unstable"), words=("cache",)
)
"""The first prompt of all is right, and what comes long after the stale keys is little touched."""
_HALF: dict[str, Any] = {"dtype": "bfloat16", "windows": 4}
_DECODED: dict[str, Any] = {"lengths": (128, 256, 384), "windows": 2}
_Forgets, _Off, _Rounds = caches.Forgets, caches.OffByOne, caches.Rounds
PAIRS = (
    _once_read("forgets all but 32 tokens", through(_Forgets, window=32)),
    _late("forgets all but 100 tokens", 128, through(_Forgets, window=100)),
    _once_read(
        "forgets all but 128 tokens, in passes of 256",
        through(_Forgets, "chunks=256", window=128),
        "first tokens",
    ),
    _late("forgets all but 256 tokens, bfloat16", 320, through(_Forgets, window=256), **_HALF),
    _once_read("forgets all but 100 tokens, decoded", through(_Forgets, "decode=16", window=100), **_DECODED),
    _late("forgets all but 300 tokens, decoded", 301, through(_Forgets, "decode=16", window=300), **_DECODED),
    _late("evicts the middle (4 + 252)", 320, through(_Forgets, sinks=4, window=252)),
    _late("evicts the middle (4 + 60)", 128, through(_Forgets, sinks=4, window=60)),
    _late(
        "evicts the middle (16 + 112), decoded",
        129,
        through(_Forgets, "decode=16", sinks=16, window=112),
        **_DECODED,
    ),
    _late("evicts every second old token", 256, through(caches.Thins, budget=192, recent=64)),
    _late(
        "evicts every second old token, bfloat16", 384, through(caches.Thins, budget=320, recent=64), **_HALF
    ),
    _late("values off by one after 256 tokens", 256, through(_Off, start=256)),
    _late("values off by one after 448 tokens, bfloat16", 448, through(_Off, start=448), **_HALF),
    _late("keys off by one after 128 tokens", 128, through(_Off, start=128, which="keys")),
    _late(
        "values off by one after 256 tokens, decoded", 257, through(_Off, "decode=16", start=256), **_DECODED
    ),
    _late("values off by one in one layer after 256 tokens", 256, through(_Off, start=256, only=1)),
    _late("keys turned a position too far after 256 tokens", 256, through(caches.Miscounts, start=256)),
    _late(
        "keys turned a position too far after 128 tokens, passes of 32",
        128,
        through(caches.Miscounts, "chunks=32", start=128),
    ),
    _late("forgets all but 72 tokens, passes of 50", 100, through(_Forgets, "chunks=50", window=72)),
    _late("forgets all but 400 tokens, bfloat16", 448, through(_Forgets, window=400), **_HALF),
    _late("forgets every other old token", 128, through(caches.EveryOther)),
    _late("forgets every other old token, bfloat16", 128, through(caches.EveryOther), **_HALF),
    _late("a block of 64 tokens is lost", 192, through(caches.Loses)),
    _late(
        "a block of 64 tokens is lost, passes of 32, bfloat16",
        160,
        through(caches.Loses, "chunks=32"),
        **_HALF,
    ),
    _late("overwrites the oldest tokens", 256, through(caches.Overwrites)),
    _late(
        "keys turned a position too far after 300 tokens, bfloat16",
        256,
        through(caches.Miscounts, start=300),
        **_HALF,
    ),
    _once_read("two heads are swapped", through(caches.SwapsHeads)),
    _once_read("the last token of every pass is lost", through(caches.LosesLast), "first tokens"),
    _once_read(
        "the last token of every pass is lost, passes of 128, bfloat16",
        through(caches.LosesLast, "chunks=128"),
        "first tokens",
        **_HALF,
    ),
    _once_read(
        "one head of one layer is not cached, decoded",
        through(caches.Drops, "decode=16", head=1, only=1),
        lengths=(128, 256),
        windows=2,
    ),
    _once_read("one head is not cached", through(caches.Drops, head=0)),
    _once_read(
        "one head is not cached, bfloat16, passes of 128",
        through(caches.Drops, "chunks=128", head=2),
        **_HALF,
    ),
    _once_read("one layer is not cached", through(caches.Drops, only=2)),
    _once_read("nothing is cached", through(caches.Drops, "chunks=128")),
    # Seen by the reader, which then reads every text alone, and says so in the log.
    Pair("rows of a batch are mixed", EQUAL, through(caches.MixesRows)),
    Pair("rows of a batch are mixed in one layer", EQUAL, through(caches.MixesRows, "chunks=128", only=0)),
    Pair("64 stale keys of the last prompt", STALE, through(caches.Stale), windows=4),
    Pair("16 stale keys of the last prompt", STALE, through(caches.Stale, block=16), windows=4),
    _once_read("FP8", through(_Rounds, stored_as=torch.float8_e4m3fn)),
    _once_read("FP8, bfloat16", through(_Rounds, stored_as=torch.float8_e4m3fn), larger=UNSEEN, **_HALF),
    _once_read("8 bits", through(_Rounds, bits=8)),
    _faint("8 bits of the values of one layer", through(_Rounds, bits=8, parts=("values",), only=1)),
    _faint("noise of 0.1 %", through(caches.Noise, size=0.001)),
    _once_read("noise of 1 %, passes of 100", through(caches.Noise, "chunks=100")),
    _once_read("4 bits", through(_Rounds)),
    _once_read("4 bits, bfloat16, passes of 128", through(_Rounds, "chunks=128"), **_HALF),
    _once_read("2 bits", through(_Rounds, bits=2)),
    _once_read("4 bits of the keys", through(_Rounds, parts=("keys",))),
    _once_read("3 bits of the values, by channel", through(_Rounds, bits=3, parts=("values",), over=-2)),
    _once_read("4 bits, decoded", through(_Rounds, "decode=16"), lengths=(128, 384), windows=2),
)
