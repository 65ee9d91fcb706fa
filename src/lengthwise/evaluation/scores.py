"""Scores of questions as numbers with intervals, from the log's records alone.

A record has the question's `document` (the unit of the bootstrap), `task`, `version`, `length`, `depth`, `bucket`,
`cut` (tokens) and `score`; with likelihoods also `probability`, `gold_loss` and `chance`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from lengthwise.measure.measurement import Record
from lengthwise.measure.statistics import Statistic, Tree, estimate, mean_of_ratios
from lengthwise.results import Row

RANKED = {"accuracy": "score", "gold_probability": "probability", "gold_loss": "gold_loss"}
"""The metrics of ranked answers, each with its field in a record."""


def mean(
    task: str,
    metric: str,
    records: Sequence[Record],
    *,
    field: str = "score",
    cells: Sequence[int] | None = None,
    tree: Tree = (0,),
    **where: Any,
) -> Statistic:
    """The mean of one field; with a tree the mean over its branches. A branch without records is left out.

    Args:
        task, metric: of the row.
        records: what is averaged.
        field: the field of a record.
        cells: the cell of each record in the tree; those of other cells are left out. Default: all in one.
        tree: see `mean_of_ratios`.
        where: other fields of the row.
    """
    used = _leaves(tree)
    placed = list(zip([0] * len(records) if cells is None else cells, records, strict=True))
    own = [(cell, record) for cell, record in placed if cell in used]
    row = Row(
        model="",
        task=task,
        metric=metric,
        value=None,
        unit="nats" if metric == "gold_loss" else "share",
        n=len(own),
        truncated=sum(record["cut"] > 0 for _, record in own),
        **where,
    )
    totals = []
    for cell, record in own:
        sums = [0.0] * (2 * (max(used) + 1))
        sums[2 * cell], sums[2 * cell + 1] = record[field], 1.0
        totals.append((record["document"], sums))
    return Statistic.of(row, totals, estimator=mean_of_ratios(tree))


def estimated(statistic: Statistic) -> Row:
    """The row with its interval; if all units score 0, or all 1, with the exact one of a binomial share.

    The bootstrap would give an interval of no width there, as if no other score were possible. If all units
    agree on a score between 0 and 1 there is no spread to estimate an interval from, and none is given. Chance is
    known and has none.
    """
    if not statistic.documents:
        return statistic.row
    row = estimate(statistic)
    if row.metric == "chance":
        return replace(row, documents=None, stderr=None, ci_low=None, ci_high=None, truncated=0)
    if row.documents is None or row.stderr != 0:
        return row
    if row.value not in (0.0, 1.0):
        return replace(row, ci_low=None, ci_high=None, stderr=None)
    far = 0.025 ** (1 / row.documents)
    return replace(row, ci_low=far) if row.value else replace(row, ci_high=1 - far)


def ranking(candidates: Sequence[str], gold: str, scores: Sequence[float]) -> Record:
    """The record of ranked answers, from their log-likelihoods."""
    right, top = scores[candidates.index(gold)], max(scores)
    total = sum(math.exp(score - top) for score in scores)
    return {
        "score": float(right == top and scores.count(top) == 1),
        "probability": math.exp(right - top) / total,
        # Of the log-likelihoods, so that it stays finite where the probability underflows.
        "gold_loss": top - right + math.log(total),
        "chance": 1 / len(scores),
        "likelihoods": dict(zip(candidates, scores, strict=True)),
    }


def prompt_notes(
    tasks: Mapping[str, Sequence[Mapping[str, Any]]], truncation: str | None, limit: int | None
) -> list[str]:
    """What was cut, and how far answers are from their depths, from the facts of each task's items."""
    where = "in the middle" if truncation == "middle" else "at the beginning"
    notes: list[str] = []
    for name, own in tasks.items():
        cut = [facts["cut"] for facts in own if facts["cut"]]
        if cut:
            notes.append(
                f"{len(cut)} of {len(own)} prompts of {name} were cut {where} to {limit} tokens "
                f"({fmean(cut):.0f} tokens of each on average)."
            )
        placed = [each for each in own if None not in (each.get("depth"), each.get("reached"))]
        off = [abs(each["reached"] * 100 - each["depth"]) for each in placed]
        if max(off, default=0) >= 2:
            notes.append(
                f"In {name} an answer is up to {max(off):.0f} points from its depth: sentences are not split."
            )
    return notes


def sample_means(records: Sequence[Record]) -> list[Statistic]:
    """Those of lm-eval's numbers that are means over samples."""
    return [
        Statistic.of(number(record), [(document, [value, 1.0]) for document, value in record["samples"]])
        for record in records
        if record.get("samples")
    ]


def number(record: Record) -> Row:
    """One of lm-eval's numbers, without an interval."""
    return Row(model="", **record["row"])


def _leaves(tree: Any) -> set[int]:
    return {tree} if isinstance(tree, int) else {cell for branch in tree for cell in _leaves(branch)}
