"""`lengthwise train`: train a model with the alignment objective."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter
from pydantic import ByteSize

from lengthwise.cli.options import Assignments, Output, Printing
from lengthwise.cli.output import print_plan, show
from lengthwise.errors import UsageError


def train(
    recipe: str,
    *,
    assignments: Assignments = (),
    memory: Annotated[ByteSize | None, Parameter(metavar="SIZE")] = None,
    devices: int | None = None,
    output: Output,
    printing: Printing,
) -> None:
    """Train a model with the alignment objective.

    Minimises cross entropy on two views of a text plus alpha times their divergence. The model or adapter is
    written to OUT/model, one line of metrics per step to OUT/metrics.jsonl.

    Args:
        recipe: A YAML file, or a name from `lengthwise ls recipes`.
        assignments: Change a setting of the recipe, as in objective.alpha=0.1; repeat it for several.
        memory: With --dry-run: name the sharding that fits a card of this size, as in 80GB.
        devices: With --dry-run: plan for so many devices (default: torchrun's).

    Examples:
        lengthwise train smollm2-lora --out runs/lora
        lengthwise train my-recipe.yaml --set objective.alpha=0.1 --dry-run
        lengthwise train clex --dry-run --memory 80GB --devices 8
        lengthwise train runs/lora/config.yaml --out runs/again
        lengthwise train smollm2-lora --out runs/lora --resume
        torchrun --nproc-per-node 2 -m lengthwise train my-recipe.yaml --out runs/two
    """
    from lengthwise.training import plan, read_recipe

    resolved = read_recipe(recipe, assignments)
    if output.dry_run:
        planned = plan(resolved, devices=devices, memory=memory)
        if not (printing.as_json or printing.verbose):
            planned["settings"] = resolved.to_dict(defaults=False)
        print_plan(planned, printing)
        return
    if memory is not None or devices is not None:
        raise UsageError("--memory and --devices require --dry-run")
    if output.out is None:
        raise UsageError("training needs a folder to write to", fix="--out runs/NAME")

    # The Trainer takes seconds to import, which neither a dry run nor a mistake needs.
    from lengthwise.training import train as run_recipe

    folder = {"out": output.out, "resume": output.resume, "overwrite": output.overwrite}
    show(lambda: run_recipe(resolved, **folder), output.out, printing)
