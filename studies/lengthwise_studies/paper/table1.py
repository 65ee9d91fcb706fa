"""Table 1: does misalignment go with long-context scores, over models? And does something simpler do just as well?

The paper has seven models and one correlation. Here are nineteen, the parts of SCE, and partial correlations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

from lengthwise.measure.over_seeds import POWER
from lengthwise.measure.statistics import two_sided_p
from lengthwise.report.html import Section
from lengthwise.report.tables import Estimate, Table
from lengthwise.results import SIGNIFICANCE, Results
from lengthwise_studies.arms import Arm
from lengthwise_studies.claims import (
    NOT_RUN,
    OPPOSITE,
    REPRODUCED,
    Claim,
    Found,
    Judged,
    judge,
    verdict_table,
)
from lengthwise_studies.paper import models
from lengthwise_studies.paper.sizes import PARTS, loss
from lengthwise_studies.tiny_models import TinyModel

FEWEST = 12
"""Models that a verdict needs."""
Values = Sequence[float]
PRINTED: dict[str, tuple[float, float, float, float]] = {
    "GPT-J-6B": (2.1, 3.4, 9.5, 7.8),
    "GPT-NeoX-20B": (2.3, 3.2, 9.4, 9.7),
    "Llama2-7B": (1.9, 3.4, 9.4, 8.9),
    "RandomPos": (2.2, 3.3, 8.2, 9.2),
    "Yarn-Llama-2-7B-8k": (2.0, 2.6, 3.8, 21.2),
    "Qwen-7B-8k": (1.7, 2.8, 3.2, 24.2),
    "CLEX-LLaMA-4K": (1.7, 2.4, 1.8, 32.7),
}
"""The paper's Table 1, page 6: training loss, misalignment, log perplexity at 16k, LongBench-E."""
WITHIN = {"gemma3-270m"}
"""Models whose longest context that is read lies within their trained length: they have no loss beyond T."""
SHORT, SCE, ENTROPY, JEFFREYS = "loss at T", "SCE", "entropy", "Jeffreys"
LONG, RISE = "loss beyond T", "rise beyond T"


def partial_correlation(x: Values, y: Values, given: Sequence[Values] = ()) -> float:
    """Pearson's correlation of what the straight line in `given` leaves of x and of y; NaN where nothing varies."""
    both = np.column_stack([x, y])
    line = np.column_stack([np.ones(len(x)), *given])
    left = both - line @ np.linalg.lstsq(line, both, rcond=None)[0]
    products = left.T @ left
    spread = math.sqrt(products[0, 0] * products[1, 1])
    scale = math.sqrt(both.var(axis=0).prod()) * len(x)
    return float(products[0, 1]) / spread if spread > 1e-12 * max(scale, 1e-300) else math.nan


def williams_t(one: float, other: float, between: float, n: int) -> float:
    """Williams's t, n - 3 degrees of freedom, of r(x, y) = `one` against r(z, y) = `other`, with r(x, z) = `between`.

        t = (r_xy - r_zy) sqrt((n - 1)(1 + r_xz) / (2 (n - 1) / (n - 3) |R| + m^2 (1 - r_xz)^3)),
        |R| = 1 - r_xy^2 - r_zy^2 - r_xz^2 + 2 r_xy r_zy r_xz,    m = (r_xy + r_zy) / 2

    Source: Steiger 1980, "Tests for comparing elements of a correlation matrix", Eq. 7.
    """
    determinant = 1 - one**2 - other**2 - between**2 + 2 * one * other * between
    mean = (one + other) / 2
    below = 2 * (n - 1) / (n - 3) * determinant + mean**2 * (1 - between) ** 3
    return (one - other) * math.sqrt((n - 1) * (1 + between) / below)


