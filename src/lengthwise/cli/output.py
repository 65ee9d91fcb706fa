"""Results on standard output: a table with a sentence under it, or the JSON object alone."""

from __future__ import annotations

import codecs
import io
import json
import os
import shlex
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from lengthwise.cli.options import SUMMARY, Output
from lengthwise.errors import Interrupted, UsageError
from lengthwise.machine import is_main_process

if TYPE_CHECKING:
    from lengthwise.report.tables import Table
    from lengthwise.results import Results

_WIDEST = 10_000
_SIGNS = str.maketrans("─│┼●–—“”’", '-|+o--""\'')
"""What curves and names are written with, in ASCII."""


def show(
    run: Callable[..., Results],
    output: Output,
    limits: Mapping[str, Callable[[Results], dict[str, Any]]] | None = None,
    junit: str | None = None,
) -> int:
    """Call `run` with the folder of `output`, print its results or those that an interruption left, and judge them.

    Returns the exit code. Of several processes the first alone prints.
    """
    try:
        results = run(out=output.out, resume=output.resume, overwrite=output.overwrite)
    except Interrupted as stop:
        if stop.partial is not None and is_main_process():
            print_results(stop.partial, output)
        raise
    return print_judged(results, output, limits or {}, junit)


def needed(folder: str | None, what: str, example: str) -> str:
    """The folder of `--out`; UsageError without one, which says `what` needs it."""
    if folder is None:
        raise UsageError(f"{what} needs a folder to write to", fix=f"--out {example}")
    return folder


def print_judged(
    results: Results,
    output: Output,
    limits: Mapping[str, Callable[[Results], dict[str, Any]]],
    junit: str | None,
) -> int:
    """Print results with what the gates say of them, write what a CI server reads, and return the exit code."""
    gates = [judge(results) for judge in limits.values()]
    if is_main_process():
        print_results(results, output, gates)
    if not gates and not os.environ.get(SUMMARY):
        return 0
    from lengthwise.cli.gates import exit_code, write_for_ci

    if is_main_process():
        write_for_ci(results, gates, junit)
    return exit_code(gates)


def print_results(results: Results, output: Output, gates: Sequence[dict[str, Any]] = ()) -> None:
    """The answer in a few lines and the notes; with -v, and where nothing answers, the table of headline numbers."""
    from lengthwise.report.sentence import said

    found = said(results)
    if output.as_json:
        states = [gate["passed"] for gate in gates]
        first = {
            "sentence": found.sentence,
            "passed": all(states) if gates else None,
            "gates": gates,
            "numbers": [row.to_dict() for row in found.numbers],
        }
        sys.stdout.write(results.to_json(**first))
        return
    from lengthwise.report.tables import in_order, rows_table
    from lengthwise.report.terminal import answer

    if lines := answer(results):
        print(*lines, sep="\n")
    if output.verbose or not lines:
        headlines = in_order([row for row in results.rows if row.is_headline])
        print_table(rows_table(headlines, caption=found.sentence))
    if results.notes:
        print()
    for note in results.notes:
        print(textwrap.fill(note, 80, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False))
    if output.out is not None:
        print(
            f"written to {output.out}; `lengthwise report {shlex.quote(str(output.out))}` makes a page of it"
        )


def print_plan(plan: Mapping[str, Any], *, as_json: bool, caption: str = "what would be done") -> None:
    """What a dry run found, or what was done, as a table of settings or as JSON."""
    if as_json:
        print(json.dumps(plan, indent=2, allow_nan=False))
        return
    from lengthwise.report.tables import settings_table

    print_table(settings_table(dict(_readable(*item) for item in plan.items()), caption=caption))


def print_report(report: Mapping[str, Any], *, as_json: bool) -> None:
    """The verdict of a report, a table, and its notes, or all of it as JSON."""
    apart = () if as_json else ("verdict", "rope_parameters", "notes", "faults")
    if not as_json:
        print_prose(report["verdict"])
    print_plan({key: value for key, value in report.items() if key not in apart}, as_json=as_json, caption="")
    for note in () if as_json else report["notes"]:
        print_prose(f"- {note}")


def _readable(key: str, value: Any) -> tuple[str, Any]:
    """Sizes and times in units for people; JSON keeps bytes and seconds."""
    if key.endswith("_bytes"):
        return key.removesuffix("_bytes"), None if value is None else f"{value / 1e9:.2f} GB"
    if key.startswith("seconds") and isinstance(value, int | float):
        value = f"{value:.0f} s" if value < 120 else f"{value / 60:.0f} min"
    elif isinstance(value, int) and value > 9999:
        value = f"{value:,}"
    return key.replace("seconds", "time"), value


def print_table(table: Table, *, widest: int = _WIDEST) -> None:
    """A table folded to the width of the terminal, or as wide as it needs where there is none; at most `widest`."""
    from rich.console import Console

    from lengthwise.report.writers import to_rich

    own = shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDEST
    console = Console(width=min(own, widest))
    with console.capture() as drawn:
        console.print(to_rich(table, width=console.width))
    # Cells are padded to the width of their column, which a pipe would hand on.
    print(*(line.rstrip() for line in drawn.get().splitlines()), sep="\n")


def print_tables(tables: Iterable[Table], *, as_json: bool, widest: int = _WIDEST, **more: str) -> None:
    """Each table and its notes, or JSON: `tables`, each with its caption, columns, rows and notes, and `more`.

    A number that is undefined or infinite is null there.
    """
    if as_json:
        plain = json.dumps({**more, "tables": [asdict(table) for table in tables]})
        print(json.dumps(json.loads(plain, parse_constant=lambda _: None), indent=2))
        return
    for table in tables:
        print_table(table, widest=widest)
        for note in table.notes:
            print_prose(note)


def print_prose(text: str) -> None:
    """A sentence, folded between its words to the width of the terminal where there is one."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDEST
    print(textwrap.fill(text, width, subsequent_indent="  " * text.startswith("- "), break_on_hyphens=False))


def in_plain_signs() -> None:
    """Let standard output and error write ASCII for signs that their encoding lacks; where there is none, nothing."""
    for name in ("stdout", "stderr"):
        # Closed with `>&-`, or of a service. What is printed to an error's None would go to standard output.
        if getattr(sys, name) is None:
            setattr(sys, name, io.StringIO())
    codecs.register_error("lengthwise", _plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower().replace("-", "") != "utf8":
            stream.reconfigure(errors="lengthwise")


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    signs = error.object[error.start : error.end].translate(_SIGNS)
    return signs.encode("ascii", "replace").decode(), error.end
