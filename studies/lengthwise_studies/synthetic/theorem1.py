"""Theorem 1 (appendix B.2): the printed bound, a model that breaks it, and bounds that hold.

Linear attention with an output projection reads the last n tokens as

    g(x[-n:]) = (1/n) * x_0 A G_n B,   G_n = sum of x_i^T x_i over the last n tokens,
    A = W^Q (W^K)^T,  B = W^V W.

With l <= l_test, k = l_test - l, the near view v = g(x[-l:]) and the far view r = g of the other k tokens
(with the same last token as query), the whole view is exactly u = (l v + k r) / l_test. Everything below follows
from this (`docs/explanation/theory.md`).

A bound is the product of its four factors with the misalignment |g(x[-l:]) - g(x[-l'':])|^2 of two views of training
lengths l'' <= l, the training errors |g(x[-l'':]) - y|^2 and |g(x[-l:]) - y|^2, and 1. K = L / l_test with
L = l_test - l_train / 2.
"""

from __future__ import annotations

import torch
from torch import Tensor

ERROR, PRINTED, CORRECTED, CONVEX = "squared_error", "printed_bound", "corrected_bound", "convex_bound"
Factors = tuple[float, float, float, float]


def read(tokens: Tensor, a: Tensor, b: Tensor, query: Tensor | None = None) -> Tensor:
    """g of a view: tokens [n, D], the query (default: the last token), A [D, D], B [D, V]; gives [V] (Eq. 25)."""
    gathered = tokens.T @ tokens / len(tokens)
    return (tokens[-1] if query is None else query) @ a @ gathered @ b


def printed_factors(trained: int, length: int, c0: float = 0.0) -> Factors:
    """Eq. 28 as printed, with C0 = |A B|^2 as the paper defines it. It does not hold.

    C0 can be 0 while the model attends to everything.
    """
    k2 = ((length - trained / 2) / length) ** 2
    return k2, k2, 1, (1 + c0) * k2


def corrected_factors(trained: int, length: int, c0: float = 0.0) -> Factors:
    """The same proof with its two slips corrected; C0 = |A|^2 |B|^2 (spectral norms).

    |a + b|^2 <= 2 |a|^2 + 2 |b|^2 in place of |a|^2 + |b|^2, and |x_0 A R B| <= |A| |B| |R|, since R is
    between A and B.
    """
    k2 = ((length - trained / 2) / length) ** 2
    return 12 * k2, 12 * k2, 2, (12 + 4 * c0) * k2


def constants_ratio(factors: Factors) -> float:
    """C1 / C2 of a bound C1 misalignment + C2 training loss + C3, where both views have that loss."""
    return factors[0] / (factors[1] + factors[2])


def error_and_bounds(
    tokens: Tensor, a: Tensor, b: Tensor, y: Tensor, *, near: int, nearer: int, trained: int
) -> dict[str, float]:
    """|u - y|^2 of the whole view, and every bound on it from the last `near` and `nearer` tokens.

    The convex bound is what the identity gives at once: (l |v - y|^2 + k |r - y|^2) / l_test. It says what the
    printed bound hides: what counts is whether the far tokens alone predict the same.
    """
    length = len(tokens)
    v, w = read(tokens[-near:], a, b), read(tokens[-nearer:], a, b)
    r = read(tokens[:-near], a, b, query=tokens[-1])
    terms = (_square(v - w), _square(w - y), _square(v - y), 1.0)
    factors = {
        PRINTED: printed_factors(trained, length, _norm(a @ b) ** 2),
        CORRECTED: corrected_factors(trained, length, (_norm(a) * _norm(b)) ** 2),
    }
    return {
        ERROR: _square(read(tokens, a, b) - y),
        **{name: sum(f * term for f, term in zip(own, terms, strict=True)) for name, own in factors.items()},
        CONVEX: (near * _square(v - y) + (length - near) * _square(r - y)) / length,
    }


def counterexample(length: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Tokens [length, 3], A, B and the label y [2] of a model that breaks the printed bound.

    Unit tokens share one direction, which A attends to evenly, and differ in another two, of which B makes
    the output: predictions are the shares of the two symbols in view, probability vectors. The last two
    tokens, l_train = 2, are of class 0 and so is the label; all tokens further back are of class 1. No
    view of training length errs or disagrees, yet the error tends to 2.
    """
    shared = 0.5**0.5
    symbols = torch.tensor([[shared, shared, 0.0], [shared, 0.0, shared]], dtype=torch.float64)
    tokens = symbols[[1] * (length - 2) + [0, 0]]
    a = torch.zeros(3, 3, dtype=torch.float64)
    a[0, 0] = 1 / shared**2
    b = torch.zeros(3, 2, dtype=torch.float64)
    b[1, 0] = b[2, 1] = 1 / shared
    return tokens, a, b, torch.tensor([1.0, 0.0], dtype=torch.float64)


def _square(x: Tensor) -> float:
    return float(x.square().sum())


def _norm(matrix: Tensor) -> float:
    return float(torch.linalg.matrix_norm(matrix, 2))
