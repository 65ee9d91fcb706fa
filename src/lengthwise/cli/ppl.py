"""`lengthwise ppl`: how well does a model predict at each length?"""

from __future__ import annotations

from typing import Annotated

import typer

from lengthwise.cli import options
from lengthwise.cli.output import fail_above as check_threshold
from lengthwise.cli.output import print_plan, show

EXAMPLES = options.examples(
    "lengthwise ppl smollm2-135m",
    "lengthwise ppl tiny-books --length 128 --length 256 --length 512 --limit 64",
    "lengthwise ppl ./my-model --adapter runs/lora/model --out runs/ppl",
)


def ppl(
    model: options.Model,
    text: options.Text = "books",
    split: options.Split = "test",
    length: options.Length = [256, 512, 1024],  # noqa: B006
    limit: Annotated[int, typer.Option(help="Segments of text, each as long as the greatest length.")] = 32,
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
    """How well are the same tokens predicted at each length?

    Measures loss and perplexity. Beside them stands the loss after fitting one temperature per length, which
    leaves out mere over- or underconfidence. --fail-above looks at perplexity.
    """
    from lengthwise.measure.job import PerplexityJob, run_job
    from lengthwise.measure.planning import plan_job

    job = PerplexityJob(
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
        segments=limit,
    )
    if dry_run:
        print_plan(plan_job(job), as_json=as_json)
        return
    results = show(
        lambda: run_job(job, out=out, resume=resume, overwrite=overwrite), out=out, as_json=as_json
    )
    check_threshold(results, "perplexity", fail_above)
