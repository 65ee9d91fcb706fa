from __future__ import annotations

import pytest

from lengthwise.errors import UsageError
from lengthwise.positions.rope.longrope_evolution import (
    STARTS,
    Factors,
    SearchSettings,
    search_factors,
    start_factors,
)

BEST = (1.0, 1.0, 1.3, 1.9, 2.2, 3.1, 3.9, 4.4)
SETTINGS = SearchSettings(population=24, iterations=30)


def distance(factors: Factors) -> float:
    return sum((a - b) ** 2 for a, b in zip(factors, BEST, strict=True))


def starts() -> dict[str, Factors]:
    return start_factors(10000.0, 16, 4096, 4.0)


def test_the_starts_are_other_methods_as_factors() -> None:
    found = starts()
    assert set(found) == set(STARTS)
    assert found["pi"] == pytest.approx((4.0,) * 8)
    assert found["ntk"] == pytest.approx([4 ** (k / 7) for k in range(8)], abs=1e-4)
    assert found["yarn"][0] == 1
    assert found["yarn"][-1] == pytest.approx(4)
    assert all(factors == tuple(sorted(factors)) for factors in found.values())


def test_it_comes_close_to_a_known_best_and_says_where_it_began() -> None:
    found = search_factors(distance, starts(), largest=5.0, settings=SETTINGS)
    assert found.loss == distance(found.factors)
    assert found.starts == {name: distance(factors) for name, factors in starts().items()}
    assert found.loss < 0.1 * min(found.starts.values())


def test_every_candidate_is_in_order_within_bounds_and_asked_once() -> None:
    asked: list[Factors] = []

    def loss(factors: Factors) -> float:
        asked.append(factors)
        return distance(factors)

    search_factors(loss, starts(), largest=5.0, settings=SETTINGS)
    assert len(asked) == len(set(asked)) <= SETTINGS.evaluations
    assert len(asked) > 0.8 * SETTINGS.evaluations
    for factors in asked:
        assert factors == tuple(sorted(factors))
        assert factors[0] >= 1
        assert factors[-1] <= 5


def test_a_seed_is_a_search() -> None:
    one, same, other = (
        search_factors(distance, starts(), largest=5.0, settings=SETTINGS, seed=seed) for seed in (1, 1, 2)
    )
    assert one == same
    assert one.factors != other.factors


def test_without_generations_it_is_the_best_of_the_starts() -> None:
    settings = SearchSettings(population=len(STARTS), iterations=0)
    found = search_factors(distance, starts(), largest=5.0, settings=settings)
    assert found.loss == min(found.starts.values())


def test_impossible_settings() -> None:
    for wrong in ({"population": 2}, {"parents": 1}, {"iterations": -1}, {"mutation_rate": 0.0}):
        [(name, value)] = wrong.items()
        with pytest.raises(UsageError, match=f"{name} = {value}"):
            SearchSettings(**wrong)  # type: ignore[arg-type]
