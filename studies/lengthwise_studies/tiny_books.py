"""The small controlled study: what does each term of the objective do to a model of 1M parameters?

`tiny-books` is trained from scratch at L = 128, then fine-tuned in arms that share data, offsets e and both
cross entropies, so only the term differs. The same model with YaRN x4 and no training is the yardstick for a gain
at 4L.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from lengthwise.report.drawing import paired_differences
from lengthwise.report.figures import loss_by_length, recall_by_distance
from lengthwise.report.html import Section
from lengthwise.report.tables import Cell, Table, row_estimate
from lengthwise.results import Results, Row
from lengthwise_studies.experiments import Arm, Experiment, Scale
from lengthwise_studies.paired_claims import Quantity
from lengthwise_studies.skeleton import Study

LENGTH = 128
PLAIN, SCE, ENTROPY, JEFFREYS = "plain CE", "SCE 0.1", "entropy 0.1", "Jeffreys 10"
YARN, START = "YaRN x4, untrained", "before fine-tuning"
DISTANCES = (64, 128, 256)


def _term(name: str, divergence: str, alpha: float, question: str) -> Arm:
    return Arm(
        name=name,
        changes=(f"objective.divergence={divergence}", f"objective.alpha={alpha}"),
        question=question,
    )


EXPERIMENT = Experiment(
    kind="tiny-books",
    recipe="tiny-books",
    reference=PLAIN,
    seeded=True,
    arms=(
        Arm(name=START),
        Arm(name=YARN, method="yarn", factor=4),
        _term(PLAIN, "sce", 0.0, "the baseline: the same windows, no term"),
        _term(SCE, "sce", 0.1, "the paper's objective at the weight that it recommends"),
        _term(ENTROPY, "entropy", 0.1, "the control: is SCE more than sharpening?"),
        _term(JEFFREYS, "jeffreys", 10.0, "the disagreement alone, weighted to matter"),
    ),
    notes=(
        "Held-out text: {documents} whole books that no training saw. Every arm is measured on the same tokens.",
        "Intervals of one model are over documents. Differences are paired: the same tokens, and in training the "
        "same windows, offsets e and cross entropies.",
        "{seeds} of one pretrained checkpoint. Another checkpoint may differ by more than the intervals say.",
        "The model is tiny, its context is 128 tokens, and it uses little distant text. Perplexity hardly punishes "
        "forgetting, so read recall beside it.",
    ),
)


def measures(
    *, windows: int, segments: int, pairs: int, distances: tuple[int, ...] = DISTANCES
) -> dict[str, dict[str, Any]]:
    """Three measures at the lengths of tiny-books, of this many samples."""
    return {
        "misalignment": {"lengths": [LENGTH], "windows": windows, "batch_size": 8},
        "perplexity": {"lengths": [n * LENGTH for n in (1, 2, 4)], "segments": segments, "batch_size": 8},
        "recall": {
            "distances": list(distances),
            "pairs": pairs,
            "passage": 64,
            "scored": 48,
            "batch_size": 8,
        },
    }


SCALES = {
    "default": Scale(model="tiny-books", measures=measures(windows=96, segments=64, pairs=192)),
    "smoke": Scale(model="tiny-books", measures=measures(windows=4, segments=4, pairs=4), steps=2),
}

_LOSSES = tuple(
    Quantity(heading=f"loss at {n}L", task="perplexity", metric="loss", times=n * LENGTH) for n in (1, 2, 4)
)
NUMBERS = (
    *_LOSSES,
    replace(_LOSSES[2], heading="loss at 4L, best temperature", metric="loss_best_temperature"),
    Quantity(heading="entropy part", task="misalignment", metric="entropy"),
    Quantity(heading="Jeffreys part", task="misalignment", metric="jeffreys"),
    *(Quantity(heading=f"recall at {d}", task="recall", metric="benefit", distance=d) for d in DISTANCES),
)
"""The lines of the tables; lengths and distances are tokens."""
_DECIMALS = {"loss": 3, "loss_best_temperature": 3, "entropy": 2, "jeffreys": 4, "benefit": 4}


def sections(results: Results, folder: Path) -> list[Section]:
    """The study as one section of a page."""
    plain = [row for row in results.rows if row.reference is None]
    drawn = [row for row in results.rows if row.reference and row.position is None and row.seed == 0]
    losses = [row for row in drawn if row.metric == "loss"]
    recalls = [row for row in drawn if row.metric == "benefit"]
    # One colour for an arm in all pictures.
    series = list(dict.fromkeys(row.arm for row in plain if row.arm is not None))
    pictures = (
        loss_by_length(plain, name="study-loss-by-length"),
        recall_by_distance(plain, name="study-recall"),
        paired_differences(losses, better="lower", series=series, name="study-loss-differences"),
        paired_differences(recalls, better="higher", series=series, name="study-recall-differences"),
    )
    trained = [arm.name for arm in EXPERIMENT.arms if arm.changes is not None]
    asked = "; ".join(f"{arm.name} ({arm.question})" for arm in EXPERIMENT.arms if arm.question)
    return [
        Section(
            title="A small controlled study",
            paragraphs=[
                f"A Llama of about 1M parameters is trained from scratch on the books at L = {LENGTH} tokens, then "
                f"fine-tuned in four arms on the same windows with the same offsets: {asked}. For comparison: the "
                "same model with YaRN x4 and no training.",
                *reading(results),
            ],
            tables=[
                values_table(
                    results,
                    [START, *trained, YARN],
                    caption=f"The small study in nats per token, L = {LENGTH}: lower is better, except for recall",
                ),
                differences_table(results, [*trained[1:], YARN]),
            ],
            figures=[picture for picture in pictures if picture is not None],
            notes=results.notes,
        )
    ]


def differences_beside_plain(results: Results) -> Table:
    """Plain cross entropy's own numbers, and beside them what every other arm changes."""
    others = [SCE, ENTROPY, JEFFREYS, YARN]
    plain, changes = values_table(results, [PLAIN]), differences_table(results, others)
    rows = [[*ours, *theirs[1:]] for ours, theirs in zip(plain.rows, changes.rows, strict=True)]
    return Table(columns=[*plain.columns, *others], rows=rows, caption="")


