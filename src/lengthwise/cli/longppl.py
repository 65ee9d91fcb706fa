"""`lengthwise longppl`: perplexity on the tokens that need far context."""

from __future__ import annotations

from typing import Annotated

import typer

from lengthwise.cli import options
from lengthwise.cli.output import print_plan, show

EXAMPLES = options.examples(
    "lengthwise longppl smollm2-135m --max-length 4096 --short 1024",
    "lengthwise longppl ./my-model --evaluator meta-llama/Llama-3.1-8B --out runs/longppl",
    "lengthwise longppl ./other-model --key-tokens runs/longppl --out runs/other",
)


def longppl(
    model: options.Model,
    evaluator: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            show_default=False,
            help="The model that finds the key tokens; its tokenizer may differ. Default: the measured model.",
        ),
    ] = None,
    key_tokens: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            show_default=False,
            help="Instead of an evaluator: the key tokens of an earlier run with the same text and settings.",
        ),
    ] = None,
    text: options.Text = "books",
    split: options.Split = "test",
    max_length: Annotated[
        int, typer.Option(metavar="TOKENS", help="Tokens of each text (the evaluator's).")
    ] = 8192,
    short: Annotated[int, typer.Option(metavar="TOKENS", help="The short context, K.")] = 4096,
    stride: Annotated[
        int | None,
        typer.Option(
            metavar="TOKENS",
            show_default=False,
            help="By how much the short windows advance: K is up to so much longer. Default: a quarter of it.",
        ),
    ] = None,
    limit: Annotated[int, typer.Option(help="Texts.")] = 8,
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
    """How well are the tokens predicted that need far context?

    LongPPL: an evaluator reads each text with all context and with a short one; the tokens that gain by more
    than 2 nats and are then likely are the key tokens, and the model's perplexity on them is the number. Only
    numbers with one evaluator on one text compare.
    """
    from lengthwise.measure.job import run_job
    from lengthwise.measure.longppl_job import LongPplJob
    from lengthwise.measure.planning import plan_job

    job = LongPplJob(
        model=model,
        adapter=adapter,
        dtype=dtype,
        device=device,
        text=text,
        split=split,
        bos=bos,
        seed=seed,
        batch_size=batch_size,
        evaluator=evaluator,
        key_tokens=key_tokens,
        length=max_length,
        short=short,
        stride=stride,
        texts=limit,
    )
    if dry_run:
        print_plan(plan_job(job), as_json=as_json)
        return
    show(lambda: run_job(job, out=out, resume=resume, overwrite=overwrite), out=out, as_json=as_json)
