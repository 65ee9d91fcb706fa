"""The small study as tables, pictures and sentences, made from its rows alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from lengthwise.files import atomic_write_text
from lengthwise.report.differences import paired_differences
from lengthwise.report.figures import loss_by_length, recall_by_distance
from lengthwise.report.html import Section, render_page
from lengthwise.report.tables import Cell, Estimate, Table
from lengthwise.results import Results, Row
from lengthwise.studies.produced import Produced
from lengthwise.studies.tiny_books import ARMS, LENGTH, PLAIN, START, YARN, run_tiny_books


@dataclass(frozen=True)
class Column:
    """One number of the study's table."""

    heading: str
    task: str
    metric: str
    decimals: int
    length: int | None = None
    distance: int | None = None

    def matches(self, row: Row) -> bool:
        """Whether `row` is this number of some arm (and not a bin of it)."""
        return (
            row.task == self.task
            and row.metric == self.metric
            and row.position is None
            and row.context_other is None
            and (self.length is None or row.length == self.length)
            and row.distance == self.distance
        )


COLUMNS = (
    *(Column(f"loss at {n}L", "perplexity", "loss", 3, length=n * LENGTH) for n in (1, 2, 4)),
    Column("loss at 4L, best temperature", "perplexity", "loss_best_temperature", 3, length=4 * LENGTH),
    Column("entropy part", "misalignment", "entropy", 2, length=LENGTH),
    Column("Jeffreys part", "misalignment", "jeffreys", 4, length=LENGTH),
    *(Column(f"recall at {d}", "recall", "benefit", 4, distance=d) for d in (64, 128, 256)),
)


def produce_tiny_books(
    out: Path, *, seeds: int = 1, resume: bool = False, overwrite: bool = False
) -> Produced:
    """Run the study in `out` (or go on with it) and write its page; raises as `run_tiny_books`."""
    results = run_tiny_books(out, seeds=seeds, resume=resume, overwrite=overwrite)
    section = study_section(results)
    page = out / "report.html"
    atomic_write_text(
        page,
        render_page(
            "What does each term of the objective do?",
            section.paragraphs[0],
            [section],
            {"Where it comes from": provenance_of(results)},
            partial=results.partial,
        ),
    )
    return Produced(page, list(section.tables))


def provenance_of(results: Results) -> dict[str, Any]:
    """Settings and origin of a study, for the end of its page."""
    return {"settings": results.config, **results.provenance}


def values_table(results: Results) -> Table:
    """One column per arm: every number, averaged over seeds."""
    arms = [START, *ARMS, YARN]
    rows = [row for row in results.rows if row.reference is None]
    return Table(
        columns=["", *arms],
        rows=[[column.heading, *(mean_cell(rows, arm, column) for arm in arms)] for column in COLUMNS],
        caption=f"The small study in nats per token, L = {LENGTH}: lower is better, but for recall",
    )


def differences_table(results: Results) -> Table:
    """One column per arm: every number minus plain CE's; intervals for one seed, mean and sd for several."""
    arms = [*(arm for arm in ARMS if arm != PLAIN), YARN]
    rows = [row for row in results.rows if row.reference is not None]
    seeds = len({row.seed for row in rows})
    spread = "mean and standard deviation over seeds" if seeds > 1 else "95 % interval over documents"
    return Table(
        columns=["", *arms],
        rows=[[column.heading, *(difference_cell(rows, arm, column) for arm in arms)] for column in COLUMNS],
        caption=f"Paired difference from plain CE ({seeds} seed{'s' if seeds > 1 else ''}; {spread})",
    )


def study_section(results: Results) -> Section:
    """The study as one part of a page."""
    plain = [row for row in results.rows if row.reference is None]
    drawn = [
        row for row in results.rows if row.reference is not None and row.position is None and row.seed == 0
    ]
    losses = [row for row in drawn if row.metric == "loss"]
    recalls = [row for row in drawn if row.metric == "benefit"]
    # So that an arm has one colour in all pictures.
    series = list(dict.fromkeys(row.arm for row in plain if row.arm is not None))
    pictures = (
        loss_by_length(plain, name="study-loss-by-length"),
        recall_by_distance(plain, name="study-recall"),
        paired_differences(losses, better="lower", series=series, name="study-loss-differences"),
        paired_differences(recalls, better="higher", series=series, name="study-recall-differences"),
    )
    return Section(
        title="A small controlled study",
        paragraphs=[
            f"A Llama of about 1M parameters is trained from scratch on the books at L = {LENGTH} tokens, then "
            "fine-tuned in four arms on the same windows with the same offsets: "
            + "; ".join(f"{arm.name} ({arm.question})" for arm in ARMS.values())
            + f". Beside them: the same model with {YARN.replace(', untrained', '')} switched on and no training.",
            *reading(results),
        ],
        tables=[values_table(results), differences_table(results)],
        figures=[picture for picture in pictures if picture is not None],
        notes=results.notes,
    )


def reading(results: Results) -> list[str]:
    """What the numbers of this run say, each sentence made from them (none is fixed in advance)."""
    rows = [row for row in results.rows if row.reference is not None]
    at_l, at_4l = COLUMNS[0], COLUMNS[2]
    entropy, disagreement = COLUMNS[4], COLUMNS[5]
    far = COLUMNS[-1]

    def mean(arm: str, column: Column) -> float:
        return fmean(row.value for row in rows_of(rows, arm, column) if row.value is not None)

    sce, control, jeffreys = "SCE 0.1", "entropy 0.1", "Jeffreys 10"
    gap = mean(sce, at_4l) - mean(control, at_4l)
    return [
        f"SCE at 0.1 changes the loss by {mean(sce, at_l):+.3f} nats at L and {mean(sce, at_4l):+.3f} at 4L; its "
        f"entropy part by {mean(sce, entropy):+.2f} and its disagreement by {mean(sce, disagreement):+.4f}. "
        f"Penalising the entropy alone does the same to within {abs(gap):.3f} nats at 4L.",
        f"Jeffreys at 10 changes the loss by {mean(jeffreys, at_l):+.3f} at L and {mean(jeffreys, at_4l):+.3f} at "
        f"4L, and what a passage {far.distance} tokens back is worth by {mean(jeffreys, far):+.4f}.",
        f"Switching YaRN on, without any training, changes the loss at 4L by {mean(YARN, at_4l):+.3f}.",
    ]


def rows_of(rows: Sequence[Row], arm: str, column: Column) -> list[Row]:
    """The rows of one number of one arm, a row for each seed."""
    return [row for row in rows if row.arm == arm and column.matches(row)]


def mean_cell(rows: Sequence[Row], arm: str, column: Column) -> Cell:
    """A number of an arm, averaged over seeds."""
    values = [row.value for row in rows_of(rows, arm, column) if row.value is not None]
    return f"{fmean(values):.{column.decimals}f}" if values else None


def difference_cell(rows: Sequence[Row], arm: str, column: Column) -> Cell:
    """A difference of an arm: with its interval for one seed, mean and standard deviation for several."""
    found = [row for row in rows_of(rows, arm, column) if row.value is not None]
    if not found:
        return None
    if len(found) == 1:
        return Estimate(found[0].value, found[0].ci_low, found[0].ci_high, signed=True)
    values = [row.value for row in found if row.value is not None]
    return f"{fmean(values):+.{column.decimals}f} ± {stdev(values):.{column.decimals}f}"
