"""Table 1: does misalignment go with long-context scores, over models? And does something simpler do just as well?

The paper has seven models and one correlation. Here are 61, the parts of SCE, ranks and partial correlations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from lengthwise.measure.statistics import two_sided_p
from lengthwise.report.html import Section
from lengthwise.report.tables import Table
from lengthwise.results import Results
from lengthwise_studies.arms import Arm
from lengthwise_studies.claims import (
    FAILS,
    HOLDS,
    Claim,
    Decision,
    Judged,
    Rule,
    Test,
    judge,
    rules_table,
    verdict_table,
)
from lengthwise_studies.paper import models
from lengthwise_studies.paper.correlations import (
    Correlation,
    Extended,
    Key,
    Numbers,
    over_models,
    partial_correlation,
)
from lengthwise_studies.paper.sizes import PARTS, loss
from lengthwise_studies.skeleton import Part, Study
from lengthwise_studies.tiny_models import TinyModel

THEIRS: dict[str, tuple[float, float, float, float]] = {
    "GPT-J-6B": (2.1, 3.4, 9.5, 7.8),
    "GPT-NeoX-20B": (2.3, 3.2, 9.4, 9.7),
    "Llama2-7B": (1.9, 3.4, 9.4, 8.9),
    "RandomPos": (2.2, 3.3, 8.2, 9.2),
    "Yarn-Llama-2-7B-8k": (2.0, 2.6, 3.8, 21.2),
    "Qwen-7B-8k": (1.7, 2.8, 3.2, 24.2),
    "CLEX-LLaMA-4K": (1.7, 2.4, 1.8, 32.7),
}
"""The paper's Table 1, page 6: training loss, misalignment, log perplexity at 16k, LongBench-E."""
WITHIN = {Key("gemma3-270m")}
"""Models whose longest context that is read lies within their trained length: they have no loss beyond T."""
SHORT, SCE, ENTROPY, JEFFREYS = "loss at T", "SCE", "entropy", "Jeffreys"
LONG, RISE = "loss beyond T", "rise beyond T"


def _printed() -> Mapping[str, Sequence[float]]:
    names = (SHORT, SCE, LONG, "LongBench-E")
    columns = dict(zip(names, zip(*THEIRS.values(), strict=True), strict=True))
    rise = [far - near for far, near in zip(columns[LONG], columns[SHORT], strict=True)]
    return columns | {RISE: rise}


_OF = _printed()
"""The columns of the paper's table, and how far its models rise."""
_WITH_LONG, _WITH_RISE = (partial_correlation(_OF[SCE], _OF[score]) for score in (LONG, RISE))
_STRONGER = _WITH_LONG - partial_correlation(_OF[SHORT], _OF[LONG])
_LLAMA, _ADAPTED = (
    THEIRS["Llama2-7B"],
    [THEIRS[name] for name in ("Yarn-Llama-2-7B-8k", "CLEX-LLaMA-4K")],
)
_LOWER_SCE, _LOWER_RISE = (
    fmean(map(number, _ADAPTED)) - number(_LLAMA)
    for number in (lambda one: one[1], lambda one: one[2] - one[0])
)
ENCODINGS = "Rebuttal, encodings"


def _encodings_against_models(numbers: Numbers) -> Decision | None:
    """How far the rise differs among models with plain rope, and among encodings of models of one size."""
    alike = [Key(start.configuration) for start in _SIBLINGS]
    several = [alike[0], *(Key(start.configuration) for start in _ENCODINGS)]
    if not {*alike, *several} <= numbers.keys():
        return None
    ranges = [
        max(rises) - min(rises)
        for rises in ([numbers[key][RISE] for key in keys] for keys in (alike, several))
    ]
    ours = f"rise beyond T: {ranges[0]:.2f} nats apart with one encoding, {ranges[1]:.2f} with five"
    return ours, HOLDS if ranges[0] > ranges[1] else FAILS


