"""`lengthwise merge`: one whole model from a run that trained an adapter."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lengthwise.cli import options
from lengthwise.cli.output import print_plan

EXAMPLES = options.examples(
    "lengthwise merge runs/lora --out models/merged",
    "lengthwise merge runs/longqlora --dtype bfloat16 --out models/longqlora",
)


def merge(
    run: Annotated[
        Path,
        typer.Argument(
            parser=options.path,
            metavar="RUN",
            help="The folder of a finished `lengthwise train`.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            parser=options.path, help="Model folder to write: exactly this one.", show_default=False
        ),
    ],
    dtype: Annotated[str, typer.Option(help="float32 is exact; bfloat16 or float16 halve the size.")] = (
        "float32"
    ),
    as_json: options.Json = False,
    verbose: options.Verbose = False,
) -> None:
    """Merge a run's adapter into its base model and save that.

    A base model in 4 bits is dequantised: the adapter was trained on those weights.
    """
    from lengthwise.training.merging import merge_run

    print_plan(merge_run(run, out, dtype=dtype), as_json=as_json, caption="what was done")
