"""`lengthwise reproduce`: a study as one command, ending in a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lengthwise.cli import options
from lengthwise.cli.output import print_table

EXAMPLES = options.examples(
    "lengthwise reproduce demo --out runs/demo",
    "lengthwise reproduce tiny-books --seeds 3 --out runs/tiny-books",
    "lengthwise reproduce figure1 --out runs/figure1 --resume",
    "lengthwise reproduce tiny-books --seeds 3 --ray local --out runs/tiny-books",
    "lengthwise reproduce section3 --scale smoke --out runs/smoke",
)


def reproduce(
    study: Annotated[
        str, typer.Argument(metavar="STUDY", help="A name from `lengthwise ls studies`.", show_default=False)
    ],
    out: Annotated[
        Path,
        typer.Option(parser=options.path, help="Run folder to write: exactly this one.", show_default=False),
    ],
    seeds: Annotated[
        int | None, typer.Option(help="Seeds: trainings of every arm or configuration.", show_default=False)
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Training steps.", show_default=False)] = None,
    scale: Annotated[
        str, typer.Option(help="The size: default, or smoke, which takes seconds and proves nothing.")
    ] = "default",
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Train and measure arms and seeds as Ray tasks: local, auto (a running cluster) or HOST:PORT.",
            show_default=False,
        ),
    ] = None,
    resume: options.Resume = False,
    overwrite: options.Overwrite = False,
    verbose: options.Verbose = False,
) -> None:
    """Run a study and write its page.

    Our numbers with their intervals, and the verdict on every claim that they can decide.
    """
    from lengthwise.studies.study_table import produce

    how = {"seeds": seeds, "steps": steps, "scale": scale, "resume": resume, "overwrite": overwrite}
    produced = produce(study, out, **how, ray=ray)
    for table in produced.tables:
        print_table(table)
    print(f"the page: {produced.page}")