_TESTS: dict[str, dict[str, tuple[str, Test]]] = {
    "Table 1": {
        "SCE goes with the loss beyond T": (f"{_WITH_LONG:.2f}", Correlation(SCE, LONG, size=_WITH_LONG)),
        "SCE goes more with it than the loss at T does": (
            f"{_STRONGER:+.2f}",
            Correlation(SCE, LONG, stronger_than=SHORT, size=_STRONGER),
        ),
        "SCE goes with the rise beyond T, which is length generalization": (
            f"{_WITH_RISE:.2f}",
            Correlation(SCE, RISE, size=_WITH_RISE),
        ),
    },
    ENCODINGS: {
        # The paper's were trained after the change, so its sizes are not what an untrained change could have.
        "changed rope lowers SCE, untrained": (f"{_LOWER_SCE:+.1f}, trained", Extended(SCE)),
        "changed rope lowers the rise beyond T, untrained": (f"{_LOWER_RISE:+.1f}, trained", Extended(RISE)),
        "models with the same encoding generalize differently": (
            "no number",
            Rule(
                "the rise differs more among models with rope than among encodings", _encodings_against_models
            ),
        ),
    },
    "ours, control": {
        says: ("0.67" if test.of == SHORT else "", test)
        for says, test in {
            "Jeffreys goes with the loss beyond T": Correlation(JEFFREYS, LONG),
            "entropy alone goes with the loss beyond T": Correlation(ENTROPY, LONG),
            "the loss at T goes with the loss beyond T": Correlation(SHORT, LONG),
            "SCE, given the loss at T": Correlation(SCE, LONG, given=(SHORT,)),
            "Jeffreys, given the loss at T": Correlation(JEFFREYS, LONG, given=(SHORT,)),
            "Jeffreys, given entropy": Correlation(JEFFREYS, LONG, given=(ENTROPY,)),
            "Jeffreys goes with the rise beyond T": Correlation(JEFFREYS, RISE),
            "entropy goes with the rise beyond T": Correlation(ENTROPY, RISE),
            "by rank, SCE goes with the loss beyond T": Correlation(SCE, LONG, ranked=True),
            "by rank, SCE goes more with it than the loss at T does": Correlation(
                SCE, LONG, stronger_than=SHORT, ranked=True
            ),
        }.items()
    },
}
"""Statements of the paper with what its own models have, computed from its table, and controls of ours."""
PAPERS = ("Table 1", ENCODINGS)
"""Places of the paper's statements."""
_SOURCES = {
    "Table 1": "Sec. 4.1.2, Table 1, page 6",
    ENCODINGS: "rebuttal, answer Q3 to the third reviewer",
    "ours, control": "in neither paper",
}
CLAIMS = tuple(
    Claim(place=place, source=_SOURCES[place], says=says, paper=paper, test=test)
    for place, tests in _TESTS.items()
    for says, (paper, test) in tests.items()
)

_OTHERS: tuple[dict[str, Any], ...] = (
    {},
    {"width": 64},
    {"width": 96},
    {"layers": 2},
    {"layers": 6},
    {"length": 64},
    {"length": 256},
    {"steps": 100},
    {"steps": 200},
    {"steps": 700},
)
_AS_THEY_ARE = ("randompos", "nope", "alibi", "learned")
_SIBLINGS = tuple(TinyModel(**{"steps": 300, **other}) for other in _OTHERS)
_ENCODINGS = tuple(TinyModel(steps=300, encoding=one) for one in _AS_THEY_ARE)
_TINY = {start.configuration for start in (*_SIBLINGS, *_ENCODINGS)}
"""Models that share text and tokenizer."""


def _tiny(starts: Sequence[TinyModel], methods: Sequence[str], **samples: int) -> tuple[Arm, ...]:
    """The models, and those with plain rope under every method too."""
    return tuple(
        models.model_arm(start, start.length, 4, method, **samples)
        for start in starts
        for method in ("", *(() if start.encoding in _AS_THEY_ARE else methods))
    )


_SMALL = _tiny(
    (*_SIBLINGS, *_ENCODINGS),
    ("pi", "ntk", "yarn", "clex"),
    windows=48,
    segments=48,
)
_FEW: dict[str, Any] = {"windows": 4, "segments": 2}
_METHODS = ("pi", "ntk", "dynamic_ntk", "yarn", "llama3")
_REAL = (
    models.model_arm("smollm2-135m", 8192, 2, **_FEW),
    # Read far within its trained 32768 tokens: see `WITHIN`.
    models.model_arm("gemma3-270m", 2048, 2, **_FEW),
    *(models.model_arm("smollm2-135m", 8192, 2, method, **_FEW) for method in _METHODS),
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
        arms=tuple(
            models.model_arm(name, length, 2, method, **_MANY)
            for name, length in _GPU
            for method in ("", "pi", "ntk", "yarn")
        ),
        cards=1,
    ),
    "paper": models.Models(
        arms=(
            *(models.model_arm(name, length, times, **_MANY) for name, length, times in _PAPERS),
            *(models.model_arm(_PAPERS[2][0], 4096, 4, method, **_MANY) for method in _METHODS),
        ),
        cards=8,
    ),
    "default": models.Models(arms=(*_SMALL, *_REAL)),
    # The tiny models alone: an hour in place of three.
    "laptop": models.Models(arms=_SMALL),
    # A model that is there: to pretrain one tokenizes all books.
    "smoke": models.Models(
        arms=tuple(
            models.model_arm("tiny-books", 128, 4, method, windows=2, segments=2) for method in ("", "yarn")
        )
    ),
}


