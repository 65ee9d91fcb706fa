"""Differences between runs: paired on the same items, and which of them are more than noise.

A difference is tested as its interval says: p is below 0.05 exactly where the interval excludes 0. It is that of
Student's t with D - 1 degrees of freedom for D documents, whose standard error is the bootstrap's, or what the
interval's end towards 0 makes of it where that is wider; where all documents differ by the same, by their signs
alone. Holm's correction is over all tests of the table, which are of its headline numbers: with
p_(1) <= ... <= p_(m) the corrected values are max over i <= k of min(1, (m - i + 1) p_(i)). So with 95 % probability
every difference that is called more than noise is a real one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from lengthwise.errors import UsageError, require_known
from lengthwise.files import named_run
from lengthwise.measure.measurement import Measurement
from lengthwise.measure.statistics import estimate_difference, few_documents, students_t, two_sided_p
from lengthwise.measure.table import MEASUREMENTS
from lengthwise.results import SIGNIFICANCE, Results, Row
from lengthwise.run_files import read_run
from lengthwise.samples import of_this_version, other_version

# Facts of a record that both sides of a difference share, and what to do if they do not.
_SAME = (
    (
        ("document", "start", "end", "crc", "question", "version", "targets"),
        "items",
        "measure the same text and, where it is read in tokens, models that share a tokenizer",
    ),
    (
        ("spans",),
        "key tokens",
        "measure both with one --evaluator, of the same weights, or the second on the --key-tokens of the first",
    ),
)


def measurement_of(results: Results, kind: type[Measurement] | None = None) -> Measurement:
    """The measurement of a finished run, with the settings that its model decided; `kind` if no table names it.

    UsageError if the run is not one of a measurement.
    """
    if kind is None and results.kind in MEASUREMENTS:
        kind = MEASUREMENTS[results.kind].measurement
    if kind is None:
        raise UsageError(
            f"a run of {results.kind!r} has no items to pair", expected=f"runs of {', '.join(MEASUREMENTS)}"
        )
    with of_this_version(f"the settings of {results.model_name}"):
        facts = results.provenance["measurement"]
    return kind.model_construct(**{name: facts[name] for name in kind.model_fields if name in facts})


@of_this_version("the samples of the two runs")
def paired_difference(
    a: Results, b: Results, *, kind: type[Measurement] | None = None, across: Sequence[str] = ()
) -> list[Row]:
    """Every number of `a` minus the same number of `b`, with a 95 % interval for the difference.

    Both must be of the same tokens with the same settings. Documents are resampled together for both, so what
    makes a text hard or easy for both models cancels: the interval is mostly much narrower than those of the two
    numbers. `Row.reference` names b's model.

    There is no difference where a number on either side is undefined, left out, a lower bound, or of lm-eval and no
    mean over samples; nor for a level that is set. Where all documents differ by the same there is no interval: it
    would claim to know all others.

    Args:
        a, b: two runs with their records.
        kind: their measurement, if it is your own: one that `MEASUREMENTS` does not name.
        across: settings that may differ, because the difference is about them.

    Raises:
        UsageError: the two runs are not of the same items, or have other settings, or a number is not that of its
            samples.
    """
    check_same_items(a, b, across)
    measurement = measurement_of(a, kind)
    one, other = (measurement.statistics(list(side.records.values())) for side in (a, b))
    by_place = {statistic.row.place: statistic for statistic in other}
    values = [{row.place: row.value for row in side.rows if not row.at_least} for side in (a, b)]
    found = []
    for statistic in one:
        place = statistic.row.place
        if place not in by_place or statistic.row.metric in measurement.about.levels:
            continue
        # A number of lm-eval that is no mean over samples has no documents.
        if not (statistic.documents and by_place[place].documents):
            continue
        row = estimate_difference(statistic, by_place[place])
        row = replace(row, model=a.model_name, reference=b.model_name)
        ours, theirs = (side.get(place) for side in values)
        if ours is None or theirs is None or row.value is None:
            row = replace(row, value=None, stderr=None, ci_low=None, ci_high=None)
        elif not math.isclose(ours - theirs, row.value, rel_tol=1e-6, abs_tol=1e-6 * abs(ours)):
            raise other_version("the numbers of the two runs", f"{place[:2]} are not those of the samples")
        elif row.stderr == 0:
            row = replace(row, ci_low=None, ci_high=None)
        found.append(row)
    return found


def check_same_items(a: Results, b: Results, across: Sequence[str] = ()) -> None:
    """Raise UsageError unless two runs are of the same items, with the same settings but for those of `across`."""
    one, other = a.provenance["measurement"], b.provenance["measurement"]
    differing = sorted(key for key in {**one, **other}.keys() - {*across} if one.get(key) != other.get(key))
    if differing:
        shown = "; ".join(f"{key}: {one.get(key)!r} and {other.get(key)!r}" for key in differing)
        raise UsageError(
            f"the two measurements have other settings ({shown})",
            expected="the same settings, so that they are of the same tokens",
        )
    missing = sorted(set(a.records) ^ set(b.records))
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise UsageError(
            f"the two measurements are not of the same windows: only one has {missing[0]}{more}",
            fix="measure both models on the same text with the same settings, to the end",
        )
    for facts, what, fix in _SAME:
        for key, record in a.records.items():
            if any(record.get(name) != b.records[key].get(name) for name in facts):
                problem = f"the two measurements are not of the same {what}: {key} has others"
                raise UsageError(problem, fix=fix)


def check_numbers(run: Results) -> None:
    """Raise UsageError unless the numbers of a run are those of the samples that it has."""
    kept = {row.place: row.value for row in run.rows}
    measurement, records = measurement_of(run), list(run.records.values())
    for row in measurement.rows(measurement.statistics(records), records):
        value = kept.get(row.place)
        if value is None or row.value is None or not math.isclose(value, row.value, rel_tol=1e-6):
            raise other_version(
                f"the numbers of {run.model_name}", f"{row.place[:2]} is not that of the samples"
            )


def difference_of_runs(
    paths: Sequence[Path | str], *, reference: Path | str | None = None, metrics: Sequence[str] = ()
) -> Results:
    """Every headline number of each run minus the same number of the reference, with intervals.

    Rows: the numbers of all runs, then the differences, which have a `reference`, and `p_holm` where they are
    tested: the points of a curve by distance are not, beside numbers of the whole curve, unless `metrics` names them.

    Args:
        paths: run folders of one kind, any of `MEASUREMENTS`, or NAME=FOLDER, which names a run in the rows.
        reference: which of them the others are compared with, by its folder or its NAME; default the first.
        metrics: only these numbers; default all. The fewer are tested, the less power Holm's correction costs.

    Raises:
        UsageError: fewer than two runs, runs of several kinds, unfinished ones, runs that are not of the
            same items, a metric that they do not have.
    """
    labelled = [named_run(path) for path in paths]
    given = [path for _, path in labelled]
    check_different(given)
    folders = {path.resolve(): path for path in given}
    labels = {path.resolve(): label for label, path in labelled if label}
    base = next(iter(folders), None)
    if reference is not None:
        own = next((path for label, path in labelled if label == str(reference)), None)
        label, path = ("", own) if own is not None else named_run(reference)
        base = path.resolve()
        folders = folders if base in folders else {base: path, **folders}
        labels |= {base: label} if label else {}
    if base is None or len(folders) < 2:
        raise UsageError("there is nothing to compare", expected="two or more run folders")
    read = {whole: read_run(folder) for whole, folder in folders.items()}
    units = [measurement_of(run).about.units for run in read.values()]
    if len({run.kind for run in read.values()}) > 1:
        shown = "; ".join(f"{folders[whole]}: {run.kind}" for whole, run in read.items())
        raise UsageError(f"the runs are of several kinds ({shown})", expected="runs of one kind")
    names = _names(folders, read) | labels
    if len(set(names.values())) < len(names):
        raise UsageError(f"two runs have one name ({', '.join(names.values())})", expected="a NAME for each")
    sides = {whole: replace(run, model_name=names[whole]) for whole, run in read.items()}
    plain = [replace(row, model=side.model_name) for side in sides.values() for row in side.rows]
    known = {row.metric for row in plain}
    for metric in metrics:
        require_known(metric, known, "these runs have no metric")
    reference_side, differences = sides.pop(base), []
    for whole, side in sides.items():
        try:
            differences += paired_difference(side, reference_side)
        except UsageError as error:
            problem = f"{folders[whole]} cannot be compared with {folders[base]}: {error.problem}"
            raise UsageError(problem, expected=error.expected, fix=error.fix) from error
    plain, differences = (
        [row for row in rows if row.is_whole and (not metrics or row.metric in metrics)]
        for rows in (plain, differences)
    )
    if not any(row.value is not None for row in differences):
        raise UsageError(
            f"these runs have no {' or '.join(metrics) or 'number'} that can be paired",
            expected="numbers that are known on both sides, with the samples that they are made from",
        )
    headlines = [row for row in differences if metrics or row.distance is row.kept is None] or differences
    corrected = dict(zip(map(id, headlines), holm(headlines), strict=True))
    differences = [corrected.get(id(row), row) for row in differences]
    title = f"{len(sides)} runs" if len(sides) > 1 else next(iter(sides.values())).model_name
    return Results(
        kind="difference",
        model_name=f"{title} against {names[base]}",
        config={"runs": list(map(str, folders.values())), "reference": str(folders[base])},
        rows=plain + differences,
        notes=[*_notes(differences, units[0]), *_of_lm_eval([*read.values()])],
    )


def check_different(folders: Sequence[Path]) -> None:
    """Raise UsageError if two paths are one run folder."""
    if len({path.resolve() for path in folders}) < len(folders):
        raise UsageError(
            f"a run is given twice: {', '.join(map(str, folders))}", expected="different run folders"
        )


def _of_lm_eval(runs: Sequence[Results]) -> list[str]:
    """What lm-eval made of the prompts of imported runs otherwise, although the questions are the same."""
    facts = [run.provenance.get("lm_eval") or {} for run in runs]
    found = {key: dict.fromkeys(str(each.get(key)) for each in facts) for key in facts[0]}
    return [f"lm-eval's {key} differs: {', '.join(seen)}." for key, seen in found.items() if len(seen) > 1]


def _names(folders: Mapping[Path, Path], runs: Mapping[Path, Results]) -> dict[Path, str]:
    """The models' names where they differ, else the folders' names, else their paths."""
    for name in (lambda whole: runs[whole].model_name, lambda whole: folders[whole].name):
        names = {whole: name(whole) for whole in folders}
        if len(set(names.values())) == len(names):
            return names
    return {whole: str(folder) for whole, folder in folders.items()}


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
    end = row.ci_low if row.value > 0 else row.ci_high
    width = 0.0 if end is None else abs(row.value - end) / students_t(0.975, row.documents - 1)
    return two_sided_p(row.value / max(row.stderr, width), row.documents - 1)


def _notes(rows: Sequence[Row], units: str) -> list[str]:
    tested = [row for row in rows if row.p_holm is not None]
    notes = ["No difference can be told from noise here."]
    if tested:
        beyond = sum(bool(row.beyond_noise) for row in tested)
        names = ", ".join(dict.fromkeys(row.metric for row in tested))
        notes = [
            f"{beyond} of {len(tested)} differences are more than noise "
            f"(p < {SIGNIFICANCE:g} after Holm's correction over {names})."
        ]
        if all(row.value == 0 for row in tested):
            notes.append("All numbers are equal.")
    points = [
        row for row in rows if row.p_holm is None and row.distance is not None and row.ci_low is not None
    ]
    if points:
        names = ", ".join(dict.fromkeys(row.metric for row in points))
        notes.append(
            f"Points of curves are not tested beside headline numbers: {names} ({len(points)}); --metric does."
        )
    notes += few_documents(min((row.documents for row in rows if row.documents), default=0), units)
    if any(row.stderr == 0 and row.value != 0 for row in tested):
        notes.append(
            f"Where all {units} differ by the same amount there is no interval, and p is that of a sign test."
        )
    if any(row.value is None for row in rows):
        notes.append("Where a number is a lower bound, or not defined, there is no difference.")
    return notes
