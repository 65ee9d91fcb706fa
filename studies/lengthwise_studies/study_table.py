"""The table of studies (a name, where its data is, what it shows), and `lengthwise reproduce`. Imports no torch."""

from __future__ import annotations

from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from lengthwise.cli.options import Output
from lengthwise.cli.output import print_tables
from lengthwise.errors import UsageError, nearest
from lengthwise.files import named_path
from lengthwise.versions import need

if TYPE_CHECKING:
    from lengthwise.report.tables import Table
    from lengthwise_studies.skeleton import Produced, Study

ALIGNMENT = {
    "tables": ("paper.all_tables:ALL", "all tables of the paper and its rebuttal but table 1"),
    "table1": ("paper.table1:STUDY", "does misalignment go with long-context scores?"),
    "table2": ("paper.tables:TABLE2.study", "the term on windows of T, two corpora"),
    "table3": ("paper.tables:TABLE3.study", "the term on windows of 2T, two extensions"),
    "table4": ("paper.tables:TABLE4.study", "the weight of the term (printed as 6)"),
    "table5": ("paper.tables:TABLE5.study", "the range of the offset (printed as 7)"),
    "table6": ("paper.tables:TABLE6.study", "BABILong by length (printed as 4)"),
    "table7": ("paper.tables:TABLE7.study", "BABILong by depth, weight (printed as 5)"),
    "table9": ("paper.tables:TABLE9.study", "table 2 at equal measured time"),
    "table10": ("paper.tables:TABLE10.study", "table 3 at equal measured time"),
    "table11": ("paper.tables:TABLE11.study", "the term without an extension"),
    "cream": ("paper.rebuttal:CREAM_TABLE.study", "the term with CREAM (rebuttal)"),
    "ranges": (
        "paper.rebuttal:RANGES_TABLE.study",
        "nearly equal lengths, readings of the overlap (rebuttal)",
    ),
    "truncation": ("paper.rebuttal:TRUNCATION_TABLE.study", "read all, or the last T tokens? (rebuttal)"),
    "within": ("paper.rebuttal:WITHIN_TABLE.study", "loss within length T (rebuttal)"),
    "figure1": ("section3.panel_page:FIGURE1", "mean, length, reparameterized length"),
    "figure3": ("section3.panel_page:FIGURE3", "sum and length by training length"),
    "figure4": ("section3.panel_page:FIGURE4", "sum by encoding and f"),
    "figure5": ("section3.panel_page:FIGURE5", "mean of bits, uniform number of ones"),
    "section3": ("section3.panel_page:SECTION3", "figures 1, 3, 4, 5 and theorem 2"),
    "theorem1": ("theorem1_check:THEOREM1", "a model that breaks it, and bounds that hold"),
    "theorem2": ("theorem2_check:THEOREM2", "exact errors, bounds, trained models"),
}
SPARSITY = {
    "influence": ("sparsity.influence:INFLUENCE", "distant tokens a prediction needs"),
    "sparse-parity": ("sparsity.parity:SPARSE_PARITY", "parity of k planted bits by length, k, locality"),
    "position-coupling": (
        "sparsity.coupling_study:POSITION_COUPLING",
        "ids that couple tokens, given or predicted",
    ),
    "sparsity-bounds": ("sparsity.bounds:SPARSITY_BOUNDS", "its bounds against errors of trained models"),
}
OWN = {
    "demo": ("demo.chapters:DEMO", "where a context ends, what a change costs, what training does"),
    "tiny-books": ("tiny_books:TINY_BOOKS", "what each term does to a model of 1M parameters"),
    "far": ("far.studies:FAR", "skips and repeats on SmolLM2-135M (15 hours)"),
    "far-gemma": ("far.studies:FAR_GEMMA", "skips and repeats on Gemma 3 270M (3 hours)"),
    "far-parts": ("far.studies:FAR_PARTS", "skips, repeats, or both: one seed (3 hours)"),
    "real-geometry": ("real.study:REAL.study", "the term on SmolLM2-135M, windows of 8,192 tokens (a GPU)"),
    "extension": ("extension:EXTENSION", "SmolLM2-135M beyond its context: rope, LoRA, skips"),
    "sparsity-bridge-real": ("sparsity.bridge:BRIDGE_REAL", "tokens that alignment forgets (an hour)"),
    "when": ("paper.when:STUDY", "starts that can profit from the term; twenty held-out books (an hour)"),
    "pretraining": (
        "paper.pretraining:STUDY",
        "the term after more pretraining, and on SmolLM2-135M after more steps (seven hours)",
    ),
}
STUDIES = {"the alignment paper": ALIGNMENT, "the sparsity paper": SPARSITY, "our own": OWN}
"""By whose claims they are about: name -> `module:NAME` of a `Study` below this package, and what it shows."""
_SCALES = (
    "The size. laptop is smaller than default for some studies of sparsity; smoke only shows that a study runs. The "
    "paper's tables also have laptop-smollm2, gpu and paper."
)