@dataclass(frozen=True)
class Correlation:
    """The test of a statement on models: the predictor `of` correlates positively with `score`.

    The part of the predictors in `given` is taken out. Or: it correlates more, in size, than another predictor does.
    """

    of: str
    score: str
    given: tuple[str, ...] = ()
    stronger_than: str | None = None

    def __call__(self, numbers: Mapping[str, Mapping[str, float]]) -> Found:
        """The correlation with its 95 % interval by Fisher's z, or the difference of two in size.

        `numbers` has the values of each model. Models without one of the numbers are left out.
        """
        names = [self.of, self.score, *self.given, *filter(None, [self.stronger_than])]
        there = [own for own in numbers.values() if all(name in own for name in names)]
        n = len(there)
        if n < FEWEST:
            return Found(verdict=NOT_RUN, n=n)
        x, y, *others = ([own[name] for own in there] for name in names)
        if self.stronger_than is not None:
            one, other = partial_correlation(x, y), partial_correlation(others[0], y)
            # Signs are turned so that both correlations are positive.
            between = partial_correlation(x, others[0]) * math.copysign(1, one * other)
            r, degrees = abs(one) - abs(other), n - 3
            interval, t = (), williams_t(abs(one), abs(other), between, n)
        else:
            r, degrees = partial_correlation(x, y, others), n - 2 - len(others)
            if math.isnan(r):
                return Found(verdict=NOT_RUN, n=n)
            half = 1.959964 / math.sqrt(degrees - 1)
            z = math.atanh(max(-0.999999, min(0.999999, r)))
            interval = math.tanh(z - half), math.tanh(z + half)
            t = r * math.sqrt(degrees / max(1e-12, 1 - r * r))
        return Found(
            verdict=REPRODUCED if r > 0 else OPPOSITE,
            ours=Estimate(r, *interval, signed=True),
            n=n,
            p=two_sided_p(t, degrees),
            detectable=partial(self._detectable, n),
        )

    def _detectable(self, n: int, tests: int) -> float | None:
        """The smallest correlation that would be seen among so many tests, by Fisher's z."""
        if self.stronger_than is not None:
            return None
        level = NormalDist().inv_cdf(1 - SIGNIFICANCE / tests / 2) + NormalDist().inv_cdf(POWER)
        return math.tanh(level / math.sqrt(n - 3 - len(self.given)))


_TESTS = {
    "Table 1": {
        "SCE goes with the loss beyond T": Correlation(SCE, LONG),
        "SCE goes more with it than the loss at T does": Correlation(SCE, LONG, stronger_than=SHORT),
    },
    "ours, control": {
        "Jeffreys goes with the loss beyond T": Correlation(JEFFREYS, LONG),
        "entropy alone goes with the loss beyond T": Correlation(ENTROPY, LONG),
        "the loss at T goes with the loss beyond T": Correlation(SHORT, LONG),
        "SCE, given the loss at T": Correlation(SCE, LONG, given=(SHORT,)),
        "Jeffreys, given the loss at T": Correlation(JEFFREYS, LONG, given=(SHORT,)),
        "Jeffreys, given entropy": Correlation(JEFFREYS, LONG, given=(ENTROPY,)),
        "SCE goes with the rise beyond T": Correlation(SCE, RISE),
        "Jeffreys goes with the rise beyond T": Correlation(JEFFREYS, RISE),
        "entropy goes with the rise beyond T": Correlation(ENTROPY, RISE),
    },
}
"""Statements of the paper, and controls of ours. The paper has a number for the loss at T."""
_SOURCE = "Sec. 4.1.2, Table 1, page 6"
CLAIMS = tuple(
    Claim(place=place, source=_SOURCE, says=says, paper="0.67" if test.of == SHORT else "", test=test)
    for place, tests in _TESTS.items()
    for says, test in tests.items()
)

_OTHERS: tuple[dict[str, Any], ...] = (
    {"width": 64},
    {"layers": 2},
    {"length": 64},
    {"length": 256},
    {"steps": 100},
    {"steps": 700},
)
_SIBLINGS = (
    TinyModel(steps=300),
    *(TinyModel(steps=300, encoding=encoding) for encoding in ("nope", "alibi", "learned")),
    *(TinyModel(**{"steps": 300, **other}) for other in _OTHERS),
)


def _tiny(*starts: TinyModel, **samples: int) -> tuple[Arm, ...]:
    """The models, and the first under two extensions."""
    pairs = [*((start, None) for start in starts), (starts[0], "yarn"), (starts[0], "ntk")]
    return tuple(
        models.model_arm(start.configuration, start, start.length, 4, method, **samples)
        for start, method in pairs
    )


