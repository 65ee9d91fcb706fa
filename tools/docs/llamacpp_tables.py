"""What `make check-llamacpp` found, as tables of the documentation: pairs of sides at each length."""

from __future__ import annotations

from lengthwise.report.tables import Table
from lengthwise.results import Results, Row

KIND = "llamacpp-real"
"""The kind of its results."""


def comparisons_table(results: Results) -> Table:
    """A line for each pair of sides and length."""
    lines = []
    for arm, length in _places(results):
        by = {row.metric: row for row in _of(results, arm, length) if row.is_whole and row.distance is None}
        change = max(
            (row for row in _of(results, arm, length) if row.metric == "benefit_b"),
            key=lambda row: row.distance or 0,
        )
        [own] = results.select(arm=arm, length=length, metric="benefit_a", distance=change.distance)
        lines.append(
            (
                f"{arm}, {length:,} tokens",
                f"{by['difference'].value:.2g}, {by['largest'].value:.2g}",
                f"{by['kl'].value:.2g}",
                f"{by['shift'].value:+.2g}",
                f"{by['same_top'].value:.3f}",
                f"{own.value:.2f}, {change.value:.2f}",
            )
        )
    columns = (
        "B against A",
        "difference: mean, largest",
        "KL at least",
        "shift",
        "same top",
        "benefit A, B",
    )
    return Table(columns=columns, rows=lines)


def _places(results: Results) -> list[tuple[str, int]]:
    """The arms with each of their lengths, in order."""
    return list(dict.fromkeys((str(row.arm), row.length or 0) for row in results.rows))


def _of(results: Results, arm: str, length: int) -> list[Row]:
    return results.select(arm=arm, length=length)
