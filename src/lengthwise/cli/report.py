"""`lengthwise report`: one or several runs as a page, as tables for a paper, or as figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from lengthwise.cli import options
from lengthwise.errors import UsageError

EXAMPLES = options.examples(
    "lengthwise report runs/before",
    "lengthwise report runs/before runs/after runs/lora --out compare.html",
    "lengthwise report runs/before runs/after --format latex > tables.tex",
    "lengthwise report plain=runs/limit yarn=runs/limit-yarn --format svg --out figures",
)


def report(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...",
            help="Run folders (what --out named). NAME=RUN names a run in tables and figures.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            parser=options.path,
            help="File or folder for the page; folder for figures (svg). Default for one run: report.html in it.",
            show_default=False,
        ),
    ] = None,
    form: Annotated[
        Literal["html", "csv", "latex", "markdown", "svg"],
        typer.Option("--format", help="A page; tables on standard output; or the figures alone."),
    ] = "html",
    verbose: options.Verbose = False,
) -> None:
    """Make one self-contained HTML page of one or several runs.

    It has tables, figures and settings and needs no network. Several runs share tables and figures. --format
    gives the tables or the figures alone.
    """
    from lengthwise.report.run_page import build_report, run_tables, write_figures
    from lengthwise.report.tables import written

    if form == "html":
        print(build_report(runs, out))
    elif form == "svg":
        if out is None:
            raise UsageError("--format svg needs a folder for the figures", fix="--out figures")
        print("\n".join(str(path) for path in write_figures(runs, out)))
    else:
        text = "\n".join(written(table, form) for table in run_tables(runs))
        if out is None:
            print(text, end="")
        else:
            from lengthwise.files import atomic_write_text

            atomic_write_text(out, text)
            print(out)
