"""What `make check-lab` found, as tables of the documentation: planted faults, sound pairs, and simulations."""

from __future__ import annotations

from lengthwise.report.tables import Cell, Estimate, Table
from lengthwise.results import Results

_SOUND = "sound, "
"""How the arms of sound pairs begin; their dtype follows."""


_CALLED = "called "
"""How the metrics begin that count what a fault is called."""


def faults_table(results: Results) -> Table:
    """A line for each kind of fault: how many of those run are told right, the least, and what is said of one."""
    said: dict[str, list[str]] = results.config["examples"]
    lines: list[list[Cell]] = []
    for arm, by in _arms(results).items():
        if not arm.startswith(_SOUND):
            example, text = said.get(arm, ["", ""])
            least = Estimate(by["least"])
            right = f"{by['right']:.0f} of {by['pairs']:.0f}"
            lines.append([arm, f"{by['planted']:.0f}", right, least, example, _first(text)])
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
    kinds = {arm: by for arm, by in _arms(results).items() if not arm.startswith(_SOUND)}
    patterns = sorted(
        {name.removeprefix(_CALLED) for by in kinds.values() for name in by if name.startswith(_CALLED)},
        key=lambda name: (-sum(by.get(_CALLED + name, 0.0) for by in kinds.values()), name),
    )
    lines: list[list[Cell]] = [
        [arm, *(f"{by[_CALLED + name]:.0f}" if _CALLED + name in by else "" for name in patterns)]
        for arm, by in kinds.items()
    ]
    return Table(columns=("kind", *patterns), rows=lines)


def sound_table(results: Results) -> Table:
    """A line for each precision: how many sound pairs are called equal, and how far they are apart."""
    lines: list[list[Cell]] = [
        [
            arm.removeprefix(_SOUND),
            f"{by['right']:.0f} of {by['pairs']:.0f}",
            f"{by['most']:.2g}",
            f"{by['tolerance']:.2g}",
        ]
        for arm, by in _arms(results).items()
        if arm.startswith(_SOUND)
    ]
    columns = ("precision", "called equal", "largest mean difference", "smallest tolerance")
    return Table(columns=columns, rows=lines)


def nulls_table(results: Results) -> Table:
    """A line for each number of documents: how often what is not there is seen, and how often intervals are right."""
    rows = [row for row in results.rows if row.task == "null"]
    names = list(dict.fromkeys(row.metric for row in rows))
    by = {(row.arm, row.metric): row.value for row in rows}
    lines: list[list[Cell]] = [
        [arm or "", *(f"{100 * (by.get((arm, name)) or 0.0):.0f} %" for name in names)]
        for arm in dict.fromkeys(row.arm for row in rows)
    ]
    return Table(columns=("", *names), rows=lines)


def _arms(results: Results) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for row in results.rows:
        if row.task == "lab":
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
}
"""Name -> what makes it."""
