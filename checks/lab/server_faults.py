"""Faults of servers, behind the stub of the tests."""

from __future__ import annotations

import copy
import math
import random
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from checks.lab.cache_faults import path
from checks.lab.mask_faults import window
from checks.lab.sides import Base, Pair, Says, Side
from checks.lab.weight_faults import noise
from lengthwise.subjects import Endpoint

# Another package of the environment may be called `tests`, too.
sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "served"))
import stub


def server(
    of: Side | None = None, read: str = "prefill", make: Callable[[], dict[str, Any]] = dict, **how: Any
) -> Side:
    """A side behind a stub server. `make` builds the stub's stateful arguments, once for each server."""

    def side(base: Base) -> Endpoint:
        model = of(base) if of else base.model
        served = base.opened.enter_context(stub.serving(stub.Stub(model, **how, **make())))
        endpoint = Endpoint(served.url, tokenizer=model.tokenizer)
        endpoint.path = path(read, base.scale)
        # What the probe of a long prompt refuses, a comparison has to find, too.
        endpoint.proven_to = sys.maxsize
        return endpoint

    return side


def mixed(one_in: int) -> Callable[[], dict[str, Any]]:
    """Some prompts are read with the beginning of another; the probes of a few tokens are right."""

    def make() -> dict[str, Any]:
        prompts: dict[tuple[int, ...], int] = {}

        def reads(ids: list[int]) -> list[int]:
            if len(ids) < 100:
                return ids
            index = prompts.setdefault(tuple(ids), len(prompts))
            other = list(list(prompts)[index - 1])
            return [*other[:64], *ids[64:]] if index % one_in == 1 else ids

        return {"reads": reads}

    return make


def wavers(size: float, one_in: int = 1) -> Callable[[], dict[str, Any]]:
    """The same request is not answered alike."""

    def make() -> dict[str, Any]:
        generator = torch.Generator().manual_seed(6)
        asked = iter(range(10**9))

        def predicts(log_p: Tensor) -> Tensor:
            # The probes of a few tokens are right.
            if len(log_p) < 100 or next(asked) % one_in:
                return log_p
            drawn = torch.randn(log_p.shape, generator=generator, dtype=log_p.dtype)
            return (log_p + size * drawn).log_softmax(-1)

        return {"predicts": predicts}

    return make


def replicas(of: Side, answers: Callable[[], Callable[[list[int]], bool]], **how: Any) -> Side:
    """Two models behind one address; `answers` makes what says of which requests the other one takes.

    The probes of a few tokens go to the first.
    """

    def side(base: Base) -> Endpoint:
        plain, other, takes = base.model.model, of(base).model, answers()

        class Both(torch.nn.Module):
            def forward(self, ids: Tensor) -> Any:
                return (other if ids.shape[1] >= 100 and takes(ids[0].tolist()) else plain)(ids)

        served = copy.copy(base.model)
        served.__dict__["model"] = Both()
        return server(lambda _: served, **how)(base)

    return side


def _one_text_in(count: int) -> Callable[[], Callable[[list[int]], bool]]:
    """The same text always goes to the same model."""

    def make() -> Callable[[list[int]], bool]:
        texts: dict[tuple[int, ...], int] = {}
        return lambda ids: texts.setdefault(tuple(ids), len(texts)) % count == 1

    return make


def _one_request_in(count: int) -> Callable[[], Callable[[list[int]], bool]]:
    """Any request, whatever its text."""

    def make() -> Callable[[list[int]], bool]:
        draw = random.Random(1)
        return lambda ids: draw.random() < 1 / count

    return make


def _begun_by(*tokens: int) -> Side:
    """A model that reads a template before every text, of which nothing is said."""

    def side(base: Base) -> Any:
        plain = base.model.model

        class Begun(torch.nn.Module):
            def forward(self, ids: Tensor) -> Any:
                logits = plain(torch.cat([torch.tensor([tokens]), ids], dim=1)).logits[:, len(tokens) :]
                return SimpleNamespace(logits=logits)

        served = copy.copy(base.model)
        served.__dict__["model"] = Begun()
        return served

    return side


def _cut_on_the_left(most: int) -> Callable[[list[int]], list[int]]:
    """Only the last tokens of a long prompt are read."""
    return lambda ids: ids if len(ids) <= most else [*[0] * (len(ids) - most), *ids[-most:]]


def _likeliest(share: float) -> Callable[[Tensor], Tensor]:
    """The likeliest tokens that have this share alone have a probability."""

    def predicts(log_p: Tensor) -> Tensor:
        values, order = log_p.sort(-1, descending=True)
        kept = values.exp().cumsum(-1) - values.exp() < share
        values = values.masked_fill(~kept, -math.inf).log_softmax(-1).clamp(min=-20)
        return torch.empty_like(log_p).scatter_(-1, order, values)

    return predicts


def _dropped(ids: list[int]) -> list[int]:
    """The token at 100 is missing; what follows is read a place earlier."""
    return ids if len(ids) <= 100 else [*ids[:100], *ids[101:], ids[-1]]


def _swaps(one: int, other: int) -> Callable[[list[int]], list[int]]:
    """Two tokens stand in each other's place."""

    def reads(ids: list[int]) -> list[int]:
        moved = [*ids]
        if len(ids) > max(one, other):
            moved[one], moved[other] = ids[other], ids[one]
        return moved

    return reads


def _forgets_the_middle(ids: list[int]) -> list[int]:
    """The server cuts tokens 64 to 127 out and reads end-of-text tokens in their place."""
    return ids if len(ids) < 128 else [*ids[:64], *[0] * 64, *ids[128:]]


