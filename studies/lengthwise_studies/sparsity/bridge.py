"""The tokens of real text that `influence` examined, grouped by what they need of the distant context.

Jeffreys, token by token, is compared with the gain from distant context, the number of tokens needed, and LongPPL's
key tokens. Changes by training are grouped by what the model needs for a token before training.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lengthwise.measure.influence import ENOUGH
from lengthwise.measure.statistics import Statistic, expanded_tail
from lengthwise.report.tables import Cell, Estimate, Table
from lengthwise.results import Row
from lengthwise.samples import SampleLog
from lengthwise_studies.claims import FAILS, HOLDS, NOT_DECIDED, Decision

FEW = 4
"""A prediction is sparse if so many distant tokens, or fewer, are enough for it."""
NO_GAIN, SPARSE, DENSE = "no gain", "far and sparse", "far and dense"
GROUPS = (NO_GAIN, SPARSE, DENSE)
KEY_GAIN, KEY_LOSS = 2.0, 2.0
"""LongPPL's key tokens gain more than the first and have a loss below the second, in nats."""
FEWEST_DOCUMENTS = 8
"""Intervals over fewer are too rough for a verdict."""
TOO_FEW = f"{NOT_DECIDED}: fewer than {FEWEST_DOCUMENTS} documents"
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


def tokens_of(samples: SampleLog, kept: Sequence[int]) -> list[Token]:
    """Every examined token of a run of `influence`, by sample; `kept` are the k of the run, in any order."""
    sizes, found = sorted(set(kept)), []
    for key in sorted(samples):
        record = samples[key]
        chosen = {target["position"]: target["losses"]["greedy"] for target in record["targets"]}
        for place, long, short, jeffreys in record["examined"]:
            needed = None
            if place in chosen:
                enough = ENOUGH * (short - long)
                losses = zip(sizes, chosen[place], strict=True)
                needed = next((float(k) for k, loss in losses if short - loss >= enough), math.inf)
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


def rank_correlation_by_document(
    x: Sequence[float], y: Sequence[float], documents: Sequence[str]
) -> Estimate:
    """Spearman's rho of tokens with a 95 % interval, whole documents resampled; none for fewer than three."""
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
        return Estimate(None, signed=True)
    rng = np.random.default_rng(0)
    drawn = [
        rho(np.concatenate([parts[index] for index in rng.integers(len(parts), size=len(parts))], axis=1))
        for _ in range(_RESAMPLES if len(parts) > 2 else 0)
    ]
    defined = [each for each in drawn if not math.isnan(each)]
    if len(defined) < 0.95 * len(drawn) or not defined:
        return Estimate(value, signed=True)
    tail = expanded_tail(len(parts))
    low, high = np.quantile(defined, [tail, 1 - tail])
    return Estimate(value, float(low), float(high), signed=True)


def rank_table(tokens: Sequence[Token]) -> Table:
    """Does Jeffreys go with what a token gains from distant context, and with what it needs of it?"""
    tried = [token for token in tokens if token.needed is not None]
    pairs: list[tuple[str, Sequence[Token], Callable[[Token], float]]] = [
        ("gain from distant context", tokens, lambda token: token.gain),
        ("size of the gain, |gain|", tokens, lambda token: abs(token.gain)),
        ("loss with near context", tokens, lambda token: token.short),
        ("distant tokens needed (targets)", tried, lambda token: token.needed or 0.0),
        ("being a key token of LongPPL", tokens, lambda token: float(token.is_key)),
    ]
    rows: list[list[Cell]] = []
    for name, some, value in pairs:
        jeffreys, documents = [one.jeffreys for one in some], [one.document for one in some]
        rows.append(
            [name, rank_correlation_by_document(jeffreys, list(map(value, some)), documents), len(some)]
        )
    keys = sum(token.is_key for token in tokens)
    return Table(
        columns=["Jeffreys against", "Spearman's rho [95 % interval]", "tokens"],
        rows=rows,
        caption="Rank correlation over tokens, documents resampled",
        notes=[f"{keys} of {len(tokens)} examined tokens are key tokens."],
    )


def decided(
    ours: str,
    rows: Sequence[Row],
    holds: Callable[[list[tuple[float, float]]], bool],
    fails: Callable[[list[tuple[float, float]]], bool],
    words: tuple[str, str] = (HOLDS, FAILS),
) -> Decision:
    """A verdict from the intervals of these rows; none where one has no interval, or one over few documents."""
    ends = [(row.ci_low, row.ci_high) for row in rows if row.ci_low is not None and row.ci_high is not None]
    if len(ends) < len(rows) or min(row.documents or 0 for row in rows) < FEWEST_DOCUMENTS:
        return ours, TOO_FEW
    return ours, words[0] if holds(ends) else words[1] if fails(ends) else NOT_DECIDED
