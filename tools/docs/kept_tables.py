"""The tables of a finished study, kept as text in `studies/results/tables/NAME.json` for the documentation.

Verdicts on cells and on single tokens need every sample of a run, which is too much to keep. So the tables are made
while the run is there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lengthwise.errors import UsageError
from lengthwise.files import atomic_write_text
from lengthwise.report.tables import Table, cell_text
from lengthwise.runs import finished_results
from lengthwise_studies.study_table import study_named
from tools.docs.kept_results import results_folder

CLAIMS = "The paper's claims"
"""The caption of a table of verdicts."""


def keep_tables(name: str, run: Path, root: Path, scale: str = "") -> Path:
    """Keep the tables of every finished part of the study `name`, at a scale, in the folder `run`.

    Raises:
        UsageError: no such study; no finished part.
    """
    kept: list[dict[str, Any]] = []
    for part in study_named(name).parts:
        folder = run / part.folder
        if finished := finished_results(folder):
            sections = part.sections(finished, folder)
            kept += [_plain(table) for section in sections for table in section.tables]
    if not kept:
        raise UsageError(f"{run} has no finished part of {name}", expected="the folder of a finished study")
    target = results_folder(root) / "tables" / f"{f'{name}-{scale}' if scale else name}.json"
    atomic_write_text(target, json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    return target


def _plain(table: Table) -> dict[str, Any]:
    return {
        "caption": table.caption,
        "columns": list(table.columns),
        "rows": [[cell_text(cell) for cell in row] for row in table.rows],
        "notes": list(table.notes),
    }


def kept_tables(name: str, root: Path) -> list[Table]:
    """The kept tables of a study, in the order of its page; none where nothing is kept."""
    path = results_folder(root) / "tables" / f"{name}.json"
    return (
        [Table(**plain) for plain in json.loads(path.read_text(encoding="utf-8"))] if path.is_file() else []
    )


def kept_table(name: str, number: int, root: Path, pattern: str = "") -> Table:
    """One of them, counted from 0, without its caption: the rows whose cells, joined by "|", match the pattern.

    Raises:
        UsageError: there are not so many.
    """
    tables = kept_tables(name, root)
    if number >= len(tables):
        raise UsageError(f"{name} has {len(tables)} kept tables", expected=f"more than {number}")
    found = tables[number]
    return Table(columns=found.columns, rows=_matching(found.rows, pattern), caption="", notes=found.notes)


def kept_claims(root: Path, *names: str, pattern: str = "") -> Table:
    """The verdicts of several studies in one table: the rows that match the pattern, as in `kept_table`.

    The place of a claim that was run at the paper's scale too says so.
    """
    columns = ["place", "claim", "paper", "verdict"]
    rows: list[list[Any]] = []
    for name in names:
        scale = ", scale paper" if name.endswith("-paper") else ""
        for table in kept_tables(name, root):
            if table.caption == CLAIMS:
                every = ([row[table.columns.index(column)] for column in columns] for row in table.rows)
                rows += [[f"{place}{scale}", *others] for place, *others in every]
    return Table(columns=columns, rows=_matching(rows, pattern))


def _matching(rows: Sequence[Sequence[Any]], pattern: str) -> list[Sequence[Any]]:
    return [row for row in rows if re.search(pattern, "|".join(map(str, row)))]
