"""Theorem 1 (appendix B.2): the printed bound, a model that breaks it, and bounds that hold.

Linear attention with an output projection reads the last n tokens as

    g(x[-n:]) = (1/n) * x_0 A G_n B,   G_n = sum of x_i^T x_i over the last n tokens,
    A = W^Q (W^K)^T,  B = W^V W.

With l <= l_test, k = l_test - l, the near view v = g(x[-l:]) and the far view r = g of the other k tokens
(with the same last token as query), the whole view is exactly u = (l v + k r) / l_test. Everything below follows
from this (`docs/explanation/theory.md`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


def read(tokens: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """g of a view: tokens [n, D], the last one as query, A [D, D], B [D, V]; gives [V] (Eq. 25)."""
    gathered = tokens.T @ tokens / len(tokens)
    return tokens[-1] @ a @ gathered @ b


@dataclass(frozen=True)
class Terms:
    """What the bound is made of: squared L2 norms, averaged over whatever the user averages over."""

    misalignment: float
    """|g(x[-l:]) - g(x[-(l - l'):])|^2."""
    near: float
    """Training error |g(x[-l:]) - y|^2."""
    nearer: float
    """Training error |g(x[-(l - l'):]) - y|^2 of the shorter view."""


def printed_bound(terms: Terms, c0: float, longest: int, length: int) -> float:
    """The right side of Eq. 28 as printed: K^2 misalignment + K^2 nearer + near + (1 + C0) K^2.

    K = (l_test - l_train / 2) / l_test, and C0 = |A B|^2 as the paper defines it. It does not hold.
    """
    k2 = _reach(longest, length) ** 2
    return k2 * terms.misalignment + k2 * terms.nearer + terms.near + (1 + c0) * k2


def corrected_bound(terms: Terms, c0: float, longest: int, length: int) -> float:
    """The same proof with its two slips mended; C0 = |A|^2 |B|^2 (spectral norms).

    |a + b|^2 <= 2 |a|^2 + 2 |b|^2 in place of |a|^2 + |b|^2, and |x_0 A R B| <= |A| |B| |R|, since R is
    between A and B: 12 K^2 misalignment + 12 K^2 nearer + 2 near + (12 + 4 C0) K^2.
    """
    k2 = _reach(longest, length) ** 2
    return 12 * k2 * (terms.misalignment + terms.nearer) + 2 * terms.near + (12 + 4 * c0) * k2


def convex_bound(near: float, far: float, near_length: int, length: int) -> float:
    """What the identity u = (l v + k r) / l_test gives at once: (l near + k far) / l_test.

    `far` is |r - y|^2, at most 2 for probability vectors. It says what the printed bound hides: what counts
    is whether the far tokens alone predict the same.
    """
    return (near_length * near + (length - near_length) * far) / length


def spectral_c0(a: Tensor, b: Tensor) -> float:
    """|A|^2 |B|^2, the constant that the proof needs."""
    return float(torch.linalg.matrix_norm(a, 2) ** 2 * torch.linalg.matrix_norm(b, 2) ** 2)


def printed_c0(a: Tensor, b: Tensor) -> float:
    """|A B|^2, the constant as printed; it can be 0 while the model attends to everything."""
    return float(torch.linalg.matrix_norm(a @ b, 2) ** 2)


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


def _reach(longest: int, length: int) -> float:
    """K = L / l_test with L = l_test - l_train / 2."""
    return (length - longest / 2) / length
