"""`lengthwise eval`: does a model answer questions over long input?"""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from lengthwise.cli import options
from lengthwise.cli.output import print_plan, show
from lengthwise.errors import UsageError, nearest

EXAMPLES = options.examples(
    "lengthwise eval smollm2-135m needle_multi_key --length 2048 --length 4096",
    "lengthwise eval smollm2-135m babilong --mode likelihood --length 2048 --limit 20 --out runs/babilong",
    "lengthwise eval ./my-model longbench_e --data LongBench/data --max-length 3500 --truncation middle",
    "lengthwise eval ./my-model longbench_qasper_e --backend lm-eval --max-length 16384 --out runs/harness",
)

# What --set takes: settings that few runs need.
_RARE = ("chat", "stories", "templates")


def eval(
    model: options.Model,
    tasks: Annotated[
        list[str],
        typer.Argument(
            metavar="TASK...", help="Names or groups of `lengthwise ls tasks`.", show_default=False
        ),
    ],
    mode: Annotated[
        Literal["greedy", "likelihood"],
        typer.Option(
            help="Score greedy replies; or rank the possible answers, which small models can do too."
        ),
    ] = "greedy",
    length: options.Length = [2048],  # noqa: B006
    depth: Annotated[
        list[float], typer.Option(metavar="PERCENT", help="Where the answer stands; repeat it for several.")
    ] = [0, 25, 50, 75, 100],  # noqa: B006
    limit: Annotated[
        int | None,
        typer.Option(
            help="Samples at each length and depth (default 10), or rows of a data set (default all).",
            show_default=False,
        ),
    ] = None,
    text: options.Text = "books",
    split: options.Split = "test",
    data: Annotated[
        str | None,
        typer.Option(
            help="Folder of LongBench's jsonl files; for lm-eval, of data sets in the hub's layout.",
            show_default=False,
        ),
    ] = None,
    max_length: Annotated[
        int | None,
        typer.Option(
            metavar="TOKENS",
            help="Tokens of a data set's prompt at most; lm-eval: with reply.",
            show_default=False,
        ),
    ] = None,
    truncation: Annotated[
        Literal["middle", "left"] | None,
        typer.Option(help="How longer prompts are cut; without it they are refused.", show_default=False),
    ] = None,
    backend: Annotated[
        Literal["native", "lm-eval"], typer.Option(help="Whose tasks and scorers.")
    ] = "native",
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="stories=FOLDER (bAbI), templates=FOLDER (LongBench), chat=never.",
            show_default=False,
        ),
    ] = None,
    adapter: options.Adapter = None,
    seed: Annotated[int, typer.Option(help="Seed of what is made up.")] = 0,
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
    """Does a model answer questions over long input?

    Needles, BABILong by length and depth, LongBench-E, or any task of lm-eval. No prompt is cut without being
    told to, and every result says how many were.
    """
    from lengthwise.config import override
    from lengthwise.evaluation.job import EvalJob
    from lengthwise.evaluation.planning import plan_eval
    from lengthwise.evaluation.running import run_eval

    rare = override({}, assignments or ())
    for key in rare:
        if key not in _RARE:
            raise UsageError(f"--set knows no {key!r}", expected=nearest(key, _RARE))
    job = EvalJob(
        model=model,
        tasks=tuple(tasks),
        adapter=adapter,
        dtype=dtype,
        device=device,
        backend=backend,
        mode=mode,
        lengths=tuple(length),
        depths=tuple(depth),
        samples=limit,
        text=text,
        split=split,
        data=data,
        max_length=max_length,
        truncation=truncation,
        seed=seed,
        batch_size=batch_size,
        **rare,
    )
    if dry_run:
        print_plan(plan_eval(job), as_json=as_json)
        return
    show(lambda: run_eval(job, out=out, resume=resume, overwrite=overwrite), out=out, as_json=as_json)
