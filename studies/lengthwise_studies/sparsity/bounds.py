"""The bounds of the sparsity paper as functions, each up to a constant that is an argument.

Notation: trained on lengths L/2 .. L with risk delta of the best hypothesis at each of them, tested at length M. A
bound that is not below the error of guessing says nothing; all are linear in delta, so what each demands of delta is
one number. They are statements "up to a constant": the default of 1 gives an order of magnitude, no guarantee.
"""

from __future__ import annotations

import math

from lengthwise.errors import UsageError
from lengthwise_studies.sparsity.planted import PositionLaw, regularity

GUESSING = 0.5
"""The error of guessing a bit."""


def theorem_bound(
    delta: float,
    *,
    train_length: int,
    test_length: int,
    eta_train: float,
    eta_test: float,
    constant: float = 1.0,
) -> float:
    """Theorem 4.3: constant * eta_L * eta_M * L * M^2 * delta."""
    return _product(constant, eta_train, eta_test, train_length, test_length**2, delta)


def improved_bound(
    delta: float,
    *,
    train_length: int,
    test_length: int,
    local: float | None = None,
    eta_train: float = 1.0,
    eta_test: float = 1.0,
    minimax: bool = True,
    constant: float = 1.0,
) -> float:
    """The rebuttal's: constant * eta_L * eta_M * (M / L_local)^2 * delta; at L_local = L/4 it is O((M/L)^2 delta).

    Args:
        delta: risk of the best hypothesis.
        train_length: L.
        test_length: M.
        local: L_local, the width of the chunks of the proof, at most L/4; L/4 where it is None.
        eta_train: eta of L; 1 under the conditions of Remark C.1.
        eta_test: eta of M.
        minimax: trained on the worst length, not on their average, which costs another factor L.
        constant: of the O.

    Raises:
        UsageError: L_local is above L/4.
    """
    local = train_length / 4 if local is None else local
    if not 0 < local <= train_length / 4:
        raise UsageError(
            f"L_local is {local:g} at a training length of {train_length}", expected="above 0, at most L/4"
        )
    averaged = 1 if minimax else train_length
    return _product(constant, eta_train, eta_test, averaged, (test_length / local) ** 2, delta)


def coupled_bound(
    delta: float,
    *,
    train_ids: int,
    test_ids: int,
    eta_train: float = 1.0,
    eta_test: float = 1.0,
    constant: float = 1.0,
) -> float:
    """Proposition 4.4, as we read it: theorem 4.3 of the problem in ids, with as many ids in place of lengths.

    The proposition's own text was not found. What is known of it: ids turn a problem that is not local into one
    that is, and the theorem then applies.
    """
    return theorem_bound(
        delta,
        train_length=train_ids,
        test_length=test_ids,
        eta_train=eta_train,
        eta_test=eta_test,
        constant=constant,
    )


def proof_etas(
    law: PositionLaw, *, train_length: int, test_length: int, local: int, k: int
) -> tuple[float, float]:
    """eta_L and eta_M of a law where the proof needs them: from L, and from M, to L - 2 L_local; each at least 1.

    Infinite where sets occur that do not fit into L - 2 L_local: without locality the theorem says nothing.
    """
    core = train_length - 2 * local
    if core < k:
        raise UsageError(
            f"L - 2 L_local is {core} at a training length of {train_length} and k = {k}",
            expected="room for k positions",
        )
    return tuple(max(1.0, regularity(law, length, core, k)) for length in (train_length, test_length))  # type: ignore[return-value]


def worst_of_average(delta: float, train_length: int) -> float:
    """The largest risk at one length of L/2 .. L if their average is delta: (L - ceil(L/2) + 1) delta.

    The factor L of theorem 4.3 has this place; it is about L/2.
    """
    return delta * (train_length - math.ceil(train_length / 2) + 1)


def needed_delta(bound_of_one: float, *, below: float = GUESSING) -> float:
    """The delta under which a bound says something, from its value at delta = 1; 0 if it never does."""
    return 0.0 if math.isinf(bound_of_one) else below / bound_of_one


def says_something(bound: float, *, below: float = GUESSING) -> bool:
    """Whether a bound is under the error of guessing."""
    return bound < below


def _product(*factors: float) -> float:
    """The product; an infinite eta makes it infinite also at delta = 0, where nothing was shown."""
    return math.inf if any(map(math.isinf, factors)) else math.prod(factors)