def numbers(results: Results, *, tiny_alone: bool = False) -> Numbers:
    """Each model's predictors and scores; the score is at the longest context that was read."""
    found: dict[Key, dict[str, float]] = {}
    for name, key in models.keys_of(results).items():
        if tiny_alone and key.model not in _TINY:
            continue
        trained, longest = models.lengths_of(results, name)
        wanted = dict(zip((SCE, ENTROPY, JEFFREYS), PARTS, strict=True))
        wanted = {SHORT: loss(1), **wanted, LONG: loss(longest / trained)}
        means = {what: models.number_of(results, name, quantity) for what, quantity in wanted.items()}
        own = {what: one.value for what, one in means.items() if one is not None and one.value is not None}
        if key in WITHIN:
            own.pop(LONG, None)
        if LONG in own and SHORT in own:
            own[RISE] = own[LONG] - own[SHORT]
        found[key] = own
    return found


def of_the_papers_models() -> str:
    """What the paper's own seven models say, from its printed values."""
    of_loss, sce, score, bench = (list(column) for column in zip(*THEIRS.values(), strict=True))
    one, other = partial_correlation(sce, score), partial_correlation(of_loss, score)
    rows = {Key(name): (values[1], values[2], values[0]) for name, values in THEIRS.items()}
    difference, error, degrees = over_models(Correlation(SCE, LONG, stronger_than=SHORT)._statistic, rows)
    return (
        f"Over the paper's {len(THEIRS)} models, from its printed values, SCE correlates by {one:.2f} with the log "
        f"perplexity and by {partial_correlation(sce, bench):.2f} with LongBench-E, the training loss by {other:.2f} "
        f"and {partial_correlation(of_loss, bench):.2f} (Pearson; printed are 0.67 and -0.59). The difference for "
        f"the log perplexity has p = {two_sided_p(difference / error, degrees):.2f}. Their loss rises by "
        f"{min(_OF[RISE]):.1f} to {max(_OF[RISE]):.1f} nats beyond T."
    )


def judged(results: Results) -> dict[str, list[Judged]]:
    """The verdicts over all models, and over those that share text and tokenizer.

    Holm's correction is over the statements of one place.
    """
    found: dict[str, list[Judged]] = {}
    for who, tiny in {"all": False, "small": True}.items():
        own = numbers(results, tiny_alone=tiny)
        # Encodings are compared among the models that share text and tokenizer.
        families = [
            [one for one in CLAIMS if one.place == place] for place in _TESTS if tiny or place != ENCODINGS
        ]
        found[who] = [one for of in families for one in judge(of, own)]
    return found


def relations(results: Results) -> dict[str, Table]:
    """Their tables."""
    note = (
        "Intervals and p values leave out one model after the other, with all that it was extended to. Models share "
        "their text, so they are less independent than that assumes. Holm's correction is over the statements of one "
        "place. The paper's numbers are computed from its table. Differences of SCE and of the rise are in nats."
    )
    return {
        who: verdict_table(several, caption=f"Over {who} models", notes=[note])
        for who, several in judged(results).items()
    }


def models_table(results: Results) -> Table:
    """Every model with its predictors and scores."""
    names = (SHORT, SCE, ENTROPY, JEFFREYS, LONG, RISE)
    rows = [[key.name, *map(own.get, names)] for key, own in numbers(results).items()]
    caption = "Every model, nats; means over pretraining seeds"
    return Table(columns=["model", *names], rows=rows, caption=caption)


def sections(results: Results, folder: Path) -> list[Section]:
    """The table as one section of a page."""
    correlated = (
        "The paper correlates SCE with the log perplexity at 16k tokens over seven models. Losses of models with "
        "other tokenizers are not of the same tokens, so the tiny models, which share text and tokenizer, are judged "
        "alone too. The rebuttal answers that models with the same encoding generalize differently, and that "
        "changed rope generalizes better: among the tiny models are four encodings, and rope under four extensions."
    )
    return [
        Section(
            title="Over models",
            paragraphs=[correlated, of_the_papers_models()],
            tables=[*relations(results).values(), models_table(results)],
            notes=results.notes,
            details=[rules_table(CLAIMS)],
        )
    ]


_PART = Part(
    run=models.run_models,
    sections=sections,
    scales=SCALES,
    plan=models.Models.plan,
    claims=lambda scale: CLAIMS,
)
STUDY = Study(
    title="Table 1: does misalignment go with long-context scores?", parts=(_PART,), takes=("seeds",)
)
