"""`lengthwise train`: train a model with the alignment objective."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lengthwise.cli import options
from lengthwise.cli.output import print_plan, show
from lengthwise.errors import UsageError

if TYPE_CHECKING:
    from lengthwise.results import Results

EXAMPLES = options.examples(
    "lengthwise train smollm2-lora --out runs/lora",
    "lengthwise train my-recipe.yaml --set objective.alpha=0.1 --dry-run",
    "lengthwise train clex --dry-run --memory 80GB --devices 8",
    "lengthwise train runs/lora/config.yaml --out runs/again",
    "lengthwise train smollm2-lora --out runs/lora --resume",
    "torchrun --nproc-per-node 2 -m lengthwise train my-recipe.yaml --out runs/two",
)


def train(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE", help="A YAML file, or a name from `lengthwise ls recipes`.", show_default=False
        ),
    ],
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Change a setting of the recipe, as in objective.alpha=0.1; repeat it for several.",
            show_default=False,
        ),
    ] = None,
    out: options.NeededOut = None,
    resume: options.Resume = False,
    overwrite: options.Overwrite = False,
    dry_run: options.DryRun = False,
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="With --dry-run: name the sharding that fits a card of this size, as in 80GB.",
            show_default=False,
        ),
    ] = None,
    devices: Annotated[
        int | None,
        typer.Option(
            min=1, help="With --dry-run: plan for so many devices (default: torchrun's).", show_default=False
        ),
    ] = None,
    as_json: options.Json = False,
    verbose: options.Verbose = False,
) -> None:
    """Train a model with the alignment objective.

    Minimises cross entropy on two views of a text plus alpha times their divergence. The model or adapter is
    written to OUT/model, one line of metrics per step to OUT/metrics.jsonl.
    """
    from lengthwise.training import plan, read_recipe

    resolved = read_recipe(recipe, assignments or ())
    if dry_run:
        planned = plan(resolved, devices=devices, memory=memory and _bytes(memory))
        if not (as_json or verbose):
            planned["settings"] = resolved.to_dict(defaults=False)
        print_plan(planned, as_json=as_json)
        return
    if memory is not None or devices is not None:
        raise UsageError("--memory and --devices are of a plan", fix="add --dry-run")
    if out is None:
        raise UsageError("training needs a folder to write to", fix="--out runs/NAME")

    # The Trainer takes seconds to import, which neither a dry run nor a mistake needs.
    from lengthwise.training import train as run_recipe

    def run() -> Results:
        return run_recipe(resolved, out, resume=resume, overwrite=overwrite)

    show(run, out=out, as_json=as_json, verbose=verbose)


def _bytes(size: str) -> int:
    from pydantic import ByteSize, TypeAdapter, ValidationError

    try:
        return TypeAdapter(ByteSize).validate_python(size)
    except ValidationError as error:
        raise UsageError(f"--memory {size!r}", expected="a size such as 80GB or 80GiB") from error
