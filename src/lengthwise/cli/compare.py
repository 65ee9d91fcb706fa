"""`lengthwise compare`: which differences between runs are more than noise?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from lengthwise.cli import options
from lengthwise.cli.output import print_comparison

EXAMPLES = options.examples(
    "lengthwise compare runs/before runs/after",
    "lengthwise compare runs/plain runs/sce runs/jeffreys --reference runs/plain --metric loss",
    "lengthwise compare runs/before runs/after --metric loss --format latex",
    "lengthwise compare ./checkpoint http://127.0.0.1:8000/v1 --help",
    "lengthwise compare runs/*/measure runs/*/eval --correlate misalignment/jeffreys@1024 babilong/accuracy@4096",
)


def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(
            parser=options.path, metavar="RUN...", help="Run folders (what --out named).", show_default=False
        ),
    ],
    reference: Annotated[
        Path | None,
        typer.Option(
            parser=options.path,
            help="The run to compare the others with. Default: the first.",
            show_default=False,
        ),
    ] = None,
    metric: Annotated[
        list[str],
        typer.Option(
            help="Only this metric; repeat it for several. Fewer metrics weaken Holm's correction.",
            show_default=False,
        ),
    ] = [],  # noqa: B006
    correlate: Annotated[
        tuple[str, str] | None,
        typer.Option(
            metavar="METRIC SCORE",
            help="Instead: correlate two numbers over models. TASK/METRIC or TASK/METRIC@LENGTH.",
            show_default=False,
        ),
    ] = None,
    form: Annotated[
        Literal["csv", "latex", "markdown"] | None,
        typer.Option("--format", help="Print the table alone, in this format.", show_default=False),
    ] = None,
    as_json: options.Json = False,
    verbose: options.Verbose = False,
) -> None:
    """Which differences between runs are more than noise?

    Paired differences on the same items (tokens, windows, questions), with intervals by bootstrap over documents
    and p-values corrected for the whole table (Holm). Runs on different tokens are refused.

    With a checkpoint and the URL of an endpoint in place of runs: does the served model predict as its checkpoint
    does? The example with `--help` shows the options for that.
    """
    if correlate is not None:
        from lengthwise.measure.correlation import correlate_runs

        print_comparison(correlate_runs(runs, *correlate), as_json=as_json, form=form)
        return
    from lengthwise.measure.comparison import compare_runs

    print_comparison(compare_runs(runs, reference=reference, metrics=metric), as_json=as_json, form=form)
