"""`lengthwise doctor`: what is installed, what works, what is missing."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from lengthwise.cli import options
from lengthwise.cli.output import print_table
from lengthwise.errors import MissingError

EXAMPLES = options.examples("lengthwise doctor", "lengthwise doctor --json")


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON alone on standard output.")] = False,
    verbose: options.Verbose = False,
) -> None:
    """Show what works here, what is missing, and how to install it.

    Exits with 0 if models can be measured and trained here, else with 3.
    """
    from lengthwise.diagnosis import diagnose
    from lengthwise.report.tables import Table

    findings = diagnose()
    if as_json:
        print(json.dumps(findings, indent=2))
    else:
        rows = [[each[column] for column in ("state", "what", "detail", "fix")] for each in findings]
        print_table(Table(columns=("", "what", "found", "fix"), rows=rows))
    broken = [each for each in findings if each["state"] == "missing" and each["needed"]]
    if broken:
        raise MissingError(
            f"{', '.join(each['what'] for each in broken)} missing: models cannot be measured here",
            fix=broken[0]["fix"],
        )
