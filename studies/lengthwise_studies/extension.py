"""A real model read to twice its context: each rope method untrained, and PI before and after a short LoRA run.

SmolLM2 was trained for 8192 tokens. Every arm predicts the same held-out tokens in windows of 16384, so losses by
position and their differences are paired. Collapse is a matter of nats, so it is measured in bfloat16 where that is
fast.
"""

from __future__ import annotations

from pathlib import Path

from lengthwise.report.figures import loss_by_position
from lengthwise.report.html import Section
from lengthwise.report.tables import Table, row_estimate
from lengthwise.results import Results, rows_with
from lengthwise_studies.experiments import Arm, Experiment, Scale
from lengthwise_studies.far.studies import PARTS
from lengthwise_studies.paired_claims import by_line
from lengthwise_studies.skeleton import Study

NONE = "none"
_PI = ("extend.method=pi", "extend.factor=2.0")
_CE = (*_PI, "objective.divergence=sce", "objective.alpha=0.0")
_JEFFREYS = (*_PI, "objective.divergence=jeffreys", "objective.alpha=10.0")

EXPERIMENT = Experiment(
    kind="extension",
    recipe="smollm2-lora",
    reference=NONE,
    dtype="fast",
    fast_training=True,
    arms=(
        Arm(name=NONE),
        Arm(name="dynamic", method="dynamic_ntk", factor=2.0),
        Arm(name="YaRN x2", method="yarn", factor=2.0),
        Arm(name="NTK x2", method="ntk", factor=2.0),
        Arm(name="PI x2", method="pi", factor=2.0),
        Arm(name="PI x2, LoRA with CE", changes=_CE),
        Arm(name="PI x2, LoRA with Jeffreys 10", changes=_JEFFREYS),
    ),
    notes=(
        "{measures[perplexity][windows]} windows of {measures[perplexity][lengths][0]} tokens of held-out books. "
        "Every arm predicts the same tokens. Computed in {precision}.",
        "LoRA: {recipe.steps} steps of two windows of {recipe.length} tokens, the same in all arms.",
    ),
)


def _scale(model: str, length: int, bins: int, steps: int, window: int) -> Scale:
    measures = {"perplexity": {"lengths": [length], "windows": 3, "position_bins": bins}}
    changes = (f"length={window}", "batch.size=1", "batch.micro=1")
    return Scale(model=model, measures=measures, steps=steps, changes=changes)


SCALES = {
    "default": _scale("smollm2-135m", 16384, 16, 20, 1024),
    "smoke": _scale("tiny-books", 256, 4, 2, 64),
}


def sections(results: Results, folder: Path) -> list[Section]:
    """Table and picture of the loss by position."""
    drawn = [row for row in results.rows if row.reference is None]
    picture = loss_by_position(drawn, name="extension-loss-by-position")
    trained = results.provenance["model"]["trained_length"]
    [length] = results.config["measures"]["perplexity"]["lengths"]
    losses = rows_with(results.rows, task="perplexity", metric="loss", reference=None)
    whole = [row for row in losses if row.position is None]
    bins = [row for row in losses if row.position is not None]
    lines = by_line(bins, lambda row: f"{row.position}-{(row.position_end or 0) - 1}") | {"all": whole}
    table = Table(
        columns=["", *(arm.name for arm in EXPERIMENT.arms)],
        rows=[[name, *map(row_estimate, of_line)] for name, of_line in lines.items()],
        caption="Loss (nats per token) by position, with 95 % intervals over documents",
    )
    return [
        Section(
            title="Loss by position to twice the context",
            paragraphs=[
                f"`{results.model_name}` was trained for {trained} tokens and reads {length} here: the loss of "
                "the same tokens by their position in the window, for each way to extend the context."
            ],
            tables=[table],
            figures=[] if picture is None else [picture],
            notes=results.notes,
        )
    ]


EXTENSION = Study(
    title="How far does a model hold, and which extension carries it further?",
    parts=(EXPERIMENT.part(sections, SCALES), PARTS["far-extension"].part(), PARTS["far-yarn-4"].part()),
    takes=("steps",),
)
