"""The numbers of a run from its records, and the paired difference of two runs on the same items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from lengthwise.errors import UsageError
from lengthwise.measure.measurement import Measurement, Record
from lengthwise.measure.statistics import Statistic, estimate_difference
from lengthwise.measure.table import MEASUREMENTS
from lengthwise.results import Results, Row

# What may differ between the two sides of a paired difference, or between a number and its statistic.
_OWN_TO_A_SIDE = ("model", "value", "stderr", "ci_low", "ci_high", "at_least", "n", "documents", "arm")


def statistics_of(measurement: Measurement, records: Sequence[Record], name: str) -> list[Statistic]:
    """The statistics that follow from the records, with `name` as their model."""
    return [
        replace(statistic, row=replace(statistic.row, model=name))
        for statistic in measurement.statistics(records)
    ]


def measurement_of(results: Results) -> Measurement:
    """The measurement of a finished run, with the settings that its model decided.

    Raises:
        UsageError: a kind of run that is no measurement.
    """
    if results.kind not in MEASUREMENTS:
        raise UsageError(
            f"a run of {results.kind!r} has no items to pair", expected=f"runs of {', '.join(MEASUREMENTS)}"
        )
    kind = MEASUREMENTS[results.kind].measurement
    given: dict[str, Any] = {}
    for name, value in results.provenance["measurement"].items():
        field = kind.model_fields.get(name)
        value = tuple(value) if isinstance(value, list) else value
        # A default that is given counts as a choice, which not every task takes.
        if field is not None and value != field.default:
            given[name] = value
    return kind(**given)


def paired_difference(a: Results, b: Results) -> list[Row]:
    """Every number of `a` minus the same number of `b`, with a 95 % interval for the difference.

    Both must be of the same tokens with the same settings. Documents are resampled together for both, so what
    makes a text hard or easy for both models cancels: the interval is mostly much narrower than those of the two
    numbers. `Row.reference` names b's model.

    A number that is undefined or a lower bound on either side has no difference. Levels that are set have none
    either. Where all documents differ by the same there is no interval: it would claim to know all others.

    Raises:
        UsageError: the two runs are not of the same items, or have other settings.
    """
    _check_same_items(a, b)
    measurement = measurement_of(a)
    one, other = (statistics_of(measurement, list(side.records.values()), side.model_name) for side in (a, b))
    by_identity = {_identity(statistic.row): statistic for statistic in other}
    unknown = {_identity(row) for row in (*a.rows, *b.rows) if row.value is None or row.at_least}
    found = []
    for statistic in one:
        place = _identity(statistic.row)
        if place not in by_identity or not statistic.documents or statistic.row.metric in measurement.levels:
            continue
        row = estimate_difference(statistic, by_identity[place])
        if place in unknown:
            row = replace(row, value=None, stderr=None, ci_low=None, ci_high=None)
        elif row.stderr == 0:
            row = replace(row, ci_low=None, ci_high=None)
        found.append(row)
    return found


def _check_same_items(a: Results, b: Results) -> None:
    one, other = a.provenance["measurement"], b.provenance["measurement"]
    differing = sorted(key for key in {**one, **other} if one.get(key) != other.get(key))
    if differing:
        shown = "; ".join(f"{key}: {one.get(key)!r} and {other.get(key)!r}" for key in differing)
        raise UsageError(
            f"the two measurements have other settings ({shown})",
            expected="the same settings, so that they are of the same tokens",
        )
    missing = sorted(set(a.records) ^ set(b.records))
    if missing:
        raise UsageError(
            f"the two measurements are not of the same windows: only one has {missing[0]}"
            + (f" and {len(missing) - 1} more" if len(missing) > 1 else ""),
            fix="measure both models on the same text with the same settings, to the end",
        )
    for facts, what, expected, fix in _SAME:
        for key, record in a.records.items():
            if any(_fact(record, name) != _fact(b.records[key], name) for name in facts):
                raise UsageError(
                    f"the two measurements are not of the same {what}: {key} has others",
                    expected=expected,
                    fix=fix,
                )


# Facts of a record that both sides share, and what to do if they do not.
_SAME = (
    (
        ("document", "start", "end", "crc", "question", "version"),
        "items",
        "the same text and, where it is read in tokens, models that share a tokenizer",
        None,
    ),
    (
        ("spans",),
        "key tokens",
        "one evaluator, with the same weights, adapter and dtype",
        "measure both models with the same --evaluator, or the second on the --key-tokens of the first",
    ),
    (
        ("targets",),
        "targets",
        "runs in which the same tokens gain from distant context",
        "measure both with --set targets=0: then the examined tokens are compared, which are the same",
    ),
)


def _fact(record: Mapping[str, Any], name: str) -> Any:
    found = record.get(name)
    # `influence` has a table of targets, of which the positions count; other measurements count their targets.
    return (
        [target["position"] for target in found] if name == "targets" and isinstance(found, list) else found
    )


def _identity(row: Row) -> tuple[tuple[str, Any], ...]:
    return tuple((name, value) for name, value in asdict(row).items() if name not in _OWN_TO_A_SIDE)
