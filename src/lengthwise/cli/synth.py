"""`lengthwise synth`: a synthetic study of the paper, ending in a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from lengthwise.cli import options
from lengthwise.cli.output import print_table

EXAMPLES = options.examples(
    "lengthwise synth figure1 --out runs/figure1",
    "lengthwise synth figure1 --out runs/figure1 --resume",
    "lengthwise synth all --scale smoke --out runs/smoke",
)


def synth(
    study: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="figure1, figure3, figure4, figure5, theory, alignment, plane or all.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option(help="Run folder to write: exactly this one.", show_default=False)],
    seeds: Annotated[
        int | None, typer.Option(help="Models of each configuration.", show_default=False)
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Training steps.", show_default=False)] = None,
    scale: Annotated[
        Literal["default", "smoke"], typer.Option(help="How large: smoke takes seconds and shows nothing.")
    ] = "default",
    resume: options.Resume = False,
    overwrite: options.Overwrite = False,
    verbose: options.Verbose = False,
) -> None:
    """Run a synthetic study of length generalization.

    Every figure and theorem of the paper's section 3, with its claims held against our numbers.
    """
    from lengthwise.studies.synthetic.produce import produce

    produced = produce(study, out, seeds=seeds, steps=steps, scale=scale, resume=resume, overwrite=overwrite)
    for table in produced.tables:
        print_table(table)
    print(f"the page: {produced.page}")
