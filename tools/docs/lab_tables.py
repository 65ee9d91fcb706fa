"""What `make check-lab` found, as tables of the documentation: planted faults, sound pairs, and simulations."""

from __future__ import annotations

from lengthwise.report.tables import Cell, Estimate, Table
from lengthwise.results import Results


def faults_table(results: Results) -> Table:
    """A line for each kind of fault: how many of those run are told right, the least, and what is said of one."""
    said: dict[str, list[str]] = results.config["examples"]
    lines: list[list[Cell]] = []
    for kind, by in _arms(results, "lab").items():
        example, text = said.get(kind, ["", ""])
        right = f"{by['right']:.0f} of {by['pairs']:.0f}"
        lines.append([kind, f"{by['planted']:.0f}", right, Estimate(by["least"]), example, _first(text)])
    columns = (
        "kind",
        "planted",
        "right of those run",
        "least difference",
        "for example",
        "what is said first",
    )
    return Table(columns=columns, rows=lines)


def called_table(results: Results) -> Table:
    """A line for each kind of fault: how often each pattern is seen."""
    kinds = _arms(results, "called")
    lines: list[list[Cell]] = [
        [
            kind,
            ", ".join(f"{name} {times:.0f}" for name, times in sorted(by.items(), key=lambda one: -one[1])),
        ]
        for kind, by in kinds.items()
    ]
    return Table(columns=("kind", "called, and how often"), rows=lines)


def sound_table(results: Results) -> Table:
    """A line for each precision: how many sound pairs are called equal, and how far they are apart."""
    lines: list[list[Cell]] = [
        [
            dtype,
            f"{by['right']:.0f} of {by['pairs']:.0f}",
            f"{by['most']:.2g}",
            f"{by['tolerance']:.2g}",
        ]
        for dtype, by in _arms(results, "sound").items()
    ]
    columns = ("precision", "called equal", "largest mean difference", "smallest tolerance")
    return Table(columns=columns, rows=lines)


def nulls_table(results: Results) -> Table:
    """A line for each number of documents: how often what is not there is seen, and how often intervals are right."""
    arms = _arms(results, "null")
    names = list(dict.fromkeys(name for by in arms.values() for name in by))
    lines: list[list[Cell]] = [
        [arm, *(f"{100 * by.get(name, 0.0):.0f} %" for name in names)] for arm, by in arms.items()
    ]
    return Table(columns=("", *names), rows=lines)


def documents_table(results: Results) -> Table:
    """A line for each text, number of documents and measurement: how many of its intervals hold the truth."""
    lines: list[list[Cell]] = []
    for arm, by in _arms(results, "real documents").items():
        corpus, documents, kind = arm.split(", ")
        shares = [f"{100 * by[name]:.1f} %" for name in ("covered", "least covered")]
        said = f"{100 * by['less or more']:.1f} %" if "less or more" in by else None
        lines.append([corpus, kind, documents, f"{by['numbers']:.0f}", *shares, said])
    columns = (
        "text",
        "measurement",
        "of",
        "numbers",
        "covered",
        "least covered",
        "less or more at no change",
    )
    return Table(columns=columns, rows=lines)


def _arms(results: Results, task: str) -> dict[str, dict[str, float]]:
    """Arm -> metric -> value of the rows of a task: see `checks.lab.__main__.rows_of`."""
    found: dict[str, dict[str, float]] = {}
    for row in results.rows:
        if row.task == task:
            found.setdefault(row.arm or "", {})[row.metric] = row.value or 0.0
    return found


def _first(text: str) -> str:
    """The first sentence."""
    return text.split(". ")[0].rstrip(".") + "."


TABLES = {
    "faults": faults_table,
    "called": called_table,
    "sound": sound_table,
    "nulls": nulls_table,
    "documents": documents_table,
}
"""Name -> what makes it."""
