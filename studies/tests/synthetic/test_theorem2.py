"""Theorem 2: every number of the theory, by enumeration, by closed form and by brute force."""

import itertools
import math
from statistics import fmean

import pytest
import torch
from torch import Tensor

from lengthwise_studies import theorem2_check as theorem2
from lengthwise_studies.synthetic.reparameterization import FUNCTIONS, best_constant, constant_error
from lengthwise_studies.synthetic.tasks import LENGTH
from lengthwise_studies.theorem2_check import TASKS, measured_errors, train_tables

L = 10
TESTED = (20, 35, 50)
FULL, RANK_ONE = theorem2.full_minimum, theorem2.rank_one_minimum


def a(*rows: tuple[float, float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def error(task: str, table: Tensor, length: int) -> float:
    return theorem2.error(task, table, length).item()


def loss(task: str, table: Tensor, longest: int = L) -> float:
    return theorem2.objective(task, table, longest).item()


def brute_force(task: str, table: Tensor, length: int) -> float:
    """The error from all 2^length strings, one by one."""
    total = 0.0
    for bits in itertools.product((0, 1), repeat=length):
        g = sum(table[bits[-1], bit].item() for bit in bits) / length
        y = {"length": length, "sum": sum(bits), "mean": sum(bits) / length}[task]
        total += (g - y) ** 2
    return total / 2**length


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("length", [1, 2, 6])
def test_enumeration_by_counts_equals_all_strings(task, length):
    table = a((0.3, -1.7), (2.2, 4.1))
    assert error(task, table, length) == pytest.approx(brute_force(task, table, length), rel=1e-13)


@pytest.mark.parametrize("task", TASKS)
def test_minima_are_minima(task):
    """No small step from them lowers the objective, with rank 1 kept where it is demanded."""
    generator = torch.Generator().manual_seed(0)
    full, rank_one = FULL(task, L), RANK_ONE(task, L)
    kappa = rank_one[rank_one[:, 1].abs().argmax()]
    q = rank_one[:, 1] / kappa[1]
    assert torch.linalg.det(rank_one).item() == pytest.approx(0, abs=1e-9)
    assert loss(task, full) <= loss(task, rank_one) + 1e-12
    # The constant (L + 1) / 2 for the length, and the mean itself.
    known = {"length": (L**2 - 1) / 12, "mean": 0}
    assert loss(task, rank_one) == pytest.approx(known.get(task, loss(task, rank_one)), abs=1e-9)

    def steps(*shape: int) -> Tensor:
        return 0.01 * torch.randn(50, *shape, generator=generator, dtype=torch.float64)

    assert (theorem2.objective(task, full + steps(2, 2), L) >= loss(task, full) - 1e-12).all()
    tables = (q + steps(2)).unsqueeze(2) * (kappa + steps(2)).unsqueeze(1)
    assert (theorem2.objective(task, tables, L) >= loss(task, rank_one) - 1e-12).all()


def test_the_papers_gamma_and_loss():
    # At l_test = l_train the printed order of the error is 0.
    assert error("length", theorem2.ansatz("length", L), L) == 20.25
    # 2 H / L tends to 0, so the "2 + const" of Eq. 20 is 2 in the limit.
    assert theorem2.paper_gamma("sum", 10**5) / ((10**5 + 3) / 2) == pytest.approx(1, abs=2e-4)


@pytest.mark.parametrize("longest", [2, 10, 33])
def test_the_papers_gamma_is_the_best_of_its_own_ansatz(longest):
    gamma = theorem2.paper_gamma("sum", longest)
    near = [loss("sum", a(*[(0, gamma + step)] * 2), longest) for step in (-1e-3, 0, 1e-3)]
    assert near[1] < min(near[0], near[2])


def test_the_printed_sum_error_is_twice_the_error_of_its_own_table():
    for length in (1, 2, 11, *TESTED):
        exact = error("sum", theorem2.ansatz("sum", L), length)
        assert theorem2.corrected_error("sum", L, length) == pytest.approx(exact, rel=1e-12)
        assert theorem2.printed_error("sum", L, length) == pytest.approx(2 * exact, rel=1e-12)


def test_the_sum_ansatz_is_not_the_minimiser():
    best = theorem2.equal_queries_minimum("sum", L)
    equal = loss("sum", best)
    for step in ((1e-3, 0), (-1e-3, 0), (0, 1e-3), (0, -1e-3)):
        assert loss("sum", best + a(step, step)) > equal
    assert loss("sum", RANK_ONE("sum", L)) < equal < loss("sum", theorem2.ansatz("sum", L))


def test_a_second_head_dimension_leaks_the_length():
    assert loss("length", FULL("length", L)) < loss("length", RANK_ONE("length", L)) - 1
    for length in (2, 5, 40):
        last, ones, probabilities = theorem2.strings(length)
        same = torch.where(last == 1, ones, length - ones) / length
        assert (probabilities * same).sum().item() == pytest.approx(0.5 + 1 / (2 * length), rel=1e-12)


def test_the_printed_constant_of_the_perturbed_mean():
    epsilon = 0.1
    table = a(*[(0, 1 + epsilon)] * 2)
    for length in (1, 10, 50):
        exact = error("mean", table, length)
        assert (length + 1) / (4 * length) * epsilon**2 == pytest.approx(exact, rel=1e-12)
        assert exact <= epsilon**2, "the inequality of Eq. 23 holds"
    # Read as q''kappa'' = 1 + eps, zeros would count like ones.
    assert error("mean", a(*[(1.1, 1.1)] * 2), 10) > 0.25
    assert error("mean", table, 10) == pytest.approx(0.00275, rel=1e-12), "printed: 0.0055"


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("minimum", [FULL, RANK_ONE])
def test_growth_is_between_its_bounds(task, minimum):
    found = minimum(task, L)
    largest = found.abs().max().item()
    for length in (1, 5, 11, 20, 50, 200):
        low, high = theorem2.growth_bounds(task, largest, length)
        assert low - 1e-12 <= error(task, found, length) <= high
    if task != "mean":
        # Quadratic: four times the error at twice the length, in the limit.
        assert error(task, found, 400) / error(task, found, 200) == pytest.approx(4, rel=0.08)


@pytest.mark.parametrize(
    ("name", "forward", "inverse"),
    [
        ("identity", lambda y: y, lambda z: z),
        ("sqrt", math.sqrt, lambda z: z**2),
        ("log", math.log, math.exp),
        ("1/sqrt", lambda y: y**-0.5, lambda z: z**-2),
        ("1/x", lambda y: 1 / y, lambda z: 1 / z),
        ("1/log(x+1)", lambda y: 1 / math.log(y + 1), lambda z: math.exp(1 / z) - 1),
    ],
)
def test_a_compressing_function_lowers_the_transformed_error_and_raises_the_real_one(name, forward, inverse):
    """In units of length, every f but the identity is worse than no f."""
    function = FUNCTIONS[name]
    gamma = fmean(forward(length) for length in range(1, L + 1))
    fitted = best_constant(LENGTH, function, train_length=L)
    assert fitted == pytest.approx(gamma, rel=1e-6)
    assert function.inverse(torch.tensor(fitted)).item() == pytest.approx(inverse(gamma), rel=1e-4)
    for length in TESTED:
        original, transformed = constant_error(LENGTH, function, train_length=L, length=length)
        assert original == pytest.approx((inverse(gamma) - length) ** 2, rel=1e-4)
        assert transformed == pytest.approx((gamma - forward(length)) ** 2, rel=1e-4)
        if name != "identity":
            assert transformed < (5.5 - length) ** 2 < original


@pytest.mark.parametrize(
    ("name", "steepest"),
    [("sqrt", 1 / 2), ("log", 1), ("1/sqrt", 1 / 2), ("1/x", 1), ("1/log(x+1)", 1 / (2 * math.log(2) ** 2))],
)
def test_not_every_function_is_a_contraction_as_the_rebuttal_asks(name, steepest):
    """On [1, inf) the slope of 1/log(x+1) is over 1 near 1; between whole numbers every f brings values closer."""
    y = torch.linspace(1, 50, 100_001, dtype=torch.float64)
    slopes = (FUNCTIONS[name].forward(y).diff() / y.diff()).abs()
    assert slopes.max().item() == pytest.approx(steepest, rel=1e-3)
    whole = FUNCTIONS[name].forward(torch.arange(1, 51, dtype=torch.float64))
    assert whole.diff().abs().max() < 1


def test_the_conditions_of_a_single_length_are_not_necessary_at_length_one():
    """Eq. 13 and 16 say "if and only if"; a string of one bit is attended to by itself alone."""
    assert error("length", a((1, 0.5), (2, 1)), 1) == 0, "rank 1 with q' and q'' that differ"
    assert error("sum", a((0, 0), (3, 1)), 1) == 0, "q'' = 0, kappa'' not 0"
    for length in (2, 3):
        assert error("length", a((1, 0.5), (2, 1)), length) > 0.1


def test_sampled_errors_are_the_exact_ones():
    tables = torch.stack([a((0.3, -1.7), (2.2, 4.1)), a((0, 1), (0, 1))])
    lengths = (1, 2, 9)
    for task in TASKS:
        measured = measured_errors(task, tables, lengths, samples=40_000)
        exact = torch.stack([theorem2.error(task, tables, length) for length in lengths], dim=1)
        assert torch.allclose(measured, exact, rtol=0.03, atol=1e-12)


@pytest.mark.parametrize(("rank", "minimum"), [(1, RANK_ONE), (2, FULL)])
def test_training_on_samples_comes_close_to_the_minimum_but_not_below(rank, minimum):
    best = loss("sum", minimum("sum", 4), 4)
    tables = train_tables("sum", 4, seeds=[0, 1], rank=rank, steps=800, batch=128)
    assert not tables.requires_grad
    least = theorem2.objective("sum", tables, 4).min().item()
    assert best - 1e-12 <= least <= best * 1.02
    if rank == 1:
        assert torch.linalg.det(tables).abs().max() < 1e-9
