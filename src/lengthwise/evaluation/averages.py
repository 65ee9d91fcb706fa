"""Rows of scores, and means of means: what families average with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lengthwise.measure.measurement import Record
from lengthwise.measure.statistics import Statistic, Tree, mean_of_ratios
from lengthwise.results import Row


def score_row(task: str, metric: str, records: Sequence[Record], **where: Any) -> Row:
    """The row of a mean over `records`, without its value."""
    return Row(
        model="",
        task=task,
        metric=metric,
        value=None,
        unit="nats" if metric == "gold_loss" else "share",
        n=len(records),
        truncated=sum(record["cut"] > 0 for record in records),
        **where,
    )


def mean_over(
    task: str, metric: str, placed: Sequence[tuple[int, Record]], tree: Tree, **where: Any
) -> Statistic:
    """The mean over the branches of `tree` of their mean scores. A branch without scores is left out.

    Args:
        task, metric: of the row.
        placed: records, each with its cell of the tree.
        tree: see `mean_of_ratios`.
        where: other fields of the row.
    """
    used = set(_cells(tree))
    own = [(cell, record) for cell, record in placed if cell in used]
    row = score_row(task, metric, [record for _, record in own], **where)
    totals = []
    for cell, record in own:
        sums = [0.0] * (2 * (max(used) + 1))
        sums[2 * cell], sums[2 * cell + 1] = record["score"], 1.0
        totals.append((record["document"], sums))
    return Statistic.of(row, totals, estimator=mean_of_ratios(tree))


def _cells(tree: Any) -> list[int]:
    return [tree] if isinstance(tree, int) else [cell for branch in tree for cell in _cells(branch)]
