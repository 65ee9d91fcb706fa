"""Which views should agree? Truncated windows, or the same tokens with and without a gap in their positions.

`tiny-books` with YaRN x4 is fine-tuned in four arms on equally many tokens. Loss within the extension has nothing to
gain, so what counts is recall: what a passage is worth when it comes again, by distance.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from lengthwise.errors import UsageError
from lengthwise.files import atomic_write_text
from lengthwise.models import LoadedModel, load
from lengthwise.models.extension import extend
from lengthwise.report.figures import loss_by_length, recall_by_distance
from lengthwise.report.html import Section, render_page
from lengthwise.report.tables import Table
from lengthwise.results import Results, Row
from lengthwise.runs import RunFolder
from lengthwise.studies.evaluation import Evaluation, Plan, evaluate
from lengthwise.studies.produced import Produced
from lengthwise.studies.tiny_books_page import Column, difference_cell, mean_cell, provenance_of, rows_of
from lengthwise.text import TokenDocuments, load_corpus, tokenize
from lengthwise.training import open_run, read_recipe, train

MODEL = "tiny-books"
KIND = "gap-views"
RECIPE = "tiny-books-gap"
LENGTH = 128
START = "before fine-tuning"
_TRUNCATION = ("views=truncation", "positions=null", "objective.detach=none")


@dataclass(frozen=True)
class Arm:
    """One way to fine-tune: what differs from the recipe `tiny-books-gap`."""

    name: str
    changes: tuple[str, ...]
    question: str


ARMS: dict[str, Arm] = {
    arm.name: arm
    for arm in (
        Arm(
            "truncation, CE",
            (*_TRUNCATION, "objective.divergence=sce", "objective.alpha=0"),
            "the baseline",
        ),
        Arm(
            "truncation, Jeffreys 10",
            (*_TRUNCATION, "objective.divergence=jeffreys", "objective.alpha=10"),
            "the paper's views",
        ),
        Arm("gap, CE", ("objective.alpha=0",), "PoSE: both views, no term"),
        Arm("gap, teacher 1", (), "the contiguous view teaches the gapped one"),
    )
}
BASELINE = next(iter(ARMS))

PLAN = Plan(
    misalignment_length=LENGTH,
    windows=48,
    loss_lengths=(LENGTH, 2 * LENGTH, 4 * LENGTH),
    segments=64,
    distances=(64, 128, 256, 384),
    pairs=192,
)

LOSSES = tuple(Column(f"loss at {n}L", "perplexity", "loss", 3, length=n * LENGTH) for n in (1, 2, 4))
RECALLS = tuple(Column(f"recall at {d}", "recall", "benefit", 4, distance=d) for d in PLAN.distances)


def run_gap_views(
    out: Path | str,
    *,
    seeds: int = 1,
    steps: int | None = None,
    plan: Plan = PLAN,
    resume: bool = False,
    overwrite: bool = False,
) -> Results:
    """Run the study; finished arms and samples are kept in `out`, so an interrupted run goes on.

    Args:
        out: the run folder.
        seeds: fine-tuning seeds (windows, offsets and positions); each runs every arm.
        steps: fine-tuning steps in place of the recipe's.
        plan: how much is measured.
        resume, overwrite: as in `RunFolder`.

    Returns:
        Rows by arm and seed, and for each the paired difference from truncation without a term.

    Raises:
        UsageError: fewer than one seed; see `RunFolder`.
        Interrupted: Ctrl-C; finished arms stay.
    """
    if seeds < 1:
        raise UsageError(f"seeds is {seeds}", expected="1 or more")
    settings = {"seeds": seeds, "steps": steps or read_recipe(RECIPE).steps, "plan": plan.to_dict()}
    with RunFolder(
        out, kind=KIND, config=settings, writes=("parts",), resume=resume, overwrite=overwrite
    ) as folder:
        if folder.finished:
            return folder.read_results()
        start = load(MODEL)
        documents = tokenize(load_corpus("books", split="test"), start.tokenizer)
        parts = folder.path / "parts"
        extend(start.model, "yarn", factor=4)
        rows = evaluate(start, documents, plan, folder=parts / "start").rows(arm=START)
        for seed in range(seeds):
            rows += _run_seed(seed, documents, plan, steps=settings["steps"], folder=parts / f"seed-{seed}")
        results = Results(
            kind=KIND,
            model_name=MODEL,
            config=settings,
            rows=rows,
            notes=[
                f"Held-out text: {len(documents)} whole books; every arm is measured on the same tokens, and trained "
                "on equally many.",
                "All arms have YaRN x4, in training and in measurement. "
                f"{seeds} fine-tuning seed{'s' if seeds > 1 else ''} of one pretrained checkpoint.",
            ],
            provenance={"model": start.describe()},
        )
        folder.write_results(results)
        return results


def _run_seed(seed: int, documents: TokenDocuments, plan: Plan, *, steps: int, folder: Path) -> list[Row]:
    evaluations: dict[str, Evaluation] = {}
    for arm in ARMS.values():
        place = folder / arm.name.lower().replace(",", "").replace(" ", "-")
        model = _fine_tuned(arm, seed, steps=steps, folder=place / "train")
        evaluations[arm.name] = evaluate(model, documents, plan, folder=place)
    baseline = evaluations[BASELINE]
    rows: list[Row] = []
    for name, evaluation in evaluations.items():
        rows += evaluation.rows(arm=name, seed=seed)
        if name != BASELINE:
            rows += evaluation.differences(baseline, arm=name, reference=BASELINE, seed=seed)
    return rows


def _fine_tuned(arm: Arm, seed: int, *, steps: int, folder: Path) -> LoadedModel:
    recipe = read_recipe(RECIPE, [*arm.changes, f"seed={seed}", f"steps={steps}"])
    begun = (folder / "config.yaml").exists()
    with open_run(folder, recipe, resume=begun) as run:
        train(recipe, run, resume=begun)
    model = load(str(folder / "model"))
    model.name = MODEL
    return model


def produce_gap_views(
    out: Path, *, seeds: int = 1, resume: bool = False, overwrite: bool = False
) -> Produced:
    """Run the study in `out` (or go on with it) and write its page; raises as `run_gap_views`."""
    results = run_gap_views(out, seeds=seeds, resume=resume, overwrite=overwrite)
    section = gap_views_section(results)
    page = out / "report.html"
    atomic_write_text(
        page,
        render_page(
            "Which views should agree?",
            section.paragraphs[0],
            [section],
            {"Where it comes from": provenance_of(results)},
            partial=results.partial,
        ),
    )
    return Produced(page, list(section.tables))


def gap_views_section(results: Results) -> Section:
    """The study as one part of a page."""
    plain = [row for row in results.rows if row.reference is None]
    differences = [row for row in results.rows if row.reference is not None]
    seeds = len({row.seed for row in differences})
    spread = "mean and standard deviation over seeds" if seeds > 1 else "95 % interval over documents"
    columns = (*LOSSES, *RECALLS)
    pictures = (loss_by_length(plain, name="gap-loss"), recall_by_distance(plain, name="gap-recall"))
    return Section(
        title="Truncated windows and gaps in positions",
        paragraphs=[
            f"A Llama of about 1M parameters, trained at L = {LENGTH} tokens, is extended by YaRN x4 and fine-tuned "
            "in four arms: " + "; ".join(f"{arm.name} ({arm.question})" for arm in ARMS.values()) + ".",
            *reading(results),
        ],
        tables=[
            Table(
                columns=["", START, *ARMS],
                rows=[[c.heading, *(mean_cell(plain, arm, c) for arm in (START, *ARMS))] for c in columns],
                caption="Nats per token: lower is better for loss, higher for recall",
            ),
            Table(
                columns=["", *list(ARMS)[1:]],
                rows=[
                    [c.heading, *(difference_cell(differences, arm, c) for arm in list(ARMS)[1:])]
                    for c in columns
                ],
                caption=f"Paired difference from {BASELINE} ({seeds} seed{'s' if seeds > 1 else ''}; {spread})",
            ),
        ],
        figures=[picture for picture in pictures if picture is not None],
        notes=results.notes,
    )


def reading(results: Results) -> list[str]:
    """What the numbers of this run say, each sentence made from them."""
    rows = [row for row in results.rows if row.reference is None]

    def mean(arm: str, column: Column) -> float:
        return fmean(row.value for row in rows_of(rows, arm, column) if row.value is not None)

    sentences = []
    for arm in list(ARMS)[1:]:
        ratios = ", ".join(
            f"{mean(arm, column) / mean(BASELINE, column):.2f} at {column.distance}" for column in RECALLS
        )
        costs = ", ".join(
            f"{mean(arm, column) - mean(BASELINE, column):+.3f} at {column.heading.removeprefix('loss at ')}"
            for column in LOSSES
        )
        sentences.append(f"{arm}: recall times {ratios} of {BASELINE}'s; loss {costs}.")
    return sentences
