"""`lengthwise measure`: do a model's predictions depend on how much context is cut off?"""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from lengthwise.cli import options
from lengthwise.cli.output import fail_above as check_threshold
from lengthwise.cli.output import print_plan, show

EXAMPLES = options.examples(
    "lengthwise measure smollm2-135m",
    "lengthwise measure ./my-model --length 512 --length 1024 --out runs/mine",
    "lengthwise measure ./my-model --text notes/ --split all --json > results.json",
    "lengthwise measure ./my-model --fail-above 0.05",
)


def measure(
    model: options.Model,
    text: options.Text = "books",
    split: options.Split = "test",
    length: options.Length = [256, 512, 1024],  # noqa: B006
    limit: Annotated[int, typer.Option(help="Windows of text at each length.")] = 16,
    estimator: Annotated[
        Literal["lattice", "paper"],
        typer.Option(help="paper is Eq. 2 by sampling; lattice is the same with far narrower intervals."),
    ] = "lattice",
    bos: options.Bos = "auto",
    adapter: options.Adapter = None,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    batch_size: options.BatchSize = 1,
    fail_above: options.FailAbove = None,
    out: options.Out = None,
    resume: options.Resume = False,
    overwrite: options.Overwrite = False,
    dry_run: options.DryRun = False,
    as_json: options.Json = False,
    verbose: options.Verbose = False,
) -> None:
    """Does cutting off early context change the predictions?

    Measures long-short misalignment. The paper's number is SCE; beside it stand its parts, entropy (how sharp
    the predictions are) and jeffreys (how far they disagree). --fail-above looks at jeffreys.
    """
    from lengthwise.measure.job import MisalignmentJob, run_job
    from lengthwise.measure.planning import plan_job

    job = MisalignmentJob(
        model=model,
        adapter=adapter,
        dtype=dtype,
        device=device,
        text=text,
        split=split,
        bos=bos,
        seed=seed,
        batch_size=batch_size,
        lengths=tuple(length),
        windows=limit,
        estimator=estimator,
    )
    if dry_run:
        print_plan(plan_job(job), as_json=as_json)
        return
    results = show(
        lambda: run_job(job, out=out, resume=resume, overwrite=overwrite), out=out, as_json=as_json
    )
    check_threshold(results, "jeffreys", fail_above)
