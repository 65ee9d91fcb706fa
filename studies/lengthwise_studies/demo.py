"""The demo: where the context of two models ends, a real model before and after training, the small study."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

from lengthwise.report.drawing import Picture
from lengthwise.report.figures import (
    limit_curves,
    loss_by_length,
    misalignment_parts,
    training_curves,
)
from lengthwise.report.html import Section
from lengthwise.report.sentence import sce_sentence
from lengthwise.report.tables import side_by_side
from lengthwise.results import Results
from lengthwise.runs import read_metrics
from lengthwise.settings import Dtype
from lengthwise_studies import tiny_books
from lengthwise_studies.experiments import Arm, Experiment, Scale
from lengthwise_studies.paired_claims import Quantity, arms_table, by_line, first_estimate
from lengthwise_studies.recall import recall_by_distance
from lengthwise_studies.skeleton import Part, Study
from lengthwise_studies.store import arm_folder

BEFORE, AFTER = Arm(name="before"), Arm(name="after", changes=())
REAL_MODEL = Experiment(
    kind="real-model",
    recipe="smollm2-lora",
    reference=BEFORE.name,
    # bf16 rounding alone is a few hundredths of the disagreement measured here.
    dtype="float32",
    fast_training=True,
    arms=(BEFORE, AFTER),
    notes=(
        "{recipe.steps} steps of {recipe.batch.size} pairs of {recipe.length} tokens are {tokens:,} tokens: enough "
        "to see that the objective trains and what its parts do. They cannot show how the model behaves far beyond "
        "its training length, nor whether a benchmark score moves.",
        "There is no control arm here: a change can come from training on these books as well as from the term. The "
        "small study separates the two.",
        "Held-out text: {documents} whole books. Before and after are measured on the same tokens.",
    ),
)
_SHOWN = ("sce", "entropy", "jeffreys", "loss", "perplexity", "benefit")
_LIMITS = (
    Quantity("sound up to (tokens)", "limit", "sound_up_to"),
    Quantity("context used up to (tokens)", "limit", "used_up_to"),
)


def _drawn(*pictures: Picture | None) -> list[Picture]:
    return [picture for picture in pictures if picture is not None]


def _real_sections(results: Results, folder: Path) -> list[Section]:
    """The numbers before and after, and what changed; the training log is in its run folder."""
    values = [row for row in results.rows if row.is_headline and row.metric in _SHOWN]
    changes = [row for row in results.rows if row.is_whole and row.reference and row.metric in _SHOWN]
    recipe = results.config["recipe"]
    metrics = read_metrics(arm_folder(results, AFTER.name) / "train" / "metrics.jsonl")
    before = sce_sentence([row for row in results.rows if row.arm == BEFORE.name])
    return [
        Section(
            title="A real model, before and after a few steps",
            paragraphs=[
                f"`{results.model_name}` on books that it is not trained on here: measured, trained for "
                f"{recipe['steps']} LoRA steps with {recipe['objective']['divergence']} at weight "
                f"{recipe['objective']['alpha']:g} (L = {recipe['length']}), and measured again on the same tokens.",
                *([before] if before else []),
            ],
            tables=[
                side_by_side(
                    [*values, *(replace(row, arm="after - before") for row in changes)],
                    caption="Before and after on the same tokens, with 95 % intervals over documents",
                )
            ],
            figures=_drawn(
                misalignment_parts(results.rows, name="real-parts"),
                loss_by_length(results.rows, name="real-loss-by-length"),
                recall_by_distance(results.rows, name="real-recall"),
                training_curves({"LoRA": metrics}, name="real-training"),
            ),
            notes=results.notes,
        )
    ]


def _limit_sections(results: Results, folder: Path) -> list[Section]:
    """The two limits of each arm: `limit` as it is and with YaRN."""
    trained = results.provenance["model"]["trained_length"]
    table = arms_table(
        by_line(results.rows, lambda row: row.arm if row.reference is None else None),
        _LIMITS,
        first_estimate,
        caption=f"{results.model_name}: effective context, 95 % intervals over documents",
    )
    return [
        Section(
            title=f"Where the context of {results.model_name} ends",
            paragraphs=[
                f"`{results.model_name}` was trained for {trained} tokens. Predictions are sound while reading all "
                "context is no worse than reading its end alone, and context is used while a repeated passage is "
                "recognised.",
            ],
            tables=[table],
            figures=_drawn(limit_curves(results.rows, name=folder.name)),
            notes=results.notes,
        )
    ]


def _real_scale(
    model: str, windows: int, lengths: list[int], distances: list[int], steps: int | None
) -> Scale:
    measures = {
        "misalignment": {"lengths": lengths[-2:-1], "windows": windows, "batch_size": 4},
        "perplexity": {"lengths": lengths, "windows": 4, "batch_size": 4},
        "recall": {"distances": distances, "windows": 4, "passage": 64, "scored": 48, "batch_size": 4},
    }
    return Scale(model=model, measures=measures, steps=steps)


def _limit(model: str, factor: float, dtype: Dtype | Literal["fast"], **measured: int) -> Part:
    experiment = Experiment(
        kind="limit-study",
        dtype=dtype,
        arms=(Arm(name="as it is"), Arm(name=f"YaRN x{factor:g}", method="yarn", factor=factor)),
        notes=(
            "Windows of held-out books, the same in both arms: {measures[limit][windows]}. Context up to "
            "{measures[limit][max_length]} tokens, compared with the last {measures[limit][reference]}.",
        ),
    )
    smoke = {"max_length": 256, "reference": 32, "windows": 2}
    scales = {
        "default": Scale(model=model, measures={"limit": measured}),
        "smoke": Scale(model="tiny-books", measures={"limit": smoke}),
    }
    return experiment.part(
        _limit_sections, scales, folder=f"limit-{model}", heading=f"Effective context: {model}"
    )


# More seeds are `reproduce tiny-books`. Here the whole page has to be done in five minutes of two cores.
_SMALL_STUDY = replace(
    tiny_books.SCALES["default"], measures=tiny_books.measures(windows=32, segments=24, pairs=64), steps=40
)
DEMO = Study(
    title="Do predictions hold as the context grows?",
    lead=(
        "Up to which length can a language model read, and what happens when it is trained so that its predictions "
        "do not depend on how much context is cut off?",
        "SCE, the paper's number, is the sum of two parts: entropy (how sharp the predictions are) and Jeffreys (how "
        "far the two predictions disagree). They are always shown apart, because only the second is alignment.",
    ),
    parts=(
        _limit("tiny-books", 4, "auto", max_length=1024, reference=32, windows=12),
        # The tolerance is a tenth of a nat: bfloat16 is exact enough, and much faster.
        _limit("smollm2-135m", 2, "fast", max_length=8192, reference=1024, windows=1),
        REAL_MODEL.part(
            _real_sections,
            {
                "default": _real_scale("smollm2-135m", 4, [256, 512], [64, 512], None),
                "smoke": _real_scale("tiny-books", 4, [64, 128], [64, 128], 2),
            },
            folder="real-model",
            heading="A real model",
        ),
        tiny_books.EXPERIMENT.part(
            tiny_books.sections,
            {**tiny_books.SCALES, "default": _SMALL_STUDY},
            folder="tiny-books",
            heading="The small study",
        ),
    ),
)
