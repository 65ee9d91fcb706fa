"""`lengthwise recall`: does a model still use what stands far back?"""

from __future__ import annotations

from typing import Annotated

import typer

from lengthwise.cli import options
from lengthwise.cli.output import print_plan, show

EXAMPLES = options.examples(
    "lengthwise recall smollm2-135m",
    "lengthwise recall tiny-books --distance 64 --distance 128 --distance 256",
    "lengthwise recall ./my-model --adapter runs/lora/model --out runs/recall",
)


def recall(
    model: options.Model,
    text: options.Text = "books",
    split: options.Split = "test",
    distance: Annotated[
        list[int],
        typer.Option(
            "--distance",
            metavar="TOKENS",
            parser=options.whole_number,
            help="Tokens from a passage to its repetition; repeat it for several.",
        ),
    ] = [64, 128, 256, 512],  # noqa: B006
    limit: Annotated[int, typer.Option(help="Pairs of passages at each distance.")] = 32,
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
    """Is what stands far back still used?

    Measures what a repeated passage is worth by its distance: the benefit is the loss after a different
    passage minus the loss after the same one; 0 means that text so far back is not used.
    """
    from lengthwise.measure.job import RecallJob, run_job
    from lengthwise.measure.planning import plan_job

    job = RecallJob(
        model=model,
        adapter=adapter,
        dtype=dtype,
        device=device,
        text=text,
        split=split,
        bos=bos,
        seed=seed,
        batch_size=batch_size,
        distances=tuple(distance),
        pairs=limit,
    )
    if dry_run:
        print_plan(plan_job(job), as_json=as_json)
        return
    show(lambda: run_job(job, out=out, resume=resume, overwrite=overwrite), out=out, as_json=as_json)
