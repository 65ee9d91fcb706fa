"""Which views should agree? Truncated windows, or the same tokens with and without a gap in their positions.

`tiny-books` with YaRN x4 is fine-tuned in four arms on equally many tokens. Loss within the extension has nothing to
gain, so recall counts: the benefit of a repeated passage, by distance.

Sources: agreement of contiguous and re-positioned views of the same tokens is the distillation of LongReD (ACL 2025)
and RoPE-perturbed self-distillation (arXiv 2604.14339). The gapped positions are PoSE's.
"""

from __future__ import annotations

from pathlib import Path

from lengthwise.report.figures import loss_by_length, recall_by_distance
from lengthwise.report.html import Section
from lengthwise.results import Results
from lengthwise.studies.arm_tables import differences_table, loss_lines, mean_of, recall_lines, values_table
from lengthwise.studies.experiments import Arm, Experiment, Scale
from lengthwise.studies.skeleton import Study
from lengthwise.studies.tiny_books import LENGTH, measures

START, BASELINE = "before fine-tuning", "truncation, CE"
DISTANCES = (64, 128, 256, 384)
_TRUNCATION = ("views=truncation", "positions=null", "objective.detach=none")

EXPERIMENT = Experiment(
    kind="gap-views",
    recipe="tiny-books-gap",
    reference=BASELINE,
    seeded=True,
    arms=(
        Arm(name=START, method="yarn", factor=4, compared=False),
        Arm(
            name=BASELINE,
            changes=(*_TRUNCATION, "objective.divergence=sce", "objective.alpha=0"),
            question="the baseline",
        ),
        Arm(
            name="truncation, Jeffreys 10",
            changes=(*_TRUNCATION, "objective.divergence=jeffreys", "objective.alpha=10"),
            question="the paper's views",
        ),
        Arm(name="gap, CE", changes=("objective.alpha=0",), question="PoSE: both views, no term"),
        Arm(
            name="gap, teacher 1",
            changes=(),
            question="the contiguous view teaches the gapped one, as in LongReD",
        ),
    ),
    notes=(
        "Held-out text: {documents} whole books. Every arm is trained on equally many tokens and measured on the "
        "same tokens.",
        "All arms have YaRN x4, in training and in measurement. {seeds} of one pretrained checkpoint.",
    ),
)


SCALES = {
    "default": Scale(
        model="tiny-books", measures=measures(windows=48, segments=64, pairs=192, distances=DISTANCES)
    ),
    "smoke": Scale(
        model="tiny-books", measures=measures(windows=2, segments=2, pairs=2, distances=DISTANCES), steps=2
    ),
}
LOSSES, RECALLS = loss_lines(LENGTH), recall_lines(DISTANCES)


def sections(results: Results, folder: Path) -> list[Section]:
    """The study as one section of a page."""
    plain = [row for row in results.rows if row.reference is None]
    pictures = (loss_by_length(plain, name="gap-loss"), recall_by_distance(plain, name="gap-recall"))
    arms = [arm.name for arm in EXPERIMENT.arms]
    asked = "; ".join(f"{arm.name} ({arm.question})" for arm in EXPERIMENT.arms if arm.question)
    lines = (*LOSSES, *RECALLS)
    return [
        Section(
            title="Truncated windows and gaps in positions",
            paragraphs=[
                f"A Llama of about 1M parameters, trained at L = {LENGTH} tokens, is extended by YaRN x4 and "
                f"fine-tuned in four arms: {asked}.",
                *reading(results),
            ],
            tables=[
                values_table(
                    results,
                    arms,
                    lines,
                    caption="Nats per token: lower is better for loss, higher for recall",
                ),
                differences_table(results, arms[2:], lines, reference=BASELINE),
            ],
            figures=[picture for picture in pictures if picture is not None],
            notes=results.notes,
        )
    ]


def reading(results: Results) -> list[str]:
    """What the numbers of this run say; every sentence is made from them."""
    sentences = []
    for arm in (arm.name for arm in EXPERIMENT.arms[2:]):
        ratios = ", ".join(
            f"{mean_of(results, arm, line) / mean_of(results, BASELINE, line):.2f} at {line.distance}"
            for line in RECALLS
        )
        costs = ", ".join(
            f"{mean_of(results, arm, line) - mean_of(results, BASELINE, line):+.3f} at "
            f"{line.heading.removeprefix('loss at ')}"
            for line in LOSSES
        )
        sentences.append(f"{arm}: recall times {ratios} of {BASELINE}'s; loss {costs}.")
    return sentences


GAP_VIEWS = Study(
    title="Which views should agree?", parts=(EXPERIMENT.part(sections, SCALES),), takes=("seeds", "steps")
)
