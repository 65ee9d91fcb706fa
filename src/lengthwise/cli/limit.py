"""`lengthwise limit`: where does a model's useful context end, on one's own text?"""

from __future__ import annotations

from typing import Annotated

import typer

from lengthwise.cli import options
from lengthwise.cli.output import print_plan, show

EXAMPLES = options.examples(
    "lengthwise limit smollm2-135m --out runs/limit",
    "lengthwise limit ./my-model --text notes/ --split all --max-length 32768",
    "lengthwise limit smollm2-135m --dry-run",
)


def limit(
    model: options.Model,
    text: options.Text = "books",
    split: options.Split = "test",
    max_length: Annotated[
        int | None,
        typer.Option(
            metavar="TOKENS",
            show_default=False,
            help="The longest context looked at. "
            "Default: 16384, or eight times what its configuration says it was trained for.",
        ),
    ] = None,
    reference: Annotated[
        int | None,
        typer.Option(
            metavar="TOKENS",
            show_default=False,
            help="A length that the model was trained for, to compare with. "
            "Default: up to 1024, a quarter of what its configuration says.",
        ),
    ] = None,
    windows: Annotated[int, typer.Option("--limit", help="Windows of text, from as many documents.")] = 8,
    tolerance: Annotated[
        float, typer.Option(help="Sound: nats a token by which all context may be worse than its end.")
    ] = 0.1,
    share: Annotated[
        float, typer.Option(help="Used: this share of what a repeated passage is worth nearby.")
    ] = 0.1,
    bos: options.Bos = "auto",
    adapter: options.Adapter = None,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    batch_size: options.BatchSize = 1,
    out: options.Out = None,
    resume: options.Resume = False,
    overwrite: options.Overwrite = False,
    dry_run: options.DryRun = False,
    as_json: options.Json = False,
    verbose: options.Verbose = False,
) -> None:
    """Where does the useful context end, on this text?

    Two numbers without labels: up to where reading all context is no worse than reading its end alone
    (sound), and up to where a passage that comes again is still recognised (used).
    """
    from lengthwise.measure.job import LimitJob, run_job
    from lengthwise.measure.planning import plan_job

    job = LimitJob(
        model=model,
        adapter=adapter,
        dtype=dtype,
        device=device,
        text=text,
        split=split,
        bos=bos,
        seed=seed,
        batch_size=batch_size,
        length=max_length,
        reference=reference,
        windows=windows,
        tolerance=tolerance,
        share=share,
    )
    if dry_run:
        print_plan(plan_job(job), as_json=as_json)
        return
    show(lambda: run_job(job, out=out, resume=resume, overwrite=overwrite), out=out, as_json=as_json)
