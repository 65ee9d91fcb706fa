"""Differences of a given shape, made of noise on the predictions: what a verdict must tell apart whatever made it."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from checks.lab.sides import UNSEEN, Base, Pair, Says, Side, loaded, predicts
from lengthwise.subjects import LoadedModel

Where = Callable[[Tensor], Tensor]
"""Positions [T] -> the size of the noise at each."""


def noisy(where: Where, *, seed: int = 0, windows: Callable[[int], bool] = lambda _: True) -> Side:
    """A side whose logits have noise by position, in those windows (counted as they are first read)."""

    def make() -> Callable[[Tensor, Tensor], Tensor]:
        seen: dict[int, int] = {}

        def how(ids: Tensor, logits: Tensor) -> Tensor:
            size = where(torch.arange(ids.shape[1]))
            found = []
            for row, each in zip(ids, logits, strict=True):
                drawn = _drawn(row, seed).standard_normal(tuple(each.shape), dtype=np.float32)
                here = windows(seen.setdefault(_name(row), len(seen)))
                found.append(each + torch.from_numpy(drawn) * size[:, None] * here)
            return torch.stack(found)

        return how

    return lambda base: predicts(make())(base)


def single(share: float, nats: float) -> Side:
    """A side that misses single tokens by this much, one in 1 / share."""

    def how(ids: Tensor, logits: Tensor) -> Tensor:
        changed = logits.clone()
        for row, each in zip(ids, changed, strict=True):
            hit = np.flatnonzero(_drawn(row).random(len(row) - 1) < share)
            each[hit, row[hit + 1]] -= nats
        return changed

    return predicts(how)


def _name(row: Tensor) -> int:
    """Of a window, by its beginning: what is predicted of a text does not depend on what follows."""
    return zlib.crc32(row[:32].numpy().tobytes())


def _drawn(row: Tensor, seed: int = 0) -> np.random.Generator:
    return np.random.default_rng([_name(row), seed])


def unstable(size: float) -> Side:
    """A side that never says the same twice."""
    generator = torch.Generator().manual_seed(5)
    return predicts(lambda _, logits: logits + size * torch.randn(logits.shape, generator=generator))


def copies(reach: int, of: Side | None = None) -> Side:
    """A side that also favours the token after the last occurrence of the present one, within `reach` tokens."""

    def side(base: Base) -> LoadedModel:
        most = reach * base.scale

        def how(ids: Tensor, logits: Tensor) -> Tensor:
            changed = logits.clone()
            for sequence, line in zip(ids.tolist(), changed, strict=True):
                last: dict[int, int] = {}
                for row, token in enumerate(sequence):
                    if token in last and row - last[token] <= most:
                        line[row, sequence[last[token] + 1]] += 4.0
                    last[token] = row
            return changed

        return predicts(how, of)(base)

    return side


def at_both_ends(until: int, place: int, size: float = 1.0) -> Where:
    """Noise in the first tokens, and from a place on."""
    return lambda p: size * ((p < until) | (p >= place))


def _begins(what: str, place: int, b: Side, **more: Any) -> Pair:
    return Pair(what, Says(("from a place",), place=place, never=("bos", "cache")), b, **more)


def _shaped(what: str, pattern: Any, b: Side, never: tuple[str, ...] | None = None, **more: Any) -> Pair:
    if never is None:
        never = ("bos",) if pattern == "some windows" else ("bos", "cache")
    return Pair(what, Says((pattern,), never=never), b, **more)


def _both(what: str, b: Side, **more: Any) -> Pair:
    says = Says(
        ("first tokens", "growing"),
        words=("equal from 64 to", "at both ends"),
        never=("few tokens", "bos", "precision"),
    )
    return Pair(what, says, b, **more)


_HALF: dict[str, Any] = {"dtype": "bfloat16", "windows": 4}
FIRST = ("sliding window", "precision", "cache")
PAIRS = (
    _begins("noise from token 256 on", 256, noisy(lambda p: 0.5 * (p >= 256))),
    _begins("little noise from token 100 on", 100, noisy(lambda p: 0.01 * (p >= 100))),
    _begins("noise from token 352 on, bfloat16", 352, noisy(lambda p: 0.3 * (p >= 352)), **_HALF),
    _begins(
        "little noise from token 200 on, bfloat16",
        200,
        noisy(lambda p: 0.05 * (p >= 200)),
        larger=UNSEEN,
        **_HALF,
    ),
    _begins("noise from token 480 on", 480, noisy(lambda p: 0.5 * (p >= 480))),
    _begins("noise from token 40 on, windows of 256", 40, noisy(lambda p: 0.5 * (p >= 40)), lengths=(256,)),
    _begins("noise in the last 16 tokens", 496, noisy(lambda p: 0.5 * (p >= 496))),
    _begins("noise in the last 16 tokens, bfloat16", 496, noisy(lambda p: 0.5 * (p >= 496)), **_HALF),
    Pair(
        "noise from token 128 to 192, bfloat16",
        Says(("from a place",), place=128, words=("equal again",), never=("bos", "cache")),
        noisy(lambda p: 0.5 * ((p >= 128) & (p < 192))),
        **_HALF,
    ),
    Pair(
        "noise from token 192 to 256",
        Says(("from a place",), place=192, words=("up to 256, and equal again",), never=("bos", "cache")),
        noisy(lambda p: 0.5 * ((p >= 192) & (p < 256))),
    ),
    Pair(
        "noise everywhere, and more from token 256 on",
        Says(("growing",), place=256, never=("bos", "cache")),
        noisy(lambda p: 0.1 + 0.4 * (p >= 256)),
    ),
    _shaped("noise that grows with the position", "growing", noisy(lambda p: p / 512)),
    _shaped("little noise that grows with the position", "growing", noisy(lambda p: p / 5120)),
    _shaped(
        "noise that grows with the position, bfloat16",
        "growing",
        noisy(lambda p: p / 512),
        larger=Says(("growing", "all positions"), never=("bos", "cache")),
        **_HALF,
    ),
    _shaped("noise in the first 4 tokens", "first tokens", noisy(lambda p: 1.0 * (p < 4)), FIRST),
    _shaped(
        "noise in the first 16 tokens, bfloat16",
        "first tokens",
        noisy(lambda p: 1.0 * (p < 16)),
        FIRST,
        **_HALF,
    ),
    _shaped("noise in the first 64 tokens", "first tokens", noisy(lambda p: 0.2 * (p < 64)), FIRST),
    _shaped("noise that fades", "first tokens", noisy(lambda p: (-p / 100).exp()), FIRST),
    _both("noise in the first 32 tokens and the last 32", noisy(at_both_ends(32, 480))),
    _both("noise in the first 32 tokens and the last 32, bfloat16", noisy(at_both_ends(32, 480)), **_HALF),
    _both("little noise in the first 16 tokens and the last 16", noisy(at_both_ends(16, 496, 0.1))),
    _both("noise in the first 8 tokens and the last 12", noisy(at_both_ends(8, 500)), windows=1),
    _both("noise in the first 64 tokens and from 384 on", noisy(at_both_ends(64, 384))),
    _both("noise in the first 32 tokens and from 256 on, bfloat16", noisy(at_both_ends(32, 256)), **_HALF),
    Pair(
        "noise from token 100 to 110",
        Says(("from a place",), place=100, words=("equal again",), never=("few tokens", "cache")),
        noisy(lambda p: 0.5 * ((p >= 100) & (p < 110))),
    ),
    Pair(
        "noise from token 200 to 216, bfloat16",
        Says(("from a place",), place=200, words=("equal again",), never=("few tokens", "cache")),
        noisy(lambda p: 1.0 * ((p >= 200) & (p < 216))),
        **_HALF,
    ),
    Pair(
        "noise from token 100 to 132 and from 400 to 432",
        Says(("from a place",), place=100, words=("but equal from",), never=("few tokens", "cache")),
        noisy(lambda p: 0.5 * ((p - 116).abs().clamp(max=(p - 416).abs()) <= 16)),
    ),
    _shaped("noise at every 64th token", "some tokens", noisy(lambda p: 1.0 * (p % 64 == 0))),
    _shaped(
        "noise at every 16th token, bfloat16", "some tokens", noisy(lambda p: 1.0 * (p % 16 == 15)), **_HALF
    ),
    _shaped("noise everywhere", "all positions", noisy(lambda p: 0.3 + 0 * p)),
    _shaped("little noise everywhere", "all positions", noisy(lambda p: 0.002 + 0 * p)),
    _shaped("noise everywhere, bfloat16", "all positions", noisy(lambda p: 0.3 + 0 * p), **_HALF),
    _shaped(
        "one window in three", "some windows", noisy(lambda p: 0.5 + 0 * p, windows=lambda n: n % 3 == 0)
    ),
    _shaped(
        "one window in four, bfloat16",
        "some windows",
        noisy(lambda p: 0.5 + 0 * p, windows=lambda n: n % 4 == 1),
        **_HALF,
    ),
    _shaped(
        "one window of all, windows of 256",
        "some windows",
        noisy(lambda p: 1.0 + 0 * p, windows=lambda n: n == 2),
        lengths=(256,),
        windows=4,
    ),
    _shaped(
        "one window in eight from token 256 on, bfloat16",
        "some windows",
        noisy(lambda p: 0.5 * (p >= 256), windows=lambda n: n == 3),
        **_HALF,
    ),
    _shaped("one token in 200 by 5 nats", "some tokens", single(0.005, 5.0)),
    _shaped("one token in 200 by 5 nats, bfloat16", "some tokens", single(0.005, 5.0), **_HALF),
    _shaped("one token in 500 by 8 nats", "some tokens", single(0.002, 8.0)),
    _shaped("one token in 1000 by 3 nats, bfloat16", "some tokens", single(0.001, 3.0), **_HALF),
    Pair("B never says the same twice", Says(("unstable", "all positions")), unstable(0.3)),
    Pair(
        "a passage is copied from 64 tokens back in place of any",
        Says(
            ("growing", "all positions", "from a place"), "worse", use=("less",), never=("no clear benefit",)
        ),
        copies(64),
        a=copies(4096),
        windows=6,
        # It copies by itself: less of what makes that worse makes it better.
        larger=Says(("growing", "all positions", "from a place"), "better", never=("cache", "bos")),
    ),
    Pair(
        "a passage is copied from any distance in place of 64 tokens",
        Says(("growing", "all positions", "from a place"), "better", use=("more", "not clear")),
        copies(4096),
        a=copies(64),
        windows=6,
        # It copies by itself: more of that makes it worse.
        larger=Says(("growing", "all positions", "from a place"), "worse", never=("cache", "bos")),
    ),
    Pair(
        "the same, one document",
        Says(
            ("growing", "all positions", "from a place"),
            use=("less", "not clear"),
            never=("no clear benefit for a",),
        ),
        copies(64),
        a=copies(4096),
        windows=1,
    ),
    Pair(
        "a passage is copied alike, under noise",
        Says(("all positions",), use=("alike", "not clear")),
        noisy(lambda p: 0.2 + 0 * p),
        a=lambda base: base.model,
        windows=6,
    ),
)


def twice(base: Base) -> LoadedModel:
    """The same weights, loaded once more."""
    return loaded(base.model.model, base.model)
