"""Next-token distributions compared: of two readings, with less context, or of one side that reads again.

A row is one prediction: the distribution over the next token. `lengthwise.alignment.formulas` has the plain
formulas that these equal. Nothing here takes gradients.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lengthwise.checkpoints.head import locating_bad_logits, require_finite
from lengthwise.subjects.reading import Predictor, Read, Reading
from lengthwise.subjects.rounding import ELSEWHERE, LEAST, LEAST_ELSEWHERE, beginning
from lengthwise.subjects.rows import Rows

TOP = 64
"""Tokens of each distribution that a log keeps."""
BEYOND_ROUNDING = 3.0
"""How many times as far apart as rounding a text read alone and in a longer one must be, to depend on the length."""


Distributions = tuple[Tensor, Tensor, Tensor, Tensor]
"""Next-token distributions of N rows: log p and p [N, V], entropies [N] (nats), most likely tokens [N]."""


def distributions(logits: Tensor) -> Distributions:
    """From logits [N, V]; NonFiniteLogits for NaN or an infinity in a row."""
    log_p = logits.log_softmax(dim=-1)
    p = log_p.exp()
    entropy = -(p * log_p).sum(dim=-1)
    require_finite(entropy)
    # Twice as fast as argmax on a CPU.
    return log_p, p, entropy, log_p.max(dim=-1).indices


def compare(a: Distributions, b: Distributions) -> Tensor:
    """Jeffreys and Jensen-Shannon divergence (nats) and whether the top tokens are the same, row by row: [3, N].

    With p of `a`, q of `b` and d = log p - log q, Jeffreys is sum_v (p_v - q_v) d_v = KL(p||q) + KL(q||p); no
    term is negative, so a small value keeps its digits. Jensen-Shannon with m = (p + q) / 2 needs one softplus,
    because log m - log p = softplus(-d) - log 2 and log m - log q = that + d.
    """
    (log_p, p, _, top), (log_q, q, _, other_top) = a, b
    difference = log_p - log_q
    jeffreys = ((p - q) * difference).sum(dim=-1)
    mixture = torch.nn.functional.softplus(-difference).sub_(math.log(2))
    js = ((p + q) * mixture + q * difference).sum(dim=-1) / -2
    return torch.stack([jeffreys, js, (top == other_top).to(js.dtype)])


@torch.no_grad()
def in_step(
    a: Rows,
    b: Rows,
    labels: NDArray[np.integer],
    scores: Callable[[Tensor, Tensor], Sequence[Tensor]],
    *,
    first: int = 0,
    other: int = 0,
) -> Tensor:
    """Losses of both, and `scores`, of rows that predict the same tokens, a few at a time: fp64 [N, 2 + C].

    Args:
        a, b: the rows from `first` of `a` on, and from `other` of `b` on, are compared.
        labels: [N], the tokens that follow them, at least one.
        scores: (log p, log q) [n, V] of the tokens that both name -> C times [n].
        first, other: the first rows.

    Raises:
        NonFiniteLogits: a number is NaN or infinite; its position is the row of `a`, its view 0 for a, 1 for b.
    """
    targets = torch.from_numpy(np.array(labels, dtype=np.int64))[:, None]
    parts = []
    for some in a.chunks(first, first + len(targets)):
        begin, end = some.start - first, some.stop - first
        with locating_bad_logits(some.start):
            both = a.log_p(some), b.log_p(slice(other + begin, other + end))
            own = [-each.gather(1, targets[begin:end].to(each.device))[:, 0] for each in both]
            # A vocabulary may be padded on one side.
            p, q = (each[:, : min(one.shape[1] for one in both)] for each in both)
            found = torch.stack([each.cpu().double() for each in (*own, *scores(p, q.to(p)))], dim=1)
            if not bool(found.isfinite().all()):
                for side, log_p in enumerate(both):
                    with locating_bad_logits(view=side):
                        require_finite(log_p)
            require_finite(found)
        parts.append(found)
    return torch.cat(parts)


def jeffreys(p: Tensor, q: Tensor) -> list[Tensor]:
    """KL(p || q) + KL(q || p) of each row, from log p and log q [N, V]."""
    return [((p.exp() - q.exp()) * (p - q)).sum(dim=-1)]


def kl_and_top(p: Tensor, q: Tensor) -> list[Tensor]:
    """KL(p || q) of each row, and whether both have the same most likely token, from log p and log q [N, V]."""
    return [(p.exp() * (p - q)).sum(dim=1), p.max(dim=1).indices == q.max(dim=1).indices]


@torch.no_grad()
def apart(
    a: Read, b: Read, labels: NDArray[np.integer], *, first: int = 0
) -> tuple[list[NDArray[np.float64]], bool]:
    """How far two readings of the same tokens are apart; `labels` [N] are the tokens after the rows from `first` on.

    Returns:
        -log p of the labels of both; where both name other tokens too, KL(first || second) and whether the likeliest
        token is the same: [N] each, nats, on the CPU. And whether KL is a lower bound. It is exact where both sides
        have rows. From their likeliest tokens alone it is the sum over those that both name, with all others as one
        token, which is never more.

    Raises:
        NonFiniteLogits: a number is NaN or infinite; its position is the row, its view 0 for a, 1 for b.
    """
    if a.rows is not None and b.rows is not None:
        found = in_step(a.rows, b.rows, labels, kl_and_top, first=first, other=first)
        return [*found.T.numpy()], False
    one, two = (numbers_of(each, labels, first=first) for each in (a, b))
    found = [one.losses, two.losses]
    for side, losses in enumerate(found):
        with locating_bad_logits(view=side):
            require_finite(losses, first)
    if one.likeliest is not None and two.likeliest is not None:
        found += _bounded(one.likeliest, two.likeliest)
    require_finite(torch.stack(found, dim=1), first)
    return [each.numpy() for each in found], len(found) > 2


@torch.no_grad()
def numbers_of(read: Read, labels: NDArray[np.integer], *, first: int = 0) -> Read:
    """The losses of the rows from `first` on, and their `TOP` likeliest tokens, of a reading that has rows."""
    if read.rows is None:
        return read
    targets, parts = torch.from_numpy(np.array(labels, dtype=np.int64))[:, None], []
    for some in read.rows.chunks(first, first + len(targets)):
        log_p = read.rows.log_p(some)
        own = -log_p.gather(1, targets[some.start - first : some.stop - first].to(log_p.device))[:, 0]
        best = log_p.topk(min(TOP, log_p.shape[1]))
        parts.append([own.cpu().double(), best.indices.cpu(), best.values.cpu()])
    losses, ids, log_p = (torch.cat(each) for each in zip(*parts, strict=True))
    return Read(losses=losses, likeliest=(ids, log_p))


def losses_of(read: Read, labels: NDArray[np.integer], *, first: int = 0) -> Tensor:
    """-log p of the labels after the rows from `first` on, fp64 on the CPU."""
    return read.losses[: len(labels)] if read.rows is None else read.rows.losses(labels, first=first)


def _bounded(a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor]) -> list[Tensor]:
    """The lower bound of KL from the likeliest tokens of both sides, and whether the first are the same."""
    (ids, p), (others, q) = ((names, values.double()) for names, values in (a, b))
    match = ids[:, :, None] == others[:, None, :]
    known = match.any(dim=2)
    # log q of the tokens that the first side names, where the second names them too.
    q_of = torch.where(match, q[:, None, :], 0.0).sum(dim=2)
    found = torch.where(known, p.exp() * (p - q_of), 0.0).sum(dim=1)
    rest_p, rest_q = (1 - torch.where(known, each.exp(), 0.0).sum(dim=1) for each in (p, q_of))
    rest_p, rest_q = rest_p.clamp(min=1e-12), rest_q.clamp(min=1e-12)
    kl = (found + rest_p * (rest_p / rest_q).log()).clamp(min=0)
    return [kl, (ids[:, 0] == others[:, 0]).double()]


def kept(read: Read, labels: NDArray[np.integer], *, first: int = 0) -> dict[str, str]:
    """A reading as a record of a log: losses as float32, likeliest tokens as int32 and float32, each in base64.

    NonFiniteLogits if a loss is NaN or infinite; its position is the row.
    """
    found = numbers_of(read, labels, first=first)
    require_finite(found.losses, first)
    record = {"losses": _packed(found.losses, np.float32)}
    if found.likeliest is not None:
        ids, log_p = found.likeliest
        record |= {"top_ids": _packed(ids, np.int32), "top_log_p": _packed(log_p, np.float32)}
    return record


def read_kept(record: dict[str, str]) -> Read:
    """The reading of a record that `kept` made."""
    losses = _unpacked(record["losses"], np.float32).double()
    if "top_ids" not in record:
        return Read(losses=losses)
    ids, log_p = _unpacked(record["top_ids"], np.int32), _unpacked(record["top_log_p"], np.float32).double()
    return Read(losses=losses, likeliest=(ids.view(len(losses), -1), log_p.view(len(losses), -1)))


def _packed(values: Tensor, kind: Any) -> str:
    return base64.b64encode(values.numpy().astype(kind).tobytes()).decode()


def _unpacked(text: str, kind: Any) -> Tensor:
    return torch.from_numpy(np.frombuffer(base64.b64decode(text), dtype=kind).copy())


def own_rounding(
    model: Predictor, reading: Reading, read: Read, edges: Sequence[int], *, dtype: str | None = None
) -> dict[str, Any] | None:
    """How far a side is from itself where rounding alone should differ: sums of |d| by bin, tokens, the largest.

    A text is read again alone and shorter. What differs then may be no rounding: a side may predict the same tokens
    otherwise when more text follows, and the same again when it reads the same. That is `by_length`, in nats per
    token, and the rounding is that of the short text. The rows from `edges[0]` on count.
    """
    floor = _worst(model.again(reading, read, dtype=dtype), reading, edges)
    short = beginning(reading)
    if floor is None or len(short.tokens) == len(reading.tokens):
        return floor
    (alone,) = model.read([short])
    longer = _worst([(alone, read)], short, edges)
    least = ELSEWHERE if model.dtype is None else LEAST.get(dtype or model.dtype, LEAST_ELSEWHERE)
    if longer is None or _mean(longer) < max(BEYOND_ROUNDING * least, _mean(floor) / 2):
        return floor
    # A text that is read again as long as it is.
    while len(beginning(short).tokens) < len(short.tokens):
        short = beginning(short)
    own = _worst(model.again(short, *model.read([short]), dtype=dtype), short, edges)
    if own is None or _mean(longer) < BEYOND_ROUNDING * _mean(own):
        return floor
    (twice,) = model.read([reading])
    again = _worst([(twice, read)], reading, edges)
    # A side that does not repeat itself says nothing about lengths.
    if again is None or _mean(again) > _mean(longer) / BEYOND_ROUNDING:
        return floor
    return {**own, "by_length": _mean(longer)}


def _worst(
    pairs: Sequence[tuple[Read, Read]], reading: Reading, edges: Sequence[int]
) -> dict[str, Any] | None:
    """How far the two of a pair are apart, in the worst of the pairs; None without a pair."""
    found = []
    for pair in pairs:
        # What a prefix cache changes is found apart, beside this floor.
        one, other = (each if each.cold is None else replace(each, losses=each.cold) for each in pair)
        shortest = min(len(each.rows) - edges[0] if each.rows else len(each.losses) for each in (one, other))
        labels = reading.labels[:shortest]
        losses = [losses_of(each, labels, first=edges[0]) for each in (one, other)]
        apart = np.abs((losses[1] - losses[0]).numpy())
        begins = [edge - edges[0] for edge in edges if edge - edges[0] < shortest]
        tokens = np.diff([*begins, shortest]).tolist()
        sums = np.add.reduceat(apart, begins).tolist()
        found.append({"sums": sums, "tokens": tokens, "largest": float(apart.max())})
    return max(found, key=lambda each: sum(each["sums"]), default=None)


def _mean(floor: dict[str, Any]) -> float:
    return sum(floor["sums"]) / sum(floor["tokens"])
