"""What `make llamacpp` found, as tables of the documentation: pairs of sides at each length, and by position."""

from __future__ import annotations

from itertools import pairwise

from lengthwise.report.tables import Table
from lengthwise.results import Results, Row

KIND = "llamacpp-real"
"""The kind of its results."""
_EDGES = (0, 128, 512, 1024, 2048, 4096, 8192)
"""Of the positions in the table: edges of bins, as far as windows go."""


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
                arm,
                length,
                *(f"{by[metric].value:.2g}" for metric in ("difference", "kl", "largest")),
                f"{by['shift'].value:+.2g}",
                f"{by['same_top'].value:.3f}",
                f"{own.value:.2f}, {change.value:.2f}",
            )
        )
    columns = (
        "B against A",
        "tokens",
        "difference",
        "KL at least",
        "largest",
        "shift",
        "same top",
        "benefit A, B",
    )
    return Table(columns=columns, rows=lines)


def positions_table(results: Results) -> Table:
    """The mean difference by position at each length; a line for each pair of sides."""
    lines = []
    for arm, length in _places(results):
        bins = [row for row in _of(results, arm, length) if row.metric == "difference" and not row.is_whole]
        edges = [edge for edge in _EDGES if edge <= length]
        means = [_mean(bins, begin, end) for begin, end in pairwise(edges)]
        lines.append((arm, length, *(f"{mean:.2g}" for mean in means), *[""] * (len(_EDGES) - len(edges))))
    return Table(columns=("B against A", "tokens", *(f"to {edge:,}" for edge in _EDGES[1:])), rows=lines)


def verdicts_table(results: Results) -> Table:
    """The sentences of `compare` for each pair of sides and length."""
    return Table(
        columns=("B against A", "what compare says"),
        rows=[tuple(note.split(": ", 1)) for note in results.notes],
    )


def _places(results: Results) -> list[tuple[str, int]]:
    """The arms with each of their lengths, in order."""
    return list(dict.fromkeys((str(row.arm), row.length or 0) for row in results.rows))


def _of(results: Results, arm: str, length: int) -> list[Row]:
    return results.select(arm=arm, length=length)


def _mean(bins: list[Row], begin: int, end: int) -> float:
    """The mean over the bins of positions inside, each with its tokens."""
    inside = [
        row for row in bins if begin <= (row.position or 0) and row.position_end and row.position_end <= end
    ]
    weights = [(row.position_end or 0) - (row.position or 0) for row in inside]
    return sum(weight * (row.value or 0) for weight, row in zip(weights, inside, strict=True)) / sum(weights)
