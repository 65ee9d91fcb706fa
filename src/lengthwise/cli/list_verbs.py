"""`lengthwise ls`, `lengthwise cp` and `lengthwise doctor`: what lengthwise has, and what works here."""

from __future__ import annotations

import json
from pathlib import Path

from lengthwise.cli.options import Printing, Verbose
from lengthwise.cli.output import print_table
from lengthwise.errors import MissingError, UsageError, nearest


def ls(what: str | None = None, *, printing: Printing) -> None:
    """List models, corpora, recipes, methods and tasks.

    Args:
        what: One list; default is all.

    Examples:
        lengthwise ls
        lengthwise ls recipes
        lengthwise ls models --json
    """
    from lengthwise.catalogue import catalogue
    from lengthwise.report.tables import Table

    lists = catalogue(what)
    if printing.as_json:
        print(json.dumps(lists, indent=2))
        return
    for name, entries in lists.items():
        columns = list(entries[0])
        print_table(Table(columns=columns, rows=[list(entry.values()) for entry in entries], caption=name))


def cp(recipe: str, file: str | None = None, *, verbose: Verbose = False) -> None:
    """Copy a recipe of lengthwise to a file that you can change.

    Args:
        recipe: A name from `lengthwise ls recipes`.
        file: File or folder to write; default is RECIPE.yaml in this folder.

    Examples:
        lengthwise cp longqlora
        lengthwise cp tiny-books-gap my-recipe.yaml
    """
    from lengthwise.files import atomic_write_text, cannot_write, named_path
    from lengthwise.training.recipe import shipped_recipes

    shipped = shipped_recipes()
    if recipe not in shipped:
        raise UsageError(
            f"no recipe {recipe!r}", expected=nearest(recipe, shipped), fix="lengthwise ls recipes"
        )
    target = Path(f"{recipe}.yaml") if file is None else named_path(file, what="FILE")
    if target.is_dir():
        target /= f"{recipe}.yaml"
    if target.exists():
        raise UsageError(f"{target} exists already", fix=f"lengthwise cp {recipe} ANOTHER.yaml")
    try:
        atomic_write_text(target, shipped[recipe].read_text(encoding="utf-8"))
    except OSError as error:
        raise cannot_write(target, error) from error
    print(target)


def doctor(*, printing: Printing) -> None:
    """Show what works here, what is missing, and how to install it.

    Exits with 0 if models can be measured and trained here, else with 3.

    Examples:
        lengthwise doctor
        lengthwise doctor --json
    """
    from lengthwise.diagnosis import diagnose
    from lengthwise.report.tables import Table

    findings = diagnose()
    if printing.as_json:
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
