"""Results on standard output: a table with a sentence under it, or the JSON object alone."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lengthwise.errors import Interrupted, ThresholdCrossed
from lengthwise.processes import is_main_process

if TYPE_CHECKING:
    from lengthwise.report.tables import Table, TableFormat
    from lengthwise.results import Results


def show(run: Callable[[], Results], *, out: Path | None, as_json: bool, verbose: bool = False) -> Results:
    """Call `run` and print what it returns, or the part that was finished when it was interrupted.

    Of several processes the first alone prints.
    """
    if not is_main_process():
        return run()
    try:
        results = run()
    except Interrupted as stop:
        if stop.partial is not None:
            print_results(stop.partial, out=out, as_json=as_json, verbose=verbose)  # type: ignore[arg-type]
        raise
    print_results(results, out=out, as_json=as_json, verbose=verbose)
    return results


def print_results(results: Results, *, out: Path | None, as_json: bool, verbose: bool = False) -> None:
    """The answer in a few lines and the notes; with -v, and where nothing answers, the table of headline numbers."""
    if as_json:
        sys.stdout.write(results.to_json())
        return
    from lengthwise.report.displays import in_order
    from lengthwise.report.row_tables import headline_rows, rows_table
    from lengthwise.report.terminal import print_answer

    if print_answer(results, verbose=verbose):
        rows = in_order(headline_rows(results.rows))
        state = " (partial)" if results.partial else ""
        print_table(rows_table(rows, caption=f"{results.kind}: {results.model_name}{state}"))
    if results.notes:
        print()
    for note in results.notes:
        print(textwrap.fill(note, 80, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False))
    if out is not None:
        print(f"written to {out}; `lengthwise report {out}` makes a page of it")


def print_plan(plan: Mapping[str, Any], *, as_json: bool, caption: str = "what would be done") -> None:
    """What a dry run found, or what was done, as a table of settings or as JSON."""
    if as_json:
        print(json.dumps(plan, indent=2, allow_nan=False))
        return
    from lengthwise.report.tables import settings_table

    print_table(settings_table(_readable(plan), caption=caption))


def _readable(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Sizes and times in units for people; JSON keeps bytes and seconds."""
    shown = dict(plan)
    for key, value in plan.items():
        if key == "memory_by_sharding":
            shown[key] = ", ".join(f"{name} {need / 1e9:.1f} GB" for name, need in value.items())
        elif key.endswith("_bytes") and value is not None:
            shown[key] = f"{value / 1e9:.2f} GB"
        elif key.startswith("seconds") and isinstance(value, (int, float)):
            shown[key] = f"{value:.0f} s" if value < 120 else f"{value / 60:.0f} min"
        elif isinstance(value, int) and value > 9999:
            shown[key] = f"{value:,}"
    return {key.replace("_bytes", "").replace("seconds", "time"): value for key, value in shown.items()}


def print_comparison(results: Results, *, as_json: bool, form: TableFormat | None = None) -> None:
    """The table of paired differences, or of a correlation, and what it says; the table alone in another `form`."""
    if as_json:
        sys.stdout.write(results.to_json())
        return
    from lengthwise.report.row_tables import comparison_table, rows_table
    from lengthwise.report.tables import written

    draw = rows_table if results.kind == "correlate" else comparison_table
    table = draw(results.rows, caption=f"{results.kind}: {results.model_name}")
    if form is not None:
        sys.stdout.write(written(table, form))
        return
    print_table(table)
    for sentence in results.notes:
        print(sentence)


def print_table(table: Table) -> None:
    """A table as wide as the terminal, or as wide as it needs where there is none."""
    from rich.console import Console

    from lengthwise.report.tables import to_rich

    width = None if sys.stdout.isatty() else 160
    Console(file=sys.stdout, width=width, soft_wrap=False).print(to_rich(table))


def fail_above(results: Results, metric: str, threshold: float | None) -> None:
    """Raise ThresholdCrossed if the metric's value at any length is above the threshold."""
    from lengthwise.report.row_tables import headline_rows, row_estimate

    if threshold is None:
        return
    crossed: Sequence[str] = [
        f"{row.length} tokens: {cell.text}"
        for row in headline_rows(results.rows)
        if row.metric == metric and row.value is not None and row.value > threshold
        if (cell := row_estimate(row)) is not None
    ]
    if crossed:
        raise ThresholdCrossed(f"{metric} is above {threshold:g} at {'; '.join(crossed)}")