def studies() -> list[dict[str, str]]:
    """The list of `lengthwise ls studies`."""
    return [
        {"about": group, "name": name, "what": what}
        for group, own in STUDIES.items()
        for name, (_, what) in own.items()
    ]


def study_named(name: str) -> Study:
    """The study of that name, with everything that it needs imported; UsageError if there is none.

    MissingError without matplotlib, which the pages of studies need.
    """
    known = ALIGNMENT | SPARSITY | OWN
    if name not in known:
        raise UsageError(
            f"no study {name!r}", expected=nearest(name, known), fix="lengthwise ls studies lists them"
        )
    need("matplotlib")
    return resolve_name(f"lengthwise_studies.{known[name][0]}")


def plan_study(name: str, *, scale: str = "default", **given: Any) -> Table:
    """The grid of the study `name`, with tokens, memory and time, before any weight is loaded."""
    study = study_named(name)
    from lengthwise_studies.costs import costs_table, study_costs

    return costs_table(study_costs(study, scale, **given), caption=f"{name} at scale {scale}")


def produce(name: str, out: Path, *, ray: str | None = None, jobs: int | None = None, **how: Any) -> Produced:
    """Run the study `name` to its page as `produce_page` does, with arms and seeds at once where asked (`at_once`).

    Raises:
        UsageError, Interrupted: see `produce_page`; jobs or a cluster for a study without arms.
    """
    study = study_named(name)
    from lengthwise_studies.skeleton import produce_page

    if (ray, jobs) == (None, None):
        return produce_page(study, out, **how)
    if not any(part.plan for part in study.parts):
        raise UsageError(f"{name} has no arms", fix="leave --jobs and --ray out")
    from lengthwise_studies.fan_out import at_once

    with at_once(jobs=jobs, ray=ray):
        return produce_page(study, out, **how)


def reproduce(
    study: str,
    *,
    seeds: int | None = None,
    steps: int | None = None,
    data: str | None = None,
    scale: Annotated[str, Parameter(help=_SCALES)] = "default",
    jobs: int | None = None,
    ray: Annotated[str | None, Parameter(metavar="ADDRESS")] = None,
    explain: bool = False,
    output: Output,
) -> None:
    """Run a study and write its page.

    Our numbers with their intervals, and the verdict on every claim that they can decide.

    Args:
        study: A name from `lengthwise ls studies`.
        seeds: Seeds: trainings of every arm or configuration.
        steps: Training steps.
        data: Folder of LongBench's jsonl files: the paper's tables judge their claims on LongBench-E too.
        jobs: Train and measure so many arms and seeds at once, in processes that share the cores.
        ray: Train and measure arms and seeds as Ray tasks: local, auto (a running cluster) or HOST:PORT.
        explain: Print what the study does, and stop: arms, measures, claims, and the rule that decides each.

    Examples:
        lengthwise reproduce demo --out runs/demo
        lengthwise reproduce tiny-books --seeds 3 --out runs/tiny-books
        lengthwise reproduce figure1 --out runs/figure1 --resume
        lengthwise reproduce tiny-books --seeds 3 --jobs 2 --out runs/tiny-books
        lengthwise reproduce section3 --scale smoke --out runs/smoke
        lengthwise reproduce table4 --explain
        lengthwise reproduce table4 --scale paper --dry-run
        lengthwise reproduce tables --scale gpu --data LongBench/data --out runs/tables
    """
    size: dict[str, Any] = {"scale": scale, "seeds": seeds, "steps": steps, "data": data}
    if data is not None:
        from lengthwise_studies.skeleton import check_data

        # To import a study takes seconds.
        check_data(data)
    if explain and output.dry_run:
        raise UsageError("--explain and --dry-run", expected="one of them")
    if (explain or output.dry_run) and (jobs is not None or ray is not None):
        what = "trains nothing" if explain else "tells what a run in sequence costs, with every arm trained"
        raise UsageError(f"--{'explain' if explain else 'dry-run'} {what}", fix="leave --jobs and --ray out")
    found = study_named(study)
    if explain:
        from lengthwise_studies.explain import WIDEST, explained

        print_tables(explained(found, **size), as_json=output.as_json, widest=WIDEST)
        return
    if output.dry_run:
        print_tables([plan_study(study, **size)], as_json=output.as_json)
        return
    if output.out is None:
        raise UsageError("a study needs a folder to write to", fix="--out runs/NAME")
    out = named_path(output.out, what="--out")
    how: dict[str, Any] = {"resume": output.resume, "overwrite": output.overwrite, "ray": ray, "jobs": jobs}
    produced = produce(study, out, **how, **size)
    print_tables(produced.tables, as_json=output.as_json, page=str(produced.page))
    if not output.as_json:
        print(f"the page: {produced.page}")