def values_table(results: Results, arms: Sequence[str], *, caption: str = "") -> Table:
    """Every number, averaged over seeds: one column for each arm."""

    def cell(rows: list[Row]) -> Cell:
        return f"{_mean(rows):.{_DECIMALS[rows[0].metric]}f}"

    return _table(results, arms, cell, caption=caption)


def differences_table(results: Results, arms: Sequence[str]) -> Table:
    """Every number minus plain CE's; an interval for one seed, mean and standard deviation for several."""
    seeds = len({row.seed for row in results.rows if row.reference is not None})
    spread = "mean and standard deviation over seeds" if seeds > 1 else "95 % interval over documents"
    caption = f"Paired difference from {PLAIN} ({seeds} seed{'s' if seeds > 1 else ''}; {spread})"

    def cell(rows: list[Row]) -> Cell:
        if len(rows) == 1:
            return row_estimate(rows[0])
        decimals = _DECIMALS[rows[0].metric]
        sd = stdev(row.value for row in rows if row.value is not None)
        return f"{_mean(rows):+.{decimals}f} ± {sd:.{decimals}f}"

    return _table(results, arms, cell, caption=caption, reference=PLAIN)


def _table(
    results: Results,
    arms: Sequence[str],
    cell: Callable[[list[Row]], Cell],
    *,
    caption: str,
    reference: str | None = None,
) -> Table:
    lines: list[list[Cell]] = []
    for number in NUMBERS:
        of_arms = [_rows_of(results, arm, number, reference) for arm in arms]
        lines.append([number.heading, *(cell(rows) if rows else None for rows in of_arms)])
    return Table(columns=["", *arms], rows=lines, caption=caption)


def _rows_of(results: Results, arm: str, number: Quantity, reference: str | None) -> list[Row]:
    """One number of one arm, a row for each seed."""
    return [
        row
        for row in results.rows
        if (row.arm, row.reference) == (arm, reference) and number.is_in(row, 1) and row.value is not None
    ]


def _mean(rows: Sequence[Row]) -> float:
    return fmean(row.value for row in rows if row.value is not None)


def reading(results: Results) -> list[str]:
    """What the numbers of this run say; every sentence is made from them."""
    at_l, at_4l, entropy, disagreement, far = NUMBERS[0], NUMBERS[2], NUMBERS[4], NUMBERS[5], NUMBERS[-1]

    def change(arm: str, number: Quantity) -> float:
        return _mean(_rows_of(results, arm, number, PLAIN))

    gap = change(SCE, at_4l) - change(ENTROPY, at_4l)
    return [
        f"SCE at 0.1 changes the loss by {change(SCE, at_l):+.3f} nats at L and {change(SCE, at_4l):+.3f} at 4L. Its "
        f"entropy part changes by {change(SCE, entropy):+.2f}, its disagreement by {change(SCE, disagreement):+.4f}. "
        f"Penalising the entropy alone does the same to within {abs(gap):.3f} nats at 4L.",
        f"Jeffreys at 10 changes the loss by {change(JEFFREYS, at_l):+.3f} at L and {change(JEFFREYS, at_4l):+.3f} "
        f"at 4L, and the benefit of a passage {far.distance} tokens back by {change(JEFFREYS, far):+.4f}.",
        f"YaRN without any training changes the loss at 4L by {change(YARN, at_4l):+.3f}.",
    ]


PART = EXPERIMENT.part(sections, SCALES)
TINY_BOOKS = Study(title="What does each term of the objective do?", parts=(PART,), takes=("seeds", "steps"))