_FEW: dict[str, Any] = {"windows": 4, "segments": 2}
_METHODS = ("pi", "ntk", "dynamic_ntk", "yarn", "llama3")
_REAL = (
    models.model_arm("smollm2-135m", "smollm2-135m", 8192, 2, **_FEW),
    # Read far within its trained 32768 tokens: see `WITHIN`.
    models.model_arm("gemma3-270m", "gemma3-270m", 2048, 2, **_FEW),
    *(models.model_arm("smollm2-135m", "smollm2-135m", 8192, 2, method, **_FEW) for method in _METHODS),
)
_MANY: dict[str, Any] = {"windows": 32, "segments": 32}
_GPU = (
    ("HuggingFaceTB/SmolLM2-135M", 8192),
    ("HuggingFaceTB/SmolLM2-1.7B", 8192),
    ("meta-llama/Llama-2-7b-hf", 4096),
)
_PAPERS = (
    ("EleutherAI/gpt-j-6b", 2048, 8),
    ("EleutherAI/gpt-neox-20b", 2048, 8),
    ("meta-llama/Llama-2-7b-hf", 4096, 4),
    ("meta-llama/Llama-2-13b-hf", 4096, 4),
    ("NousResearch/Yarn-Llama-2-7b-64k", 8192, 2),
    ("Qwen/Qwen-7B", 8192, 2),
    ("DAMO-NLP-SG/CLEX-7B-16K", 4096, 4),
)
"""Its models that are published (RandomPos is not) and Llama-2-13B, T, and how many times T its 16k tokens are."""
SCALES = {
    "gpu": models.Models(
        kind="table1",
        arms=tuple(
            models.model_arm(name, name, length, 2, method, **_MANY)
            for name, length in _GPU
            for method in (None, "pi", "ntk", "yarn")
        ),
        cards=1,
    ),
    "paper": models.Models(
        kind="table1",
        arms=(
            *(models.model_arm(name, name, length, times, **_MANY) for name, length, times in _PAPERS),
            *(
                models.model_arm(_PAPERS[2][0], _PAPERS[2][0], 4096, 4, method, **_MANY)
                for method in _METHODS
            ),
        ),
        cards=8,
    ),
    "default": models.Models(kind="table1", arms=(*_tiny(*_SIBLINGS, windows=48, segments=48), *_REAL)),
    "smoke": models.Models(kind="table1", arms=_tiny(models.SMALLEST, windows=2, segments=2), seeds=1),
}


def numbers(results: Results, *, tiny_alone: bool = False) -> dict[str, dict[str, float]]:
    """Each model's predictors and scores; the score is at the longest context that was read."""
    tiny = {str(row.arm) for row in results.rows if row.model.startswith("tiny-")}
    found: dict[str, dict[str, float]] = {}
    for name in results.config["arms"]:
        trained, longest = models.lengths_of(results, name)
        wanted = dict(zip((SCE, ENTROPY, JEFFREYS), PARTS, strict=True))
        wanted = {SHORT: loss(1), **wanted, LONG: loss(longest / trained)}
        means = {what: models.number_of(results, name, quantity) for what, quantity in wanted.items()}
        own = {what: one.value for what, one in means.items() if one is not None and one.value is not None}
        if name in WITHIN:
            own.pop(LONG, None)
        if LONG in own and SHORT in own:
            own[RISE] = own[LONG] - own[SHORT]
        if name in tiny or not tiny_alone:
            found[name] = own
    return found


def of_the_papers_models() -> str:
    """What the paper's own seven models say, from its printed values."""
    of_loss, sce, score, bench = (list(column) for column in zip(*PRINTED.values(), strict=True))
    one, other = partial_correlation(sce, score), partial_correlation(of_loss, score)
    n = len(score)
    p = two_sided_p(williams_t(one, other, partial_correlation(sce, of_loss), n), n - 3)
    return (
        f"Over the paper's {n} models, from its printed values, SCE correlates by {one:.2f} with the log perplexity "
        f"and by {partial_correlation(sce, bench):.2f} with LongBench-E, the training loss by {other:.2f} and "
        f"{partial_correlation(of_loss, bench):.2f} (Pearson; printed are 0.67 and -0.59). Williams's test of the "
        f"difference for the log perplexity gives p = {p:.2f}."
    )


def judged(results: Results) -> dict[str, list[Judged]]:
    """The verdicts over all models, and over those that share text and tokenizer."""
    alone = {"all": False, "small": True}
    return {who: judge(CLAIMS, numbers(results, tiny_alone=tiny)) for who, tiny in alone.items()}


def relations(results: Results) -> dict[str, Table]:
    """Their tables."""
    note = (
        "Models share text, and some share weights, so they are less independent than the intervals and p-values "
        "assume."
    )
    return {
        who: verdict_table(several, caption=f"Over {who} models", notes=[note])
        for who, several in judged(results).items()
    }


def models_table(results: Results) -> Table:
    """Every model with its predictors and scores."""
    names = (SHORT, SCE, ENTROPY, JEFFREYS, LONG, RISE)
    rows = [[model, *map(own.get, names)] for model, own in numbers(results).items()]
    caption = "Every model, nats; means over pretraining seeds"
    return Table(columns=["model", *names], rows=rows, caption=caption)


def sections(results: Results, folder: Path) -> list[Section]:
    """The table as one section of a page."""
    correlated = (
        "The paper correlates SCE with the log perplexity at 16k tokens over seven models. Losses of models with "
        "other tokenizers are not of the same tokens, so the tiny models, which share text and tokenizer, are judged "
        "alone too."
    )
    return [
        Section(
            title="Table 1: does misalignment go with long-context scores?",
            paragraphs=[correlated, of_the_papers_models()],
            tables=[*relations(results).values(), models_table(results)],
            notes=results.notes,
        )
    ]


STUDY = models.study_of_models("Table 1: does misalignment go with long-context scores?", sections, SCALES)
