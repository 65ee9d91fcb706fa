"""LongRoPE's evolutionary search for one factor per frequency (Ding et al. 2024, Sec. 3.2)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate

from lengthwise.errors import require
from lengthwise.positions import rope_method
from lengthwise.positions.rope.plain_rope import plain_frequencies

STARTS = ("pi", "ntk", "yarn")
"""Methods whose frequencies, as factors, the search starts from."""

Factors = tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """The budget of the search; the defaults are those of the released code."""

    population: int = 64
    """Candidates of the first generation: the starting points and their mutations."""
    iterations: int = 40
    """Generations after the first."""
    parents: int = 32
    """The best candidates so far, from which the next generation is made."""
    mutations: int = 16
    """Children of one parent in each generation."""
    crossovers: int = 16
    """Children of two parents in each generation."""
    mutation_rate: float = 0.3
    """Share of the factors that a mutation draws anew."""

    def __post_init__(self) -> None:
        least = {"population": len(STARTS), "iterations": 0, "parents": 2, "mutations": 0, "crossovers": 0}
        for name, bound in least.items():
            require(getattr(self, name) >= bound, f"{name} = {getattr(self, name)}", f"{bound} or more")
        require(0 < self.mutation_rate <= 1, f"mutation_rate = {self.mutation_rate}", "above 0, at most 1")

    @property
    def evaluations(self) -> int:
        """Largest number of losses that are computed."""
        return self.population + self.iterations * (self.mutations + self.crossovers)


@dataclass(frozen=True)
class Found:
    """The best factors, their loss, and the losses of the starts by name."""

    factors: Factors
    loss: float
    starts: dict[str, float]


def start_factors(theta: float, head_dim: int, original_length: int, factor: float) -> dict[str, Factors]:
    """Other methods' frequencies as factors lambda_k = w_k / w'_k, by name."""
    plain = plain_frequencies(theta, head_dim)
    found = {}
    for name in STARTS:
        frequencies, _ = rope_method(name).inverse_frequencies(theta, head_dim, original_length, factor)
        found[name] = _in_order((plain / frequencies).tolist())
    return found


def search_factors(
    loss: Callable[[Factors], float],
    starts: Mapping[str, Factors],
    *,
    largest: float,
    settings: SearchSettings = SearchSettings(),
    seed: int = 0,
) -> Found:
    """The factors of least loss that evolution finds; never worse than the best start.

    Factors lie between 1 and `largest` and do not fall with k (the paper's "monotonically non-decreasing"
    constraint). The best candidates of all generations are the parents of the next. The same seed and losses
    give the same result.

    Args:
        loss: of a candidate; called once for each.
        starts: candidates by name, each of d/2 factors that do not fall.
        largest: bound of the factors; 1.25 s in the released code.
        settings: the budget.
        seed: of all draws.
    """
    rng = random.Random(seed)
    losses: dict[Factors, float] = {}

    def evaluate(candidates: Iterable[Factors]) -> None:
        for candidate in candidates:
            if candidate not in losses:
                losses[candidate] = loss(candidate)

    def mutated(candidate: Factors) -> Factors:
        return _mutated(candidate, rng, largest, settings.mutation_rate)

    first = list(starts.values())
    evaluate(first)
    evaluate(mutated(rng.choice(first)) for _ in range(settings.population - len(first)))
    for _ in range(settings.iterations):
        parents = sorted(losses, key=lambda each: losses[each])[: settings.parents]
        evaluate(mutated(rng.choice(parents)) for _ in range(settings.mutations))
        pairs = [rng.sample(parents, 2) for _ in range(settings.crossovers)]
        evaluate(_crossed(one, other, rng) for one, other in pairs)
    best = min(losses, key=lambda each: losses[each])
    return Found(best, losses[best], {name: losses[factors] for name, factors in starts.items()})


def _mutated(candidate: Factors, rng: random.Random, largest: float, rate: float) -> Factors:
    """Some factors drawn anew between their neighbours, so that the order stays."""
    factors = [1.0, *candidate, largest]
    for k in range(1, len(factors) - 1):
        if rng.random() < rate:
            factors[k] = rng.uniform(factors[k - 1], max(factors[k - 1], factors[k + 1]))
    return _in_order(factors[1:-1])


def _crossed(one: Factors, other: Factors, rng: random.Random) -> Factors:
    """Each factor from one of two parents; where the order breaks, the greatest so far."""
    return _in_order(rng.choice(pair) for pair in zip(one, other, strict=True))


def _in_order(factors: Iterable[float]) -> Factors:
    """Four digits, 1 or more, none below the one before."""
    return tuple(accumulate((max(1.0, round(each, 4)) for each in factors), max))
