"""`lengthwise extend`: a model with other rotary positions, for a longer context."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lengthwise.cli import options
from lengthwise.cli.output import print_plan
from lengthwise.errors import UsageError

EXAMPLES = options.examples(
    "lengthwise extend smollm2-135m --method yarn --factor 2 --out models/yarn2",
    "lengthwise extend ./my-model --method ntk --factor 4 --set alpha=5 --out models/ntk4",
    "lengthwise extend ./my-model --method llama3 --factor 8 --original-length 8192 --dry-run",
)


def extend(
    model: options.Model,
    method: Annotated[
        str, typer.Option(help="A rope method of `lengthwise ls methods`.", show_default=False)
    ],
    factor: Annotated[
        float, typer.Option(help="How many times longer the context becomes.", show_default=False)
    ],
    original_length: Annotated[
        int | None,
        typer.Option(
            metavar="TOKENS",
            help="Context that the model was trained for; default is what its configuration says.",
            show_default=False,
        ),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="An option of the method, as in beta_fast=16; repeat it for several.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            parser=options.path, help="Model folder to write: exactly this one.", show_default=False
        ),
    ] = None,
    dry_run: options.DryRun = False,
    as_json: options.Json = False,
    verbose: options.Verbose = False,
) -> None:
    """Extend the context of a model with rotary positions.

    No weight changes: the model can be measured at once, or trained further. Its card says what was done.
    """
    from lengthwise.config import override
    from lengthwise.models.saving import plan_extended, save_extended

    settings = override({}, assignments or ())
    if dry_run:
        plan = plan_extended(model, method, factor=factor, original_length=original_length, options=settings)
        print_plan(plan, as_json=as_json)
        return
    if out is None:
        raise UsageError("extending needs a folder to write to", fix="--out models/NAME")
    done = save_extended(model, method, out, factor=factor, original_length=original_length, options=settings)
    print_plan(done, as_json=as_json, caption="what was done")
