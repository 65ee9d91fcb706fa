"""`lengthwise compare` and `lengthwise report`: finished runs are read."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from lengthwise.cli.options import Printing, Verbose
from lengthwise.cli.output import print_comparison
from lengthwise.errors import UsageError


def compare(
    runs: tuple[str, ...],
    *,
    reference: str | None = None,
    metric: tuple[str, ...] = (),
    correlate: tuple[str, str] | None = None,
    format: Literal["csv", "latex", "markdown"] | None = None,
    printing: Printing,
) -> None:
    """Which differences between runs are more than noise?

    Paired differences on the same items (tokens, windows, questions), with intervals by bootstrap over documents
    and p-values corrected for the whole table (Holm). Runs on different tokens are refused.

    With a checkpoint and the URL of an endpoint in place of runs: does the served model predict as its checkpoint
    does? The example with `--help` shows the options for that.

    Args:
        runs: Run folders (what --out named).
        reference: The run to compare the others with. Default: the first.
        metric: Only this metric; repeat it for several. Fewer metrics weaken Holm's correction.
        correlate: Instead: correlate two numbers over models. TASK/METRIC or TASK/METRIC@LENGTH.
        format: Print the table alone, in this format.

    Examples:
        lengthwise compare runs/before runs/after
        lengthwise compare runs/plain runs/sce runs/jeffreys --reference runs/plain --metric loss
        lengthwise compare runs/before runs/after --metric loss --format latex
        lengthwise compare ./checkpoint http://127.0.0.1:8000/v1 --help
        lengthwise compare runs/*/measure runs/*/eval --correlate misalignment/jeffreys@1024 babilong/accuracy@4096
    """
    from lengthwise.measure.comparison import compare_runs
    from lengthwise.measure.correlation import correlate_runs

    if correlate is None:
        found = compare_runs(runs, reference=reference, metrics=metric)
    else:
        found = correlate_runs(runs, *correlate)
    print_comparison(found, printing, form=format)


def report(
    runs: tuple[str, ...],
    *,
    out: str | None = None,
    format: Literal["html", "csv", "latex", "markdown", "svg"] = "html",
    verbose: Verbose = False,
) -> None:
    """Make one self-contained HTML page of one or several runs.

    It has tables, figures and settings and needs no network. Several runs share tables and figures. --format
    gives the tables or the figures alone.

    Args:
        runs: Run folders (what --out named). NAME=RUN names a run in tables and figures.
        out: File or folder for the page; folder for figures (svg). Default for one run: report.html in it.
        format: A page; tables on standard output; or the figures alone.

    Examples:
        lengthwise report runs/before
        lengthwise report runs/before runs/after runs/lora --out compare.html
        lengthwise report runs/before runs/after --format latex > tables.tex
        lengthwise report plain=runs/limit yarn=runs/limit-yarn --format svg --out figures
    """
    from lengthwise.files import atomic_write_text, named_path
    from lengthwise.report.run_page import build_report, run_tables, write_figures
    from lengthwise.report.tables import written

    if format == "html":
        print(build_report(runs, out))
    elif format == "svg":
        if out is None:
            raise UsageError("--format svg needs a folder for the figures", fix="--out figures")
        print("\n".join(str(path) for path in write_figures(runs, Path(out))))
    else:
        text = "\n".join(written(table, format) for table in run_tables(runs))
        if out is None:
            print(text, end="")
        else:
            target = named_path(out, what="--out")
            atomic_write_text(target, text)
            print(target)
