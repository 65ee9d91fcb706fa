"""Table 1: does misalignment go with long-context scores, over models? And does something simpler do just as well?

The paper has seven models and one correlation. Here are nineteen, the parts of SCE, and partial correlations.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from lengthwise.measure.statistics import two_sided_p
from lengthwise.report.html import Section
from lengthwise.report.tables import Cell, Table
from lengthwise.results import Results
from lengthwise_studies.paired_claims import Quantity
from lengthwise_studies.paper.dependence import (
    Related,
    Relation,
    partial_correlation,
    relate,
    relations_table,
    williams_t,
)
from lengthwise_studies.paper.measures import PARTS, loss
from lengthwise_studies.paper.models import Measured, measure_models, numbers_of, plan_models
from lengthwise_studies.skeleton import Part, Study
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
_QUANTITIES: dict[str, Quantity] = {SHORT: loss(1), SCE: PARTS[0], ENTROPY: PARTS[1], JEFFREYS: PARTS[2]}

RELATIONS = (
    Relation(says="SCE goes with the loss beyond T", of=SCE, score=LONG, paper=None),
    Relation(says="SCE goes more with it than the loss at T does", of=SCE, score=LONG, stronger_than=SHORT),
    Relation(says="Jeffreys goes with the loss beyond T", of=JEFFREYS, score=LONG, claimed=False),
    Relation(says="entropy alone goes with the loss beyond T", of=ENTROPY, score=LONG, claimed=False),
    Relation(
        says="the loss at T goes with the loss beyond T", of=SHORT, score=LONG, claimed=False, paper=0.67
    ),
    Relation(says="SCE, given the loss at T", of=SCE, score=LONG, given=(SHORT,), claimed=False),
    Relation(says="Jeffreys, given the loss at T", of=JEFFREYS, score=LONG, given=(SHORT,), claimed=False),
    Relation(says="Jeffreys, given entropy", of=JEFFREYS, score=LONG, given=(ENTROPY,), claimed=False),
    Relation(says="SCE goes with the rise beyond T", of=SCE, score=RISE, claimed=False),
    Relation(says="Jeffreys goes with the rise beyond T", of=JEFFREYS, score=RISE, claimed=False),
    Relation(says="entropy goes with the rise beyond T", of=ENTROPY, score=RISE, claimed=False),
)


@dataclass(frozen=True, kw_only=True)
class Size:
    """How many models, and how much is read of each.

    Args:
        tiny: the tiny models.
        real: whether SmolLM2-135M, its extensions and Gemma 3 270M are among them.
        windows, segments: samples of a tiny model; a real one is read in fewer.
        seeds: pretraining seeds of the tiny models.
    """

    tiny: tuple[TinyModel, ...]
    real: bool
    windows: int
    segments: int
    seeds: int = 3

    def models(self) -> list[Measured]:
        """The models of the table."""
        found = [self._tiny(model) for model in self.tiny]
        found += [self._tiny(self.tiny[0], method) for method in ("yarn", "ntk")]
        if self.real:
            found += [_real("smollm2-135m", 8192, 2), _real("gemma3-270m", 32768, 0.125)]
            found += [
                _real("smollm2-135m", 8192, 2, method)
                for method in ("pi", "ntk", "dynamic_ntk", "yarn", "llama3")
            ]
        return found

    def _tiny(self, model: TinyModel, method: str | None = None) -> Measured:
        length = model.length
        seeds = [replace(model, seed=seed) for seed in range(self.seeds)]
        return Measured(
            name=model.configuration + (f", {method} x4" if method else ""),
            models=seeds,
            trained=length,
            measures={
                "misalignment": {"lengths": [length], "windows": self.windows},
                "perplexity": {"lengths": [length, 4 * length], "segments": self.segments},
                "recall": {"distances": [length], "pairs": self.segments, "passage": 32, "scored": 24},
            },
            method=method,
            factor=4 if method else 1,
        )


def _real(name: str, trained: int, beyond: float, method: str | None = None) -> Measured:
    """A real model; `beyond` / T is the longest context that is read, which for Gemma lies within T."""
    short = trained if beyond > 1 else round(trained * beyond / 2)
    return Measured(
        name=name + (f", {method} x2" if method else ""),
        models=[name],
        trained=short,
        measures={
            "misalignment": {"lengths": [short], "windows": 4},
            "perplexity": {"lengths": [short, 2 * short], "segments": 2},
            "eval": {
                "tasks": ["babilong_qa1"],
                "mode": "likelihood",
                "lengths": [2048],
                "depths": [0.0, 50.0],
                "samples": 10,
            },
        },
        method=method,
        factor=2 if method else 1,
        group=name,
    )


_BASE = TinyModel(steps=300)
SIBLINGS = (
    _BASE,
    *(TinyModel(steps=300, encoding=encoding) for encoding in ("nope", "alibi", "learned")),
    TinyModel(steps=300, width=64),
    TinyModel(steps=300, layers=2),
    TinyModel(steps=300, length=64),
    TinyModel(steps=300, length=256),
    TinyModel(steps=100),
    TinyModel(steps=700),
)
SCALES = {
    "default": Size(tiny=SIBLINGS, real=True, windows=48, segments=48),
    "laptop": Size(tiny=SIBLINGS, real=True, windows=48, segments=48),
    "smoke": Size(
        tiny=(TinyModel(steps=2, width=32, layers=1, length=32),), real=False, windows=2, segments=2, seeds=1
    ),
}


def run(out: Path, scale: Size, *, resume: bool = False, overwrite: bool = False) -> Results:
    """Measure all models."""
    settings = {"windows": scale.windows, "segments": scale.segments, "seeds": scale.seeds}
    return measure_models(
        "table1", scale.models(), out, settings=settings, resume=resume, overwrite=overwrite
    )


def numbers(results: Results, *, group: str | None = None) -> dict[str, dict[str, float]]:
    """Each model's predictors and scores; the score is at the longest context that was read."""
    found: dict[str, dict[str, float]] = {}
    for name, facts in results.config["models"].items():
        if group is not None and facts["group"] != group:
            continue
        lengths = facts["measures"]["perplexity"]["lengths"]
        wanted = {**_QUANTITIES, LONG: loss(max(lengths) / facts["trained"])}
        own = numbers_of(results, wanted)[name]
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


