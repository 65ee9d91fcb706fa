"""Theorem 1 as a study: the printed bound on a model that breaks it, and bounds that hold on models drawn at random.

The counterexample and the bounds are formulas of `synthetic.theorem1`; `docs/explanation/theory.md` derives them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from lengthwise.report.html import Section
from lengthwise.results import Results, Row
from lengthwise_studies.claims import FAILS, HOLDS, Claim, Decision, Rule, judge, verdict_table
from lengthwise_studies.computed import computed
from lengthwise_studies.skeleton import Part, Study
from lengthwise_studies.synthetic import theorem1
from lengthwise_studies.synthetic.theorem1 import CONVEX, CORRECTED, ERROR, PRINTED, error_and_bounds

BROKEN, DRAWN_MODELS = "counterexample", "random models"
TRAIN_LENGTH = 2
"""Of the counterexample."""
LARGEST = 4.0
"""The squared distance of two unit vectors is at most this; of two probability vectors, 2."""


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How many random models, and up to which test length."""

    models: int
    longest: int


SCALES = {"default": Scale(models=400, longest=100), "smoke": Scale(models=10, longest=20)}


def _rows(scale: Scale) -> Iterator[Row]:
    """The error and every bound of the counterexample by test length, and the closest call over random models.

    Rows of the random models are the largest ratio of the error to each bound: 1 or less where the bound holds.
    """
    row = partial(Row, model="linear attention", task="theorem1")
    lengths = range(TRAIN_LENGTH + 1, scale.longest + 1)
    for length in lengths:
        for metric, value in counterexample_numbers(length).items():
            yield row(arm=BROKEN, metric=metric, value=value, length=length)
    for metric, ratio in largest_ratios(scale).items():
        yield row(arm=DRAWN_MODELS, metric=f"{metric}_ratio", value=ratio)
    for length in lengths:
        for arm, factors in ((PRINTED, theorem1.printed_factors), (CORRECTED, theorem1.corrected_factors)):
            ratio = theorem1.constants_ratio(factors(TRAIN_LENGTH, length))
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
    model = theorem1.counterexample(length)
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
    rows = results.select(arm=arm, metric=metric)
    return {row.length or 0: row.value for row in rows if row.value is not None}


def _printed_holds(results: Results) -> Decision:
    errors, bounds = _values(results, BROKEN, ERROR), _values(results, BROKEN, PRINTED)
    broken = [length for length, error in errors.items() if error > bounds[length] + 1e-9]
    at = max(errors)
    ours = f"at test length {at}: error {errors[at]:.3f}, bound {bounds[at]:.3f}"
    return ours, f"{FAILS}: broken at {len(broken)} of {len(errors)} lengths" if broken else HOLDS


def _holds(metric: str) -> Callable[[Results], Decision]:
    def decide(results: Results) -> Decision:
        errors, bounds = _values(results, BROKEN, ERROR), _values(results, BROKEN, metric)
        ratios = [errors[length] / bounds[length] for length in errors]
        worst = max(*_values(results, DRAWN_MODELS, f"{metric}_ratio").values(), *ratios)
        return f"largest error / bound: {worst:.3f}", HOLDS if worst <= 1 + 1e-9 else FAILS

    return decide


def _vacuous(results: Results) -> Decision:
    least = min(_values(results, BROKEN, CORRECTED).values())
    return f"least bound {least:.2f}, greatest possible error {LARGEST:g}", (
        "vacuous" if least >= LARGEST else "informative"
    )


def _grows(results: Results) -> Decision:
    found = {name: list(_values(results, name, "constants_ratio").values()) for name in (PRINTED, CORRECTED)}
    ours = "; ".join(f"{name.split('_')[0]}: {one[0]:.3f} to {one[-1]:.3f}" for name, one in found.items())
    grows = all(one == sorted(one) and one[0] < one[-1] for one in found.values())
    return ours, HOLDS if grows else FAILS


_NEVER_EXCEEDED = "no error of the counterexample or of a random model exceeds it"
CLAIMS = tuple(
    Claim(place=place, says=says, paper=paper, test=Rule(rule, decide))
    for place, says, paper, rule, decide in (
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
            _holds(CORRECTED),
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
            _holds(CONVEX),
        ),
        (
            "below Eq. 29",
            "C1 / C2 grows with the test length",
            "proved",
            "the ratio of both bounds rises at every test length",
            _grows,
        ),
    )
)


def sections(results: Results, folder: Path) -> list[Section]:
    """The verdicts."""
    return [
        Section(
            title="Theorem 1, checked",
            paragraphs=[
                "Theorem 1 bounds the error at a test length by the misalignment and the losses at training lengths. "
                "A linear attention model with neither loss nor misalignment breaks the printed bound; the same "
                "proof with its two slips corrected gives a bound that holds but is vacuous."
            ],
            tables=[verdict_table(judge(CLAIMS, results))],
            notes=results.notes,
        )
    ]


_RUN = computed("theorem1", _rows, model_name="theorem1", notes=_notes, train_length=TRAIN_LENGTH)
THEOREM1 = Study(
    title="Theorem 1: does the bound hold?", parts=(Part(run=_RUN, sections=sections, scales=SCALES),)
)
