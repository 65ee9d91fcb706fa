"""`lengthwise ls`: everything that has a name."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from lengthwise.cli import options
from lengthwise.cli.output import print_table

EXAMPLES = options.examples("lengthwise ls", "lengthwise ls recipes", "lengthwise ls models --json")


def ls(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="[models|corpora|recipes|methods|tasks]",
            help="One list; default is all.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON alone on standard output.")] = False,
    verbose: options.Verbose = False,
) -> None:
    """List models, corpora, recipes, methods and tasks."""
    from lengthwise.catalogue import catalogue
    from lengthwise.report.tables import Table

    lists = catalogue(what)
    if as_json:
        print(json.dumps(lists, indent=2))
        return
    for name, entries in lists.items():
        columns = list(entries[0])
        print_table(Table(columns=columns, rows=[list(entry.values()) for entry in entries], caption=name))
