"""What `make check-served` found, as tables of the documentation: servers against checkpoints, verbs over HTTP."""

from __future__ import annotations

from collections.abc import Sequence

from lengthwise.report.tables import Estimate, Table
from lengthwise.results import Results, Row

KIND = "served-real"
"""The kind of its results."""


def apart(verb: str, own: Sequence[Row], served: Sequence[Row]) -> list[Row]:
    """How far the numbers of a verb over HTTP are from those of the checkpoint: the largest difference in each unit.

    Rows of metric "apart" (`n` numbers compared) for each unit, and "not over HTTP": how many rows only the
    checkpoint has.
    """
    theirs = {row.place: row.value for row in served}
    assert theirs.keys() <= {row.place for row in own}, f"{verb}: numbers of the server alone"
    found: dict[str, list[float]] = {}
    missing = 0
    for row in own:
        if row.place not in theirs:
            missing += 1
            continue
        value = theirs[row.place]
        # Undefined on both sides is equal; on one side nothing is.
        same = row.value is None and value is None
        assert same or (row.value is not None and value is not None), f"{verb}: {row.place}"
        found.setdefault(row.unit, []).append(0.0 if same else abs((row.value or 0) - (value or 0)))
    model = own[0].model
    rows = [
        Row(model=model, task=verb, metric="apart", value=max(values), unit=unit, n=len(values))
        for unit, values in found.items()
    ]
    return [*rows, Row(model=model, task=verb, metric="not over HTTP", value=missing, unit="rows")]


def comparisons_table(results: Results) -> Table:
    """A line for each server, checkpoint and length."""
    arms = list(dict.fromkeys(row.arm for row in results.rows if row.task == "difference"))
    lines = []
    for arm in arms:
        lengths = sorted({row.length for row in results.rows if row.arm == arm and row.length is not None})
        for length in lengths:
            by = {row.metric: row for row in results.select(task="difference", arm=arm, length=length)}
            place = by["equal_up_to"]
            lines.append(
                (
                    str(arm),
                    length,
                    _short(by["difference"]),
                    _short(by["shift"], signed=True),
                    _short(by["largest"]),
                    f"all {length:,}" if place.at_least else f"{place.value:.0f}",
                )
            )
    columns = ("server against checkpoint", "tokens", "difference", "shift", "largest", "equal up to")
    return Table(columns=columns, rows=lines)


def verbs_table(results: Results) -> Table:
    """A line for each verb that was run on the checkpoint and over HTTP."""
    lines = []
    for verb in dict.fromkeys(row.task for row in results.rows if row.task != "difference"):
        rows = results.select(task=verb, metric="apart")
        [missing] = results.select(task=verb, metric="not over HTTP")
        words = "; ".join(f"{_small(row.value or 0)} {row.unit} ({row.n})" for row in rows)
        lines.append((verb, words, f"{missing.value:.0f}"))
    return Table(
        columns=("verb", "largest difference (of so many numbers)", "rows not over HTTP"), rows=lines
    )


def _short(row: Row, *, signed: bool = False) -> str:
    """Value and interval; two digits without one, and below a thousandth."""
    assert row.value is not None
    if row.ci_low is None or abs(row.value) < 1e-3:
        return f"{row.value:+.1e}" if signed and row.value else _small(row.value)
    return Estimate(row.value, row.ci_low, row.ci_high, signed=signed).text


def _small(value: float) -> str:
    return f"{value:.2g}" if value == 0 or value >= 1e-3 else f"{value:.1e}"


TABLES = {"comparisons": comparisons_table, "verbs": verbs_table}
"""Name -> what makes it."""