def relations(results: Results) -> dict[str, list[Related]]:
    """The verdicts over all models, and over those that share text and tokenizer."""
    return {
        "all": relate(RELATIONS, numbers(results)),
        "small": relate(RELATIONS, numbers(results, group="tiny")),
    }


def models_table(results: Results) -> Table:
    """Every model with its predictors and scores."""
    names = (SHORT, SCE, ENTROPY, JEFFREYS, LONG, RISE)
    lines: list[list[Cell]] = [
        [model, *(own.get(name) for name in names)] for model, own in numbers(results).items()
    ]
    return Table(
        columns=["model", *names], rows=lines, caption="Every model, nats; means over pretraining seeds"
    )


def sections(results: Results, folder: Path) -> list[Section]:
    """The table as one section of a page."""
    related = relations(results)
    return [
        Section(
            title="Table 1: does misalignment go with long-context scores?",
            paragraphs=[
                "The paper correlates SCE with the log perplexity at 16k tokens over seven models. Losses of models "
                "with other tokenizers are not of the same tokens, so the tiny models, which share text and "
                "tokenizer, are judged alone too.",
                of_the_papers_models(),
                *(
                    f"{who.capitalize()} models: {one.sentence}"
                    for who, several in related.items()
                    for one in several
                ),
            ],
            tables=[
                *(relations_table(several, caption=f"Over {who} models") for who, several in related.items()),
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


STUDY = Study(
    title="Table 1: does misalignment go with long-context scores?",
    parts=(
        Part(
            run=run,
            sections=sections,
            scales=SCALES,
            plan=lambda size: plan_models("table1", size.models()),
        ),
    ),
    takes=("seeds",),
)
