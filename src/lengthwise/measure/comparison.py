"""Runs compared: paired differences on the same items, and which of them are more than noise.

A difference is tested by its bootstrap standard error against Student's t with D - 1 degrees of freedom for
D documents; where all documents differ by the same, by their signs alone. Holm's correction is over all tests of
the table: with p_(1) <= ... <= p_(m) the corrected values are max over i <= k of min(1, (m - i + 1) p_(i)). So with
95 % probability every difference that is called more than noise is a real one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from lengthwise.errors import UsageError, nearest
from lengthwise.files import named_path
from lengthwise.measure.paired import measurement_of, paired_difference
from lengthwise.measure.statistics import SIGNIFICANCE, two_sided_p
from lengthwise.results import Results, Row
from lengthwise.runs import read_run


def compare_runs(
    paths: Sequence[Path | str], *, reference: Path | str | None = None, metrics: Sequence[str] = ()
) -> Results:
    """Every headline number of each run minus the same number of the reference, with intervals.

    Rows: the numbers of all runs, then the differences, which have a `reference` and `p_holm`.

    Args:
        paths: run folders of one kind (measure, ppl, recall, limit, longppl, eval).
        reference: which of them the others are compared with; default the first.
        metrics: only these numbers; default all. The fewer, the less power Holm's correction costs.

    Raises:
        UsageError: fewer than two runs, runs of several kinds, unfinished ones, runs that are not of the
            same items, a metric that they do not have.
    """
    folders = [named_path(path, what="the run") for path in paths]
    whole = [folder.resolve() for folder in folders]
    base = 0
    if reference is not None:
        against = named_path(reference, what="--reference")
        if against.resolve() not in whole:
            folders.insert(0, against)
            whole.insert(0, against.resolve())
        base = whole.index(against.resolve())
    if len(folders) < 2:
        raise UsageError("there is nothing to compare", expected="two or more run folders")
    twice = [str(folder) for folder, one in zip(folders, whole, strict=True) if whole.count(one) > 1]
    if twice:
        raise UsageError(f"a run is given twice: {', '.join(twice)}", expected="different run folders")
    read = [read_run(folder) for folder in folders]
    measurements = [measurement_of(run) for run in read]
    kinds = {run.kind for run in read}
    if len(kinds) > 1:
        shown = "; ".join(f"{folder}: {run.kind}" for folder, run in zip(folders, read, strict=True))
        raise UsageError(f"the runs are of several kinds ({shown})", expected="runs of one kind")
    units = measurements[0].units
    names = _names(folders, [run.model_name for run in read])
    sides = [_under(name, run) for name, run in zip(names, read, strict=True)]
    plain = [row for side in sides for row in _wanted(side.rows, metrics)]
    _check_metrics(metrics, sides)
    differences = [
        row
        for index, side in enumerate(sides)
        if index != base
        for row in _differences(side, sides[base], metrics, folders[index], folders[base])
    ]
    differences = holm(differences)
    return Results(
        kind="compare",
        model_name=_title(names, base),
        config={"runs": [str(folder) for folder in folders], "reference": str(folders[base])},
        rows=plain + differences,
        notes=_notes(differences, units),
    )


def holm(rows: Sequence[Row]) -> list[Row]:
    """The rows with `p_holm`, corrected over those that can be tested."""
    corrected = holm_corrected([_p_value(row) for row in rows])
    return [replace(row, p_holm=p) for row, p in zip(rows, corrected, strict=True)]


def holm_corrected(values: Sequence[float | None]) -> list[float | None]:
    """p-values after Holm's correction over those that are not None, in the order given."""
    tested = [(p, index) for index, p in enumerate(values) if p is not None]
    corrected: list[float | None] = [None] * len(values)
    running = 0.0
    for rank, (p, index) in enumerate(sorted(tested)):
        running = max(running, min(1.0, (len(tested) - rank) * p))
        corrected[index] = running
    return corrected


def _p_value(row: Row) -> float | None:
    """Two-sided p of no difference; None without an interval."""
    if row.value is None or row.stderr is None or row.documents is None or row.documents < 2:
        return None
    if row.value == 0:
        return 1.0
    if row.stderr == 0:
        # All documents alike: as far as their signs alone can tell.
        return 2.0 ** (1 - row.documents)
    return two_sided_p(row.value / row.stderr, row.documents - 1)


def _differences(
    side: Results, base: Results, metrics: Sequence[str], path: Path, base_path: Path
) -> list[Row]:
    try:
        rows = paired_difference(side, base)
    except UsageError as error:
        raise UsageError(
            f"{path} cannot be compared with {base_path}: {error.problem}",
            expected=error.expected,
            fix=error.fix,
        ) from error
    return _wanted(rows, metrics)


def _wanted(rows: Sequence[Row], metrics: Sequence[str]) -> list[Row]:
    return [row for row in rows if row.is_whole and (not metrics or row.metric in metrics)]


def _check_metrics(metrics: Sequence[str], sides: Sequence[Results]) -> None:
    known = {row.metric for side in sides for row in side.rows}
    for metric in metrics:
        if metric not in known:
            raise UsageError(f"these runs have no metric {metric!r}", expected=nearest(metric, known))


def _names(folders: Sequence[Path], models: list[str]) -> list[str]:
    """The models' names where they differ, else the folders'."""
    if len(set(models)) == len(models):
        return models
    short = [folder.name for folder in folders]
    return short if len(set(short)) == len(short) else [str(folder) for folder in folders]


def _title(names: Sequence[str], base: int) -> str:
    others = [name for index, name in enumerate(names) if index != base]
    return f"{others[0] if len(others) == 1 else f'{len(others)} runs'} against {names[base]}"


def _under(name: str, run: Results) -> Results:
    return replace(run, model_name=name, rows=[replace(row, model=name) for row in run.rows])


def _notes(rows: Sequence[Row], units: str) -> list[str]:
    tested = [row for row in rows if row.p_holm is not None]
    beyond = [row for row in tested if row.p_holm is not None and row.p_holm < SIGNIFICANCE]
    notes = [
        f"{len(beyond)} of {len(tested)} differences are more than noise "
        f"(p < {SIGNIFICANCE:g} after Holm's correction over this table)."
        if tested
        else "No difference can be told from noise here."
    ]
    if tested and all(row.value == 0 for row in tested):
        notes.append("All numbers are equal.")
    documents = min((row.documents for row in rows if row.documents), default=0)
    if documents == 1:
        notes.append(f"With one of the {units} alone the noise is unknown.")
    elif 1 < documents < 8:
        notes.append(f"With only {documents} {units} real differences may not show.")
    if any(row.stderr == 0 and row.value != 0 for row in tested):
        notes.append(
            f"Where all {units} differ by the same amount there is no interval, and p is that of a sign test."
        )
    if any(row.value is None for row in rows):
        notes.append("Where a number is a lower bound, or not defined, there is no difference.")
    return notes
