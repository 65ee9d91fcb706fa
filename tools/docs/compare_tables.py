"""What `make compare` found, as tables of the documentation: planted faults, and sound pairs."""

from __future__ import annotations

from lengthwise.report.tables import Cell, Estimate, Table
from lengthwise.results import Results

SOUND = ("float32", "bfloat16")
"""The last word of the name of a sound pair."""


def faults_table(results: Results) -> Table:
    """A line for each planted fault: the sentence of `compare`, and what a far passage is worth on both sides."""
    said = dict(note.split(": ", 1) for note in results.notes)
    lines: list[list[Cell]] = []
    for arm in _arms(results, sound=False):
        by = {row.metric: row for row in results.rows if row.arm == arm}
        lines.append(
            [
                arm,
                said[arm].split(". ")[0] + ".",
                Estimate(by["difference"].value),
                _worth(by["benefit_a"].value),
                _worth(by["benefit_b"].value),
            ]
        )
    columns = ("planted", "what compare says first", "difference", "benefit, A", "benefit, B")
    return Table(columns=columns, rows=lines)


def sound_table(results: Results) -> Table:
    """A line for each precision: how many sound pairs were called equal, and the largest mean difference."""
    lines: list[list[Cell]] = []
    for precision in SOUND:
        arms = [arm for arm in _arms(results, sound=True) if arm.endswith(precision)]
        notes = [note for note in results.notes if note.partition(": ")[0] in arms]
        equal = sum("predicts as A does" in note for note in notes)
        rows = [row for row in results.rows if row.arm in arms]
        worst = max(row.value or 0.0 for row in rows if row.metric == "difference")
        least = min(row.value or 0.0 for row in rows if row.metric == "tolerance")
        lines.append([precision, f"{equal} of {len(arms)}", f"{worst:.2g}", f"{least:.2g}"])
    columns = ("precision", "called equal", "largest mean difference", "smallest tolerance")
    return Table(columns=columns, rows=lines)


def _arms(results: Results, *, sound: bool) -> list[str]:
    arms = dict.fromkeys(row.arm or "" for row in results.rows)
    return [arm for arm in arms if arm.endswith(SOUND) == sound]


def _worth(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
