"""The tables of a finished study, kept as text in `studies/results/tables/NAME.json` for the documentation.

    {"study": ..., "scale": ...,
     "parts": [{"heading": ..., "code": COMMIT, "rules": [[PLACE, CLAIM, RULE], ...], "tables": [TABLE, ...]}, ...]}

Verdicts on cells and on single tokens need every sample of a run, which is too much to keep. So the tables are made
while the run is there, with the rules that decided. A page that shows them is refused once the code has other rules.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lengthwise.errors import UsageError, nearest
from lengthwise.files import atomic_write_text
from lengthwise.report.tables import Cell, Table, cell_text
from lengthwise.run_files import finished_results
from lengthwise_studies.skeleton import Part, chosen_scale
from lengthwise_studies.study_table import study_named
from tools.docs.kept_results import results_folder

CLAIMS = "The paper's claims"
"""The caption of a table of verdicts."""
_SHOWN = ("place", "claim", "paper", "verdict")


def keep_tables(name: str, run: Path, root: Path, scale: str = "default") -> Path:
    """Keep the tables of every finished part of the study `name`, at a scale, in the folder `run`.

    Raises:
        UsageError: no such study; no finished part.
    """
    parts: list[dict[str, Any]] = []
    for part in study_named(name).parts:
        folder = run / part.folder
        if finished := finished_results(folder):
            tables = [table for section in part.sections(finished, folder) for table in section.tables]
            code = finished.provenance.get("commit")
            shown = {"rules": _rules(part, scale), "tables": [_plain(table) for table in tables]}
            parts.append({"heading": part.heading, "code": code, **shown})
    if not parts:
        raise UsageError(f"{run} has no finished part of {name}", expected="the folder of a finished study")
    target = results_folder(root) / "tables" / f"{name if scale == 'default' else f'{name}-{scale}'}.json"
    kept = {"study": name, "scale": scale, "parts": parts}
    atomic_write_text(target, json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    return target


def _rules(part: Part, scale: str) -> list[list[str]]:
    """Place, claim and rule of everything that the code judges."""
    claims = part.claims(chosen_scale(part.scales, scale))
    return [[claim.place, claim.says, claim.test.rule] for claim in claims]


def _plain(table: Table) -> dict[str, Any]:
    return {
        "caption": table.caption,
        "columns": list(table.columns),
        "rows": [[cell_text(cell) for cell in row] for row in table.rows],
        "notes": list(table.notes),
    }


@dataclass(frozen=True, kw_only=True)
class Kept:
    """The kept tables of a study at a scale, in the order of its page."""

    study: str
    scale: str
    tables: list[Table]

    @property
    def command(self) -> str:
        """The study as `lengthwise reproduce` takes it."""
        return self.study if self.scale == "default" else f"{self.study} --scale {self.scale}"

    def verdicts(self) -> Iterator[list[Cell]]:
        """Place, claim, the paper's number and verdict of every claim; a scale of several is in the place."""
        for table in self.tables:
            for row in table.rows if table.caption == CLAIMS else ():
                place, *others = (row[table.columns.index(column)] for column in _SHOWN)
                yield [place if self.scale == "default" else f"{place}, scale {self.scale}", *others]


def read_kept(name: str, root: Path) -> Kept:
    """The kept tables of that name.

    Raises:
        UsageError: none are kept; a part that no code makes; the code judges by other rules than those that decided.
    """
    path = results_folder(root) / "tables" / f"{name}.json"
    if not path.is_file():
        known = [one.stem for one in path.parent.glob("*.json")]
        raise UsageError(f"no kept tables {name!r}", expected=nearest(name, known))
    plain = json.loads(path.read_text(encoding="utf-8"))
    parts = {part["heading"]: part for part in plain["parts"]}
    tables = [Table(**table) for part in parts.values() for table in part["tables"]]
    kept = Kept(study=plain["study"], scale=plain["scale"], tables=tables)
    study = study_named(kept.study)
    if by_hand := parts.keys() - {part.heading for part in study.parts}:
        raise UsageError(
            f"{path.name} has the part {min(by_hand)!r}, which {kept.study} does not make",
            expected="tables that keep-tables made",
        )
    for part in study.parts:
        own = parts.get(part.heading)
        if own is None or all(table["caption"] != CLAIMS for table in own["tables"]):
            continue
        before, now = own["rules"], _rules(part, kept.scale)
        if before != now:
            place, says, rule = next(one for one in [*before, *now] if not (one in before and one in now))
            raise UsageError(
                f"{path.name} has verdicts of commit {own['code']}, and a rule has changed since: "
                f"{place}, {says!r}: {rule}",
                expected="verdicts of the code's rules",
                fix=f"lengthwise reproduce {kept.command} --out runs/{name}, then python -m tools.docs.doc_tables "
                f"keep-tables {kept.study} runs/{name} {kept.scale}",
            )
    return kept


def kept_table(name: str, number: int, root: Path, *where: str) -> Table:
    """One of them, counted from 0, without its caption: the rows `where` columns have these values.

    Raises:
        UsageError: there are not so many.
    """
    tables = read_kept(name, root).tables
    if number >= len(tables):
        raise UsageError(f"{name} has {len(tables)} kept tables", expected=f"more than {number}")
    return replace(_selected(tables[number], where), caption="")


def kept_claims(root: Path, *arguments: str) -> Table:
    """The verdicts of several studies in one table: arguments are their names, and conditions as in `kept_table`."""
    names = [one for one in arguments if "=" not in one]
    rows = [row for name in names for row in read_kept(name, root).verdicts()]
    return _selected(Table(columns=_SHOWN, rows=rows), [one for one in arguments if "=" in one])


def _selected(table: Table, where: Sequence[str]) -> Table:
    """The rows that meet every `COLUMN=VALUE|VALUE`, without columns of one value and those of `-COLUMN`."""
    columns, rows, left_out = list(table.columns), list(table.rows), set[int]()
    for condition in where:
        name, _, values = condition.partition("=")
        column = columns.index(name.removeprefix("-"))
        if values:
            rows = [row for row in rows if row[column] in values.split("|")]
        if "|" not in values:
            left_out.add(column)

    def shown(row: Sequence[Any]) -> list[Any]:
        return [cell for column, cell in enumerate(row) if column not in left_out]

    return replace(table, columns=shown(columns), rows=[shown(row) for row in rows])
