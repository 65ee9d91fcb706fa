"""Theorem 1 (appendix B.2) as a study: the printed bound, a model that breaks it, and bounds that hold.

Linear attention with an output projection reads the last n tokens as

    g(x[-n:]) = (1/n) * x_0 A G_n B,   G_n = sum of x_i^T x_i over the last n tokens,
    A = W^Q (W^K)^T,  B = W^V W.

With l <= l_test, k = l_test - l, the near view v = g(x[-l:]) and the far view r = g of the other k tokens
(with the same last token as query), the whole view is exactly u = (l v + k r) / l_test. Everything below follows
from this (`docs/evidence/theory.md`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from lengthwise.report.html import Section
from lengthwise.results import Results, Row, rows_with
from lengthwise_studies.claims import FAILS, HOLDS, Decision, judge, ruled, verdict_table
from lengthwise_studies.skeleton import Part, Study, computed

ERROR, PRINTED, CORRECTED, CONVEX = "squared_error", "printed_bound", "corrected_bound", "convex_bound"
BROKEN, DRAWN_MODELS = "counterexample", "random models"
TRAIN_LENGTH = 2
"""Of the counterexample."""
LARGEST = 4.0
"""The squared distance of two unit vectors is at most this; of two probability vectors, 2."""


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How many random models, and the longest test length."""

    models: int
    longest: int


SCALES = {"default": Scale(models=400, longest=100), "smoke": Scale(models=10, longest=20)}


def read(tokens: Tensor, a: Tensor, b: Tensor, query: Tensor | None = None) -> Tensor:
    """g of a view: tokens [n, D], the query (default: the last token), A [D, D], B [D, V]; gives [V] (Eq. 25)."""
    gathered = tokens.T @ tokens / len(tokens)
    return (tokens[-1] if query is None else query) @ a @ gathered @ b


def factors(bound: str, trained: int, length: int, c0: float = 0.0) -> tuple[float, float, float, float]:
    """A bound is the product of these with the misalignment of two views of training length, their errors, and 1.

    K = L / l_test with L = l_test - l_train / 2. Eq. 28 as printed, with C0 = |A B|^2, does not hold: C0 can be 0
    while the model attends to everything. Corrected is the same proof without its two slips: |a + b|^2 <=
    2 |a|^2 + 2 |b|^2 in place of |a|^2 + |b|^2, and |x_0 A R B| <= |A| |B| |R|, since R is between A and B. So
    C0 = |A|^2 |B|^2 (spectral norms).
    """
    k2 = ((length - trained / 2) / length) ** 2
    if bound == PRINTED:
        return k2, k2, 1, (1 + c0) * k2
    return 12 * k2, 12 * k2, 2, (12 + 4 * c0) * k2


def constants_ratio(bound: str, trained: int, length: int) -> float:
    """C1 / C2 of a bound C1 misalignment + C2 training loss + C3, where both views have that loss."""
    misalignment, nearer, near, _ = factors(bound, trained, length)
    return misalignment / (nearer + near)


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
    found = {ERROR: _square(read(tokens, a, b) - y)}
    for name, c0 in ((PRINTED, _norm(a @ b) ** 2), (CORRECTED, (_norm(a) * _norm(b)) ** 2)):
        found[name] = sum(f * term for f, term in zip(factors(name, trained, length, c0), terms, strict=True))
    found[CONVEX] = (near * _square(v - y) + (length - near) * _square(r - y)) / length
    return found


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


def _rows(scale: Scale) -> Iterator[Row]:
    """By test length: the error and every bound of the counterexample; the closest calls of random models."""
    row = partial(Row, model="linear attention", task="theorem1")
    lengths = range(TRAIN_LENGTH + 1, scale.longest + 1)
    for length in lengths:
        for metric, value in counterexample_numbers(length).items():
            yield row(arm=BROKEN, metric=metric, value=value, length=length)
    for metric, ratio in largest_ratios(scale).items():
        yield row(arm=DRAWN_MODELS, metric=f"{metric}_ratio", value=ratio)
    for length in lengths:
        for arm in (PRINTED, CORRECTED):
            ratio = constants_ratio(arm, TRAIN_LENGTH, length)
            yield row(arm=arm, metric="constants_ratio", value=ratio, length=length)


def _notes(scale: Scale) -> list[str]:
    return [
        "Everything is computed in fp64. The counterexample's views of training length err by 0 and agree, "
        "so every bound consists of its constant term alone.",
        f"Random models: {scale.models} draws of A, B, unit tokens and a unit label, of lengths up to "
        f"{scale.longest}.",
    ]


def counterexample_numbers(length: int) -> dict[str, float]:
    """The error and the bounds of the model that breaks the printed bound; the largest bound over all views."""
    model = counterexample(length)
    over_views = [
        error_and_bounds(*model, near=near, nearer=nearer, trained=TRAIN_LENGTH)
        for near, nearer in itertools.combinations_with_replacement(range(TRAIN_LENGTH, 0, -1), 2)
    ]
    return {name: max(one[name] for one in over_views) for name in over_views[0]}


