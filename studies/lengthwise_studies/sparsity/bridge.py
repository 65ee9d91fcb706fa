"""The bridge between the two papers: does disagreement fall where predictions are sparse and local?

On real text, the tokens that `influence` examined are grouped by what they need of the distant context.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lengthwise.measure.influence import ENOUGH
from lengthwise.measure.statistics import Statistic, expanded_tail
from lengthwise.results import Row

FEW = 4
"""A prediction is sparse if so many distant tokens, or fewer, are enough for it."""
NO_GAIN, SPARSE, DENSE = "no gain", "far and sparse", "far and dense"
GROUPS = (NO_GAIN, SPARSE, DENSE)
KEY_GAIN, KEY_LOSS = 2.0, 2.0
"""LongPPL's key tokens gain more than the first and have a loss below the second, in nats."""
_RESAMPLES = 1000


@dataclass(frozen=True)
class Token:
    """One examined token; losses in nats. `needed`: the fewest kept tokens that are enough, inf; None if untried."""

    document: str
    key: str
    place: int
    long: float
    short: float
    jeffreys: float
    needed: float | None

    @property
    def gain(self) -> float:
        """What distant context is worth to it."""
        return self.short - self.long

    @property
    def is_key(self) -> bool:
        """Whether LongPPL would count it, by its thresholds."""
        return self.gain > KEY_GAIN and self.long < KEY_LOSS


def tokens_of(
    samples: Mapping[str, dict[str, Any]] | Any, kept: Sequence[int], *, keys: Iterable[str]
) -> list[Token]:
    """Every examined token of these samples of `influence`; `kept` are the k of the run."""
    found = []
    for key in keys:
        record = samples[key]
        chosen = {target["position"]: target["losses"]["greedy"] for target in record["targets"]}
        for place, long, short, jeffreys in record["examined"]:
            needed = None
            if place in chosen:
                fits = [
                    k
                    for k, loss in zip(kept, chosen[place], strict=True)
                    if short - loss >= ENOUGH * (short - long)
                ]
                needed = float(fits[0]) if fits else math.inf
            found.append(Token(record["document"], key, place, long, short, jeffreys, needed))
    return found


def group_of(token: Token, threshold: float) -> str | None:
    """What the token needs of the distant context; None if it gains and was not tried."""
    if token.gain <= threshold:
        return NO_GAIN
    if token.needed is None:
        return None
    return SPARSE if token.needed <= FEW else DENSE


def mean_of(name: str, pairs: Sequence[tuple[str, float]], **place: Any) -> Statistic:
    """The mean of values by document, as a number of the task "bridge"."""
    row = Row(task="bridge", metric=name, value=None, n=len(pairs), **place)
    return Statistic.of(row, [(document, (value, 1.0)) for document, value in pairs])


def forgotten(
    tokens: Sequence[Token], control: Sequence[Token], start: Sequence[Token], threshold: float, **place: Any
) -> list[Statistic]:
    """Loss with all context of `tokens` minus that of the control, on the same tokens, by what `start` needs.

    Last comes "far and sparse" minus "no gain": whether the arm forgets these tokens in particular.
    """
    changes: dict[str, list[tuple[str, float]]] = {group: [] for group in GROUPS}
    for one, other, before in zip(tokens, control, start, strict=True):
        assert (one.key, one.place) == (other.key, other.place) == (before.key, before.place)
        group = group_of(before, threshold)
        if group is not None:
            changes[group].append((one.document, one.long - other.long))
    found = [mean_of("forgotten", pairs, bucket=group, **place) for group, pairs in changes.items() if pairs]
    if changes[SPARSE] and changes[NO_GAIN]:
        totals = [(name, (value, 1.0, 0.0, 0.0)) for name, value in changes[SPARSE]]
        totals += [(name, (0.0, 0.0, value, 1.0)) for name, value in changes[NO_GAIN]]
        row = Row(task="bridge", metric="forgotten_more", value=None, n=len(changes[SPARSE]), **place)
        found.append(Statistic.of(row, totals, estimator=_difference))
    return found


def _difference(totals: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(invalid="ignore", divide="ignore"):
        return totals[:, 0] / totals[:, 1] - totals[:, 2] / totals[:, 3]


@dataclass(frozen=True)
class Rank:
    """Spearman's rho with a 95 % interval over documents; None where it is undefined."""

    value: float | None
    low: float | None
    high: float | None
    n: int


def rank_correlation_by_document(x: Sequence[float], y: Sequence[float], documents: Sequence[str]) -> Rank:
    """Spearman's rho of tokens, whole documents resampled; no interval for fewer than three."""
    from scipy.stats import rankdata

    def rho(pairs: NDArray[np.float64]) -> float:
        ranks = rankdata(pairs, axis=1)
        if pairs.shape[1] < 3 or (np.ptp(ranks, axis=1) == 0).any():
            return math.nan
        return float(np.corrcoef(ranks)[0, 1])

    pairs = np.array([x, y], dtype=np.float64)
    names = np.array(documents)
    parts = [pairs[:, names == name] for name in sorted(set(documents))]
    value = rho(pairs)
    if math.isnan(value):
        return Rank(None, None, None, len(x))
    rng = np.random.default_rng(0)
    drawn = [
        rho(np.concatenate([parts[index] for index in rng.integers(len(parts), size=len(parts))], axis=1))
        for _ in range(_RESAMPLES if len(parts) > 2 else 0)
    ]
    defined = [each for each in drawn if not math.isnan(each)]
    if len(defined) < 0.95 * len(drawn) or not defined:
        return Rank(value, None, None, len(x))
    tail = expanded_tail(len(parts))
    low, high = np.quantile(defined, [tail, 1 - tail])
    return Rank(value, float(low), float(high), len(x))
