"""`lengthwise cp`: copy a recipe of the package to a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lengthwise.cli import options
from lengthwise.errors import UsageError, nearest

EXAMPLES = options.examples("lengthwise cp longqlora", "lengthwise cp tiny-books-gap my-recipe.yaml")


def cp(
    recipe: Annotated[
        str, typer.Argument(metavar="RECIPE", help="A name from `lengthwise ls recipes`.", show_default=False)
    ],
    to: Annotated[
        Path | None,
        typer.Argument(
            parser=options.path,
            metavar="[FILE]",
            help="Target; default is RECIPE.yaml in this folder.",
            show_default=False,
        ),
    ] = None,
    verbose: options.Verbose = False,
) -> None:
    """Copy a recipe of lengthwise to a file that you can change."""
    from lengthwise.files import atomic_write_text, cannot_write
    from lengthwise.training.recipe import shipped_recipes

    shipped = shipped_recipes()
    if recipe not in shipped:
        raise UsageError(
            f"no recipe {recipe!r}", expected=nearest(recipe, shipped), fix="lengthwise ls recipes"
        )
    target = Path(f"{recipe}.yaml") if to is None else to
    if target.is_dir():
        target /= f"{recipe}.yaml"
    if target.exists():
        raise UsageError(
            f"{target} exists already",
            expected="a file that does not exist",
            fix=f"lengthwise cp {recipe} ANOTHER.yaml",
        )
    try:
        atomic_write_text(target, shipped[recipe].read_text(encoding="utf-8"))
    except OSError as error:
        raise cannot_write(target, error) from error
    print(target)