def largest_ratios(scale: Scale) -> dict[str, float]:
    """The largest error / bound over models drawn at random, for the bounds that are claimed to hold."""
    generator = torch.Generator().manual_seed(0)

    def whole(low: int, high: int) -> int:
        return int(torch.randint(low, high, (), generator=generator))

    def unit(count: int) -> Tensor:
        vectors = torch.randn(count, 4, generator=generator, dtype=torch.float64)
        return vectors / vectors.norm(dim=1, keepdim=True)

    ratios = {CORRECTED: 0.0, CONVEX: 0.0}
    for _ in range(scale.models):
        trained = whole(2, 9)
        length = whole(trained + 1, max(scale.longest, trained + 2))
        tokens, y = unit(length), unit(1)[0]
        a, b = torch.randn(2, 4, 4, generator=generator, dtype=torch.float64)
        near = whole(1, trained + 1)
        found = error_and_bounds(tokens, a, b, y, near=near, nearer=whole(1, near + 1), trained=trained)
        ratios = {name: max(ratio, found[ERROR] / found[name]) for name, ratio in ratios.items()}
    return ratios


def _values(results: Results, arm: str, metric: str) -> dict[int, float]:
    """By test length."""
    return {row.length or 0: row.value or 0.0 for row in rows_with(results.rows, arm=arm, metric=metric)}


def _printed_holds(results: Results) -> Decision:
    errors, bounds = _values(results, BROKEN, ERROR), _values(results, BROKEN, PRINTED)
    broken = [length for length, error in errors.items() if error > bounds[length] + 1e-9]
    at = max(errors)
    ours = f"at test length {at}: error {errors[at]:.3f}, bound {bounds[at]:.3f}"
    return f"{ours}; broken at {len(broken)} of {len(errors)} lengths", FAILS if broken else HOLDS


def _holds(metric: str, results: Results) -> Decision:
    errors, bounds = _values(results, BROKEN, ERROR), _values(results, BROKEN, metric)
    ratios = [errors[length] / bounds[length] for length in errors]
    worst = max(*_values(results, DRAWN_MODELS, f"{metric}_ratio").values(), *ratios)
    return f"largest error / bound: {worst:.3f}", HOLDS if worst <= 1 + 1e-9 else FAILS


def _vacuous(results: Results) -> Decision:
    least = min(_values(results, BROKEN, CORRECTED).values())
    ours = f"least bound {least:.2f}, greatest possible error {LARGEST:g}"
    return ours, "vacuous" if least >= LARGEST else "informative"


def _grows(results: Results) -> Decision:
    found = {
        called: list(_values(results, name, "constants_ratio").values())
        for called, name in (("printed", PRINTED), ("corrected", CORRECTED))
    }
    ours = "; ".join(f"{name}: {one[0]:.3f} to {one[-1]:.3f}" for name, one in found.items())
    grows = all(one == sorted(one) and one[0] < one[-1] for one in found.values())
    return ours, HOLDS if grows else FAILS


_NEVER_EXCEEDED = "no error of the counterexample or of a random model exceeds it"
CLAIMS = ruled(
    (
        "Eq. 28-29",
        "the printed bound holds",
        "proved",
        "no test length at which the counterexample's error exceeds the largest printed bound over its views",
        _printed_holds,
    ),
    (
        "Eq. 28-29, corrected",
        "the bound with factors 12, 12, 2 and 12 + 4 C0 holds",
        "ours",
        _NEVER_EXCEEDED,
        partial(_holds, CORRECTED),
    ),
    (
        "Eq. 28-29, corrected",
        "the corrected bound says something beyond the training length",
        "ours",
        "at some test length it is below the greatest squared distance of two unit vectors",
        _vacuous,
    ),
    (
        "identity behind the proof",
        "the error is at most the mean of near and far errors, weighted by their lengths",
        "ours",
        _NEVER_EXCEEDED,
        partial(_holds, CONVEX),
    ),
    (
        "below Eq. 29",
        "C1 / C2 grows with the test length",
        "proved",
        "the ratio of both bounds rises at every test length",
        _grows,
    ),
)


def sections(results: Results, folder: Path) -> list[Section]:
    """The verdicts."""
    return [
        Section(
            title="Theorem 1, checked",
            paragraphs=[
                "A linear attention model with neither loss nor misalignment at training lengths breaks the printed "
                "bound. The same proof with its two slips corrected gives a bound that holds but is vacuous."
            ],
            tables=[verdict_table(judge(CLAIMS, results))],
            notes=results.notes,
        )
    ]


_RUN = computed("theorem1", _rows, model_name="theorem1", notes=_notes, train_length=TRAIN_LENGTH)
THEOREM1 = Study(
    title="Theorem 1: does the bound hold?",
    parts=(Part(run=_RUN, sections=sections, scales=SCALES, claims=lambda scale: CLAIMS),),
)
