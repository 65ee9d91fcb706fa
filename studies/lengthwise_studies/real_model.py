"""A real model before and after a few steps with the objective: what so few steps can show, and what not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lengthwise.report.drawing import paired_differences
from lengthwise.report.figures import (
    jeffreys_by_position,
    loss_by_length,
    misalignment_parts,
    recall_by_distance,
    training_curves,
)
from lengthwise.report.html import Section
from lengthwise.report.tables import difference_rows, headline_rows, side_by_side
from lengthwise.report.terminal import sce_sentence
from lengthwise.results import Results, Row
from lengthwise.runs import read_metrics
from lengthwise_studies.experiments import Arm, Experiment, Scale
from lengthwise_studies.store import arm_folder

BEFORE, AFTER = Arm(name="before"), Arm(name="after", changes=())

EXPERIMENT = Experiment(
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
SCALES = {
    "default": Scale(
        model="smollm2-135m",
        measures={
            "misalignment": {"lengths": [512], "windows": 6, "batch_size": 4},
            "perplexity": {"lengths": [256, 512, 1024], "segments": 4, "batch_size": 4},
            "recall": {
                "distances": [64, 256, 1024],
                "pairs": 4,
                "passage": 64,
                "scored": 48,
                "batch_size": 4,
            },
        },
    ),
    "smoke": Scale(
        model="tiny-books",
        measures={
            "misalignment": {"lengths": [64], "windows": 4, "batch_size": 4},
            "perplexity": {"lengths": [64, 128], "segments": 4, "batch_size": 4},
            "recall": {"distances": [64, 128], "pairs": 4, "passage": 64, "scored": 48, "batch_size": 4},
        },
        steps=2,
    ),
}
_SHOWN = ("sce", "entropy", "jeffreys", "loss", "perplexity", "benefit")


def sections(results: Results, folder: Path) -> list[Section]:
    """The run as one section of a page; the training log is in its run folder."""
    values = [row for row in headline_rows(results.rows) if row.metric in _SHOWN]
    changes = [row for row in difference_rows(results.rows) if row.metric in _SHOWN]
    recipe = results.config["recipe"]
    metrics = read_metrics(arm_folder(results, AFTER.name) / "train" / "metrics.jsonl")
    losses = [row for row in changes if row.metric == "loss"]
    pictures = (
        misalignment_parts(results.rows, name="real-parts"),
        jeffreys_by_position(results.rows, name="real-jeffreys-by-position"),
        loss_by_length(results.rows, name="real-loss-by-length"),
        recall_by_distance(results.rows, name="real-recall"),
        paired_differences(losses, better="lower", name="real-loss-differences"),
        training_curves({"LoRA": metrics}, name="real-training"),
    )
    before = sce_sentence([row for row in results.rows if row.arm == BEFORE.name])
    columns = [*values, *(replace(row, arm="after - before") for row in changes)]
    return [
        Section(
            title="A real model, before and after a few steps",
            paragraphs=[
                f"`{results.model_name}` on books that it is not trained on here: measured, trained for "
                f"{recipe['steps']} LoRA steps with {recipe['objective']['divergence']} at weight "
                f"{recipe['objective']['alpha']:g} (L = {recipe['length']}), and measured again on the same tokens.",
                *([before] if before else []),
                *_reading(changes),
            ],
            tables=[
                side_by_side(
                    columns, caption="Before and after on the same tokens, with 95 % intervals over documents"
                )
            ],
            figures=[picture for picture in pictures if picture is not None],
            notes=results.notes,
        )
    ]


def _reading(changes: list[Row]) -> list[str]:
    """Which changes are larger than their paired interval, in one sentence."""
    clear = [
        f"{row.metric} at {row.distance or row.length} ({row.value:+.4f})"
        for row in changes
        if row.metric in ("jeffreys", "entropy", "loss", "benefit")
        and row.value is not None
        and row.ci_low is not None
        and row.ci_high is not None
        and (row.ci_low > 0 or row.ci_high < 0)
    ]
    if not clear:
        return ["No change is larger than its paired interval: so few steps show nothing beyond noise here."]
    return ["Changes whose paired 95 % interval excludes zero: " + ", ".join(clear) + "."]


PART = EXPERIMENT.part(sections, SCALES)
