"""`lengthwise longrope-search`: the factors that LongRoPE needs, for one model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lengthwise.cli import options
from lengthwise.cli.output import print_plan

EXAMPLES = options.examples(
    "lengthwise longrope-search smollm2-135m --factor 2 --original-length 1024 --out searches/smollm2",
    "lengthwise longrope-search ./my-model --factor 4 --iterations 10 --population 16 --limit 2 --out searches/mine",
)


def longrope_search(
    model: options.Model,
    factor: Annotated[
        float, typer.Option(help="How many times longer the context becomes.", show_default=False)
    ],
    out: Annotated[
        Path,
        typer.Option(
            parser=options.path,
            help="Folder for extend.yaml and the losses so far; an unfinished search there is continued.",
            show_default=False,
        ),
    ],
    original_length: Annotated[
        int | None,
        typer.Option(
            metavar="TOKENS",
            help="Context that the model was trained for; default is what its configuration says.",
            show_default=False,
        ),
    ] = None,
    text: options.Text = "books",
    split: options.Split = "train",
    limit: Annotated[int, typer.Option(help="Windows of text of the extended length.")] = 5,
    population: Annotated[int, typer.Option(help="Candidates of the first generation.")] = 64,
    iterations: Annotated[int, typer.Option(help="Generations after it, of up to 32 candidates.")] = 40,
    bos: options.Bos = "auto",
    seed: options.Seed = 0,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    as_json: options.Json = False,
    verbose: options.Verbose = False,
) -> None:
    """Search the factors of LongRoPE for a model.

    Evolution from the factors of PI, NTK and YaRN, by the model's loss on windows of the extended length.
    extend.yaml is the section of a recipe.
    """
    from lengthwise.measure.longrope_factors import run_longrope_search
    from lengthwise.positions.rope.longrope_evolution import SearchSettings

    found = run_longrope_search(
        model,
        out,
        text=text,
        split=split,
        device=device,
        dtype=dtype,
        factor=factor,
        original_length=original_length,
        windows=limit,
        settings=SearchSettings(population=population, iterations=iterations),
        bos=bos,
        seed=seed,
    )
    print_plan(found, as_json=as_json, caption="what was found")
