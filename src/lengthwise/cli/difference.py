"""The verb `difference`: its options and gates. `measure/difference.py` computes the differences."""

from __future__ import annotations

from typing import Literal

from lengthwise.cli import gates
from lengthwise.cli.options import Above, AsJson, Junit, Output, Use
from lengthwise.cli.output import print_judged, print_prose, print_results, print_table
from lengthwise.errors import UsageError
from lengthwise.files import named_path
from lengthwise.runs import read_run


def difference(
    runs: tuple[str, ...],
    *,
    reference: str | None = None,
    metric: tuple[str, ...] = (),
    format: Literal["csv", "latex", "markdown"] | None = None,
    fail_above: Above = None,
    fail_use: Use = None,
    junit: Junit = None,
    as_json: AsJson = False,
) -> int | None:
    """Which differences between runs are more than noise?

    Paired differences on the same items (tokens, windows, questions), with intervals by bootstrap over documents
    and p-values corrected for all headline numbers (Holm); points of curves by distance are shown, and tested only
    with --metric. Runs on different tokens are refused. Two runs of
    `lengthwise compare MODEL --out RUN` are compared as their models would be, with --fail-above and --fail-use.

    Args:
        runs: Run folders (what --out named).
        reference: The run to compare the others with. Default: the first.
        metric: Only this metric; repeat it for several. Fewer metrics weaken Holm's correction.
        format: Print the table alone, in this format.

    Examples:
        lengthwise difference runs/before runs/after
        lengthwise difference runs/plain runs/sce runs/jeffreys --reference runs/plain --metric loss
        lengthwise difference runs/before runs/after --metric loss --format latex
    """
    from lengthwise.measure.difference import difference_of_runs
    from lengthwise.report.tables import difference_table
    from lengthwise.report.writers import to_csv, written

    limits = gates.limits(fail_above, fail_use, junit=junit)
    given = {"--format": format, "--reference": reference, "--metric": metric or None}
    shaped = [name for name, value in given.items() if value is not None]
    if as_json and format is not None:
        raise UsageError(f"--json and --format {format}", expected="one of them")
    pair = [read_run(named_path(run, what="the run")) for run in runs] if len(runs) == 2 else []
    if pair and all(run.kind == "predictions" for run in pair):
        from lengthwise.measure.comparison import comparison_of_kept

        if shaped:
            raise UsageError(
                f"kept predictions are compared as `lengthwise compare` does, which has no {' and no '.join(shaped)}",
                fix=f"leave {'it' if len(shaped) == 1 else 'them'} out; --json gives all numbers",
            )
        found = comparison_of_kept(*pair)
        return print_judged(found, Output(as_json=as_json), limits, junit)
    if limits:
        raise UsageError(
            f"{', '.join(limits)} with runs that are no kept predictions",
            expected="two runs of `lengthwise compare MODEL --out RUN`",
        )
    found = difference_of_runs(runs, reference=reference, metrics=metric)
    table = difference_table(found.rows, caption=f"{found.kind}: {found.model_name}")
    if as_json:
        print_results(found, Output(as_json=True))
    elif format == "csv":
        print(to_csv(found.rows), end="")
    elif format is not None:
        print(written(table, format), end="")
    else:
        print_table(table)
        for note in found.notes:
            print_prose(note)
    return None