def _top(count: int) -> Callable[[Tensor], Tensor]:
    def predicts(log_p: Tensor) -> Tensor:
        least = log_p.topk(count, dim=-1).values[:, -1:]
        kept = log_p.masked_fill(log_p < least, -math.inf)
        return (kept - kept.logsumexp(-1, keepdim=True)).clamp(min=-20)

    return predicts


def _tempered(temperature: float) -> Callable[[Tensor], Tensor]:
    return lambda log_p: (log_p / temperature).log_softmax(-1)


NEVER = ("bos", "sliding window")
EVERYWHERE = Says(("all positions",), never=NEVER)
SOME = Says(("some windows",), never=(*NEVER, "precision"))
CUT = Says(("first tokens",), words=("beginning",), never=("cache", "sliding window", "precision"))
TEMPLATE = Says(
    ("first tokens", "all positions"), words=("before the text",), never=("cache", "sliding window")
)
MOVED = Says(
    ("some tokens", "from a place", "some windows"), words=("replaced",), never=(*NEVER, "precision")
)
BETTER = Says(("all positions", "growing"), "better", words=("no log-probabilities",), never=NEVER)
SHORT: dict[str, Any] = {"lengths": (256,), "windows": 4}
TEN: dict[str, Any] = {"lengths": (256,), "windows": 10}
PAIRS = (
    Pair("temperature 0.7", EVERYWHERE, server(predicts=_tempered(0.7)), **SHORT),
    Pair("temperature 0.9", EVERYWHERE, server(predicts=_tempered(0.9)), **SHORT),
    Pair("temperature 1.5", EVERYWHERE, server(predicts=_tempered(1.5)), **SHORT),
    Pair(
        "log p of the 50 likeliest alone",
        Says(("all positions", "some tokens"), never=NEVER),
        server(predicts=_top(50)),
        **SHORT,
    ),
    Pair(
        "log p of the 500 likeliest alone",
        Says(("all positions", "some tokens"), never=NEVER),
        server(predicts=_top(500)),
        **SHORT,
    ),
    Pair(
        "log p of one digit",
        Says(("all positions", "undecided"), never=NEVER),
        server(predicts=lambda log_p: log_p.round()),
        **SHORT,
    ),
    Pair("one request in two from another prompt", SOME, server(make=mixed(2)), **SHORT),
    Pair("one request in four from another prompt", SOME, server(make=mixed(4)), lengths=(256,), windows=6),
    Pair(
        "the context is cut to 128 tokens",
        Says(("from a place", "growing"), place=128, never=("bos", "precision", "cache")),
        server(window(128)),
        **SHORT,
    ),
    Pair(
        "one token of the prompt is missing",
        Says(("from a place",), place=100, never=("bos", "precision", "cache")),
        server(reads=_dropped),
        **SHORT,
    ),
    Pair(
        "64 tokens of the prompt are blanked",
        Says(("from a place", "growing"), place=64, never=("bos", "precision", "cache")),
        server(reads=_forgets_the_middle),
        **SHORT,
    ),
    Pair(
        "tokens 100 and 101 of the prompt are swapped",
        MOVED,
        server(reads=_swaps(100, 101)),
        larger=Says(("from a place",), place=100, words=("replaced",), never=("bos", "precision")),
        **SHORT,
    ),
    Pair(
        "tokens 150 and 160 of the prompt are swapped",
        MOVED,
        server(reads=_swaps(150, 160)),
        larger=Says(("from a place",), place=150, words=("replaced",), never=("bos", "precision")),
        **SHORT,
    ),
    Pair("answers waver by 0.5 nats", Says(("unstable",)), server(make=wavers(0.5)), **SHORT),
    Pair("answers waver by 0.2 nats", Says(("unstable",)), server(make=wavers(0.2)), **SHORT),
    Pair(
        "one answer in three wavers",
        Says(("unstable", "some windows")),
        server(make=wavers(1.0, one_in=3)),
        **SHORT,
    ),
    Pair("another model answers one text in ten", SOME, replicas(noise(0.3), _one_text_in(10)), **TEN),
    Pair("another model answers one text in four", SOME, replicas(noise(0.3), _one_text_in(4)), **SHORT),
    Pair(
        "another model answers any request in ten",
        Says(("some windows", "unstable"), never=(*NEVER, "precision")),
        replicas(noise(0.3), _one_request_in(10)),
        **TEN,
    ),
    Pair("long prompts are cut on the left", CUT, server(reads=_cut_on_the_left(128)), **SHORT),
    Pair("the beginning of long prompts is cut", CUT, server(reads=_cut_on_the_left(200)), **SHORT),
    Pair("a template before every prompt", TEMPLATE, server(_begun_by(0, 40, 50, 60, 70)), **SHORT),
    Pair("logarithms to base 10", BETTER, server(predicts=lambda log_p: log_p / math.log(10)), **SHORT),
    Pair("logarithms to base 2", EVERYWHERE, server(predicts=lambda log_p: log_p / math.log(2)), **SHORT),
    Pair("log p of at least -5", BETTER, server(predicts=lambda log_p: log_p.clamp(min=-5)), **SHORT),
    Pair(
        "only tokens of the likeliest 90 %",
        Says(
            ("all positions", "some tokens", "growing"),
            "worse",
            words=("filter",),
            never=(*NEVER, "precision does"),
        ),
        server(predicts=_likeliest(0.9)),
        **SHORT,
    ),
    Pair("other weights are served", EVERYWHERE, server(noise(0.2)), **SHORT),
    Pair(
        "a prefix cache that mixes prompts, decoded",
        Says(("all positions", "some windows"), words=("prefix cache",)),
        server(read="decode=8", mixes_prompts=True),
        lengths=(128,),
        windows=2,
    ),
)
