"""The tables and the page of any study on the screen's questions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lengthwise.report.html import Section
from lengthwise.report.row_tables import row_estimate
from lengthwise.report.tables import Cell, Table
from lengthwise.results import Results
from lengthwise.studies.arm_tables import Line, recall_lines
from lengthwise.studies.arms import Scale
from lengthwise.studies.experiments import Experiment
from lengthwise.studies.far.depth_pictures import depth_pictures
from lengthwise.studies.paired_claims import PairedClaim
from lengthwise.studies.skeleton import Study
from lengthwise.studies.verdicts import judge, verdict_table

Claims = Callable[[Results], Sequence[PairedClaim]]


def question_study(
    experiment: Experiment,
    scales: Mapping[str, Scale],
    *,
    title: str,
    heading: str,
    claims: Claims | None = None,
    takes: tuple[str, ...] = ("seeds", "steps"),
) -> Study:
    """An experiment on these questions as a study, with verdicts on the claims of its results."""
    reference = experiment.reference
    assert reference is not None

    def sections(results: Results, folder: Path) -> list[Section]:
        verdicts = [] if claims is None else [verdicts_table(results, claims)]
        return [question_section(results, heading, reference=reference, verdicts=verdicts)]

    return Study(title=title, parts=(experiment.part(sections, scales),), takes=takes)


def verdicts_table(results: Results, claims: Claims) -> Table:
    """Each claim with its mean difference over seeds and documents, and the verdict."""
    unit = min(results.config["measures"]["perplexity"]["lengths"])
    return verdict_table(judge(claims(results), results.rows, length=unit), caption="What a form has to do")


def question_section(
    results: Results, heading: str, *, reference: str, verdicts: Sequence[Table] = ()
) -> Section:
    """Any study on these questions as one section of a page: what was done, verdicts, and `question_tables`."""
    recipe = results.config["recipe"]
    screen = " One seed: a screen." if results.config["seeds"] == 1 else ""
    return Section(
        title=heading,
        paragraphs=[
            f"`{results.model_name}` before and after {recipe['steps']} steps on windows of {recipe['length']:,} "
            f"tokens, on questions that it was not trained on.{screen}"
        ],
        tables=[*verdicts, *question_tables(results, reference)],
        figures=depth_pictures(results),
        notes=results.notes,
    )


def question_tables(results: Results, reference: str) -> list[Table]:
    """Every arm, its differences from the reference, and the depths at every length."""
    return [
        arms_table(results, caption="Every arm; accuracy and probability of the right answer are shares"),
        arms_table(results, caption=f"Paired difference from {reference}", reference=reference),
        *(
            depths_table(results, length, task)
            for task in tasks_of(results)
            for length in _asked(results)["lengths"]
        ),
    ]


def arms_table(
    results: Results, *, caption: str, reference: str | None = None, shown: Sequence[Line] | None = None
) -> Table:
    """One row for each arm (and seed), one column for each number, with 95 % intervals; by default `lines`."""
    shown = shown or lines(results)
    rows: list[list[Cell]] = []
    for arm, seed in arms_and_seeds(results, reference):
        own = [row for row in results.rows if (row.arm, row.seed, row.reference) == (arm, seed, reference)]
        cells = [
            next((row_estimate(row) for row in own if line.matches(row) and row.depth is None), None)
            for line in shown
        ]
        rows.append([arm_and_seed(arm, seed), *cells])
    return Table(columns=["", *(line.heading for line in shown)], rows=rows, caption=caption)


def depths_table(results: Results, length: int | None = None, task: str | None = None) -> Table:
    """Accuracy at each depth of the prompts of this length and task; by default of the longest, and of the first."""
    measured = _asked(results)
    length = length or max(measured["lengths"])
    task = task or tasks_of(results)[0]
    rows: list[list[Cell]] = []
    for arm, seed in arms_and_seeds(results, None):
        own = [
            row
            for row in results.select(task=task, length=length, arm=arm, reference=None)
            if row.seed == seed
        ]
        cells: list[Cell] = []
        for metric in ("accuracy", "gold_probability"):
            cells += [
                next((row_estimate(row) for row in own if (row.metric, row.depth) == (metric, depth)), None)
                for depth in measured["depths"]
            ]
        rows.append([arm_and_seed(arm, seed), *cells])
    heads = [f"{name}, depth {depth:g} %" for name in ("accuracy", "gold") for depth in measured["depths"]]
    return Table(columns=["", *heads], rows=rows, caption=f"{task} by depth, at {length:,} tokens")


def lines(results: Results) -> list[Line]:
    """The numbers of an arm, from what was measured."""
    measures = results.config["measures"]
    found: list[Line] = []
    tasks = tasks_of(results)
    for task in tasks:
        of = "" if len(tasks) == 1 else f"{task}: "
        found += [
            Line(f"{of}{name} at {length:,}", task, metric, decimals, length=length)
            for length in _asked(results)["lengths"]
            for name, metric, decimals in (("accuracy", "accuracy", 2), ("gold", "gold_probability", 3))
        ]
    found += [
        Line(f"loss at {length:,}", "perplexity", "loss", 3, length=length)
        for length in measures["perplexity"]["lengths"]
    ]
    return [*found, *recall_lines(measures.get("recall", {}).get("distances", ()))]


def tasks_of(results: Results) -> list[str]:
    """The tasks whose questions were asked."""
    return list(_asked(results)["tasks"])


def _asked(results: Results) -> Mapping[str, Any]:
    return results.config["measures"]["eval"]


def arms_and_seeds(results: Results, reference: str | None) -> list[tuple[str, int | None]]:
    """Arms and seeds with rows, in the order of the rows."""
    return list(
        dict.fromkeys(
            (row.arm, row.seed) for row in results.rows if row.reference == reference and row.arm is not None
        )
    )


def arm_and_seed(arm: str, seed: int | None) -> str:
    """What a line is called; the first seed has no number."""
    return arm if seed in (None, 0) else f"{arm} (seed {seed})"
