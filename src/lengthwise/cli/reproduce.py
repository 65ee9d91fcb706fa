"""`lengthwise reproduce`: a study as one command, ending in a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lengthwise.cli import options
from lengthwise.cli.output import print_table
from lengthwise.errors import UsageError

EXAMPLES = options.examples(
    "lengthwise reproduce demo --out runs/demo",
    "lengthwise reproduce tiny-books --seeds 3 --out runs/tiny-books",
    "lengthwise reproduce figure1 --out runs/figure1 --resume",
    "lengthwise reproduce tiny-books --seeds 3 --jobs 2 --out runs/tiny-books",
    "lengthwise reproduce table4 --arms-from runs/table2 --out runs/table4",
    "lengthwise reproduce section3 --scale smoke --out runs/smoke",
    "lengthwise reproduce table4 --scale paper --dry-run",
)


def reproduce(
    study: Annotated[
        str, typer.Argument(metavar="STUDY", help="A name from `lengthwise ls studies`.", show_default=False)
    ],
    out: options.NeededOut = None,
    seeds: Annotated[
        int | None, typer.Option(help="Seeds: trainings of every arm or configuration.", show_default=False)
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Training steps.", show_default=False)] = None,
    scale: Annotated[
        str,
        typer.Option(
            help="The size: default; laptop, which is smaller for some studies of sparsity and the same otherwise; "
            "or smoke, which takes seconds and proves nothing. The paper's tables also have laptop-smollm2, "
            "laptop-gemma3, gpu and paper."
        ),
    ] = "default",
    jobs: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Train and measure so many arms and seeds at once, in processes that share the cores.",
            show_default=False,
        ),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Train and measure arms and seeds as Ray tasks: local, auto (a running cluster) or HOST:PORT.",
            show_default=False,
        ),
    ] = None,
    arms_from: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="RUN",
            help="Take finished trainings of the same settings from an earlier run of a study. Repeat for several.",
            show_default=False,
        ),
    ] = None,
    resume: options.Resume = False,
    overwrite: options.Overwrite = False,
    dry_run: options.DryRun = False,
    verbose: options.Verbose = False,
) -> None:
    """Run a study and write its page.

    Our numbers with their intervals, and the verdict on every claim that they can decide.
    """
    from lengthwise.studies.study_table import plan_study, produce

    if dry_run:
        if jobs is not None or ray is not None or arms_from:
            raise UsageError(
                "--dry-run tells what a run in sequence costs, with every arm trained",
                fix="leave --jobs, --ray and --arms-from out",
            )
        print_table(plan_study(study, scale=scale, seeds=seeds, steps=steps))
        return
    if out is None:
        raise UsageError("a study needs a folder to write to", fix="--out runs/NAME")
    how = {"seeds": seeds, "steps": steps, "scale": scale, "resume": resume, "overwrite": overwrite}
    produced = produce(study, out, **how, jobs=jobs, ray=ray, arms_from=arms_from or ())
    for table in produced.tables:
        print_table(table)
    print(f"the page: {produced.page}")
