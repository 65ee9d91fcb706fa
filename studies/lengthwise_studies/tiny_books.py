"""The small controlled study: what does each term of the objective do to a model of 1M parameters?

`tiny-books` is trained from scratch at L = 128, then fine-tuned in arms that share data, offsets e and both
cross entropies, so only the term differs. The same model with YaRN x4 and no training is the yardstick for a gain
at 4L.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from lengthwise.report.figures import loss_by_length
from lengthwise.report.html import Section
from lengthwise.report.tables import Cell, Table, row_estimate
from lengthwise.results import Results, Row, rows_with
from lengthwise_studies.experiments import Arm, Experiment, Scale
from lengthwise_studies.paired_claims import Quantity, arms_table
from lengthwise_studies.paper.methods import ENTROPY, JEFFREYS, PLAIN, SCE, term
from lengthwise_studies.paper.sizes import PARTS
from lengthwise_studies.skeleton import Study

LENGTH = 128
YARN, START = "YaRN x4, untrained", "before fine-tuning"
DISTANCES = (64, 128, 256)


EXPERIMENT = Experiment(
    kind="tiny-books",
    recipe="tiny-books",
    reference=PLAIN,
    seeded=True,
    arms=(
        Arm(name=START),
        Arm(name=YARN, method="yarn", factor=4),
        term(PLAIN, "sce", 0.0, question="the baseline: the same windows, no term"),
        term(SCE, "sce", 0.1, question="the paper's objective at the weight that it recommends"),
        term(ENTROPY, "entropy", 0.1, question="the control: is SCE more than sharpening?"),
        term(JEFFREYS, "jeffreys", 10.0, question="the disagreement alone, weighted to matter"),
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


def measures(*, windows: int, segments: int, pairs: int) -> dict[str, dict[str, Any]]:
    """Three measures at the lengths of tiny-books, of this many samples."""
    return {
        "misalignment": {"lengths": [LENGTH], "windows": windows, "batch_size": 8},
        "perplexity": {"lengths": [n * LENGTH for n in (1, 2, 4)], "windows": segments, "batch_size": 8},
        "recall": {
            "distances": list(DISTANCES),
            "windows": pairs,
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
    *PARTS[1:],
    *(Quantity(heading=f"recall at {d}", task="recall", metric="benefit", distance=d) for d in DISTANCES),
)
"""The lines of the table; lengths and distances are tokens."""
_DECIMALS = {"loss": 3, "loss_best_temperature": 3, "entropy": 2, "jeffreys": 4, "benefit": 4}


def sections(results: Results, folder: Path) -> list[Section]:
    """The study as one section of a page."""
    plain = [row for row in results.rows if row.reference is None]
    asked = "; ".join(f"{arm.name} ({arm.question})" for arm in EXPERIMENT.arms if arm.question)
    picture = loss_by_length(plain)
    return [
        Section(
            title="A small controlled study",
            paragraphs=[
                f"A Llama of about 1M parameters is trained from scratch on the books at L = {LENGTH} tokens, then "
                f"fine-tuned in four arms on the same windows with the same offsets: {asked}. For comparison: the "
                "same model with YaRN x4 and no training.",
            ],
            tables=[differences_beside_plain(results, START)],
            figures=[picture] if picture else [],
            notes=results.notes,
        )
    ]


def differences_beside_plain(results: Results, *more: str) -> Table:
    """Plain cross entropy's own numbers, averaged over seeds, and beside them what every other arm changes."""
    seeds = len({row.seed for row in results.rows if row.reference is not None})
    spread = "mean and standard deviation over seeds" if seeds > 1 else "95 % interval over documents"
    lines = {
        arm: rows_with(results.rows, arm=arm, reference=None if arm == PLAIN else PLAIN)
        for arm in (PLAIN, SCE, ENTROPY, JEFFREYS, YARN, *more)
    }
    by_arm = arms_table(lines, NUMBERS, _cell)
    return Table(
        columns=["", *(str(name) for name, *_ in by_arm.rows)],
        rows=[list(line) for line in zip(by_arm.columns, *by_arm.rows, strict=True)][1:],
        caption=f"{PLAIN} in nats per token, L = {LENGTH}, and the paired differences of the others from it "
        f"({seeds} seed{'s' if seeds > 1 else ''}; {spread}): lower is better, except for recall",
    )


def _cell(rows: Sequence[Row]) -> Cell:
    """A number of an arm, or its difference: an interval for one seed, mean and standard deviation for several."""
    values = [row.value for row in rows if row.value is not None]
    if not values:
        return None
    if rows[0].reference is not None and len(rows) == 1:
        return row_estimate(rows[0])
    decimals = _DECIMALS[rows[0].metric]
    if rows[0].reference is None:
        return f"{fmean(values):.{decimals}f}"
    return f"{fmean(values):+.{decimals}f} ± {stdev(values):.{decimals}f}"


TINY_BOOKS = Study(
    title="What does each term of the objective do?",
    parts=(EXPERIMENT.part(sections, SCALES),),
    takes=("seeds", "steps"),
)
