"""Table 1: does misalignment go with long-context scores, over models? And does something simpler do just as well?

The paper has seven models and one correlation. Here are nineteen, the parts of SCE, and partial correlations.
"""

from __future__ import annotations

from pathlib import Path

from lengthwise.measure.statistics import two_sided_p
from lengthwise.report.html import Section
from lengthwise.report.tables import Table
from lengthwise.results import Results
from lengthwise_studies.arms import Arm
from lengthwise_studies.claims import Claim, Judged, judge, verdict_table
from lengthwise_studies.paper.dependence import Correlation, partial_correlation, williams_t
from lengthwise_studies.paper.measures import PARTS, loss
from lengthwise_studies.paper.models import Models, lengths_of, model_arm, number_of, study_of_models
from lengthwise_studies.tiny_models import TinyModel

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

SHORT, SCE, ENTROPY, JEFFREYS = "loss at T", "SCE", "entropy", "Jeffreys"
LONG, RISE = "loss beyond T", "rise beyond T"


def _claim(says: str, test: Correlation, *, claimed: bool = False, paper: str = "") -> Claim[Correlation]:
    """A statement of the paper, or a control of ours."""
    place = "Table 1" if claimed else "Table 1, control"
    return Claim(place=place, source="Sec. 4.1.2, Table 1, page 6", says=says, paper=paper, test=test)


CLAIMS = (
    _claim("SCE goes with the loss beyond T", Correlation(SCE, LONG), claimed=True),
    _claim(
        "SCE goes more with it than the loss at T does",
        Correlation(SCE, LONG, stronger_than=SHORT),
        claimed=True,
    ),
    _claim("Jeffreys goes with the loss beyond T", Correlation(JEFFREYS, LONG)),
    _claim("entropy alone goes with the loss beyond T", Correlation(ENTROPY, LONG)),
    _claim("the loss at T goes with the loss beyond T", Correlation(SHORT, LONG), paper="0.67"),
    _claim("SCE, given the loss at T", Correlation(SCE, LONG, given=(SHORT,))),
    _claim("Jeffreys, given the loss at T", Correlation(JEFFREYS, LONG, given=(SHORT,))),
    _claim("Jeffreys, given entropy", Correlation(JEFFREYS, LONG, given=(ENTROPY,))),
    _claim("SCE goes with the rise beyond T", Correlation(SCE, RISE)),
    _claim("Jeffreys goes with the rise beyond T", Correlation(JEFFREYS, RISE)),
    _claim("entropy goes with the rise beyond T", Correlation(ENTROPY, RISE)),
)

_SIBLINGS = (
    TinyModel(steps=300),
    *(TinyModel(steps=300, encoding=encoding) for encoding in ("nope", "alibi", "learned")),
    TinyModel(steps=300, width=64),
    TinyModel(steps=300, layers=2),
    TinyModel(steps=300, length=64),
    TinyModel(steps=300, length=256),
    TinyModel(steps=100),
    TinyModel(steps=700),
)


def _tiny(*models: TinyModel, **samples: int) -> tuple[Arm, ...]:
    """The models, and the first under two extensions."""
    pairs = [*((model, None) for model in models), (models[0], "yarn"), (models[0], "ntk")]
    return tuple(
        model_arm(model.configuration, model, model.length, 4, method, **samples) for model, method in pairs
    )


# Gemma's longest context that is read lies within its trained 32768 tokens.
_REAL = (
    model_arm("smollm2-135m", "smollm2-135m", 8192, 2, windows=4, segments=2),
    model_arm("gemma3-270m", "gemma3-270m", 2048, 2, windows=4, segments=2),
    *(
        model_arm("smollm2-135m", "smollm2-135m", 8192, 2, method, windows=4, segments=2)
        for method in ("pi", "ntk", "dynamic_ntk", "yarn", "llama3")
    ),
)
_SMALLEST = TinyModel(steps=2, width=32, layers=1, length=32)
SCALES = {
    "default": Models(kind="table1", arms=(*_tiny(*_SIBLINGS, windows=48, segments=48), *_REAL)),
    "smoke": Models(kind="table1", arms=_tiny(_SMALLEST, windows=2, segments=2), seeds=1),
}


def numbers(results: Results, *, tiny_alone: bool = False) -> dict[str, dict[str, float]]:
    """Each model's predictors and scores; the score is at the longest context that was read."""
    tiny = {str(row.arm) for row in results.rows if row.model.startswith("tiny-")}
    found: dict[str, dict[str, float]] = {}
    for name in results.config["arms"]:
        if tiny_alone and name not in tiny:
            continue
        trained, longest = lengths_of(results, name)
        sce, entropy, jeffreys = PARTS
        wanted = {SHORT: loss(1), SCE: sce, ENTROPY: entropy, JEFFREYS: jeffreys}
        wanted[LONG] = loss(longest / trained)
        means = {what: number_of(results, name, quantity) for what, quantity in wanted.items()}
        own = {what: one.value for what, one in means.items() if one is not None and one.value is not None}
        if LONG in own and SHORT in own:
            own[RISE] = own[LONG] - own[SHORT]
        found[name] = own
    return found


def of_the_papers_models() -> str:
    """What the paper's own seven models say, from its printed values."""
    of_loss, sce, score, _ = (list(column) for column in zip(*PRINTED.values(), strict=True))
    one, other = partial_correlation(sce, score), partial_correlation(of_loss, score)
    n = len(score)
    p = two_sided_p(williams_t(one, other, partial_correlation(sce, of_loss), n), n - 3)
    return (
        f"Over the paper's {n} models, from its printed values, SCE and the log perplexity correlate by {one:.2f}, "
        f"the training loss and the log perplexity by {other:.2f} (Pearson). Williams's test of the difference gives "
        f"p = {p:.2f}."
    )


def judged(results: Results) -> dict[str, list[Judged]]:
    """The verdicts over all models, and over those that share text and tokenizer."""
    return {
        "all": judge(CLAIMS, numbers(results)),
        "small": judge(CLAIMS, numbers(results, tiny_alone=True)),
    }


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
    return Table(
        columns=["model", *names],
        rows=[[model, *map(own.get, names)] for model, own in numbers(results).items()],
        caption="Every model, nats; means over pretraining seeds",
    )


def sections(results: Results, folder: Path) -> list[Section]:
    """The table as one section of a page."""
    return [
        Section(
            title="Table 1: does misalignment go with long-context scores?",
            paragraphs=[
                "The paper correlates SCE with the log perplexity at 16k tokens over seven models. Losses of models "
                "with other tokenizers are not of the same tokens, so the tiny models, which share text and "
                "tokenizer, are judged alone too.",
                of_the_papers_models(),
            ],
            tables=[
                *relations(results).values(),
                models_table(results),
                Table(
                    columns=["model", "training loss", "SCE", "log perplexity at 16k", "LongBench-E"],
                    rows=[[model, *values] for model, values in PRINTED.items()],
                    caption="The paper's table",
                ),
            ],
            notes=results.notes,
        )
    ]


STUDY = study_of_models("Table 1: does misalignment go with long-context scores?", sections, SCALES)
