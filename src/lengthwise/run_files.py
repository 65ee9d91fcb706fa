"""Reading what a run folder holds (`lengthwise.runs` writes it)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lengthwise.errors import UsageError
from lengthwise.files import read_json
from lengthwise.results import Results, read_results
from lengthwise.samples import SampleLog


def read_inputs(path: Path) -> dict[str, dict[str, Any]]:
    """The fingerprints that the run at `path` was begun with; UsageError if its `inputs.json` has none."""
    file, expected = path / "inputs.json", "the fingerprints that the run was begun with"
    found = read_json(file, expected=expected)
    for name, prints in found.items():
        if not isinstance(prints, dict):
            problem = f"{file} holds a {type(prints).__name__} as {name!r}"
            raise UsageError(problem, expected=expected, fix="restore it, or start again")
    return found


def finished_results(path: Path) -> Results | None:
    """The whole (not partial) results of the run at `path`, if they are there."""
    file = path / "results.json"
    results = read_results(file) if file.exists() else None
    return None if results is None or results.partial else results


def read_run(path: Path) -> Results:
    """The results of a finished run with the records that they are made from.

    UsageError if the run is not finished, or has no samples.
    """
    results = read_results(path)
    if results.partial:
        raise UsageError(f"the run in {path} is not finished", fix="finish it with --resume")
    results.records = SampleLog(path / "samples.jsonl")
    if not results.records:
        raise UsageError(
            f"{path} has no samples.jsonl, or an empty one: there are no items to pair",
            expected="the whole run folder; results.json alone does not suffice",
        )
    return results
