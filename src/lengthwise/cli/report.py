"""`lengthwise report`: one self-contained page of one or several runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lengthwise.cli import options

EXAMPLES = options.examples(
    "lengthwise report runs/before",
    "lengthwise report runs/before runs/after runs/lora --out compare.html",
)


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Run folders (what --out named).", show_default=False),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="File or folder for the page. Default for one run: report.html in its folder.",
            show_default=False,
        ),
    ] = None,
    verbose: options.Verbose = False,
) -> None:
    """Make one self-contained HTML page of one or several runs.

    Tables, figures, settings; it opens without network. Several runs are tabled side by side and drawn over
    each other.
    """
    from lengthwise.report.build import build_report

    print(build_report(runs, out))
