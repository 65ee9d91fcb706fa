"""The kept rows of the real model (`studies/results/real`), as the results of a run of its study.

Every number is made again from the records of segments and questions, by the statistics that measured them.
Differences are paired by document (or context) within each seed.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from lengthwise.evaluation.tasks import TASKS
from lengthwise.measure.perplexity import Perplexity
from lengthwise.measure.statistics import Statistic, estimate, estimate_difference
from lengthwise.results import Results, Row
from lengthwise_studies.paper.methods import ENTROPY, PLAIN, SCE
from lengthwise_studies.real.study import FULL, REAL

Place = tuple[str, str, int, float | None]
"""Task, metric, length and depth."""
Numbers = Mapping[str, Mapping[int, Mapping[Place, Statistic]]]
"""Arm -> seed -> place -> the totals by document."""
_METRICS = ("loss", "perplexity", "loss_best_temperature", "accuracy")


def kept_files(folder: Path) -> list[Path]:
    """The files of all seeds."""
    return sorted(folder.glob("rows-seed*.jsonl.xz"))


def read_kept(files: Iterable[Path]) -> Results:
    """The numbers of every arm and seed, and every difference from cross entropy and of the term from the penalty."""
    records: dict[tuple[str, int, str], list[dict[str, Any]]] = {}
    for row in (
        json.loads(line) for file in files for line in lzma.decompress(file.read_bytes()).splitlines()
    ):
        if "record" in row:
            key = f"{row['setting']}: {row['arm']}", row["seed"], row["record"].get("task", "perplexity")
            records.setdefault(key, []).append(row["record"])
    numbers: dict[str, dict[int, dict[Place, Statistic]]] = {}
    for (arm, seed, task), own in records.items():
        places = numbers.setdefault(arm, {}).setdefault(seed, {})
        places |= {_place(task, one.row): one for one in _statistics(task, own) if _is_shown(one.row)}
    rows = [
        replace(estimate(one), arm=arm, seed=seed)
        for arm, seeds in numbers.items()
        for seed, places in seeds.items()
        for one in places.values()
    ]
    config = {"size": FULL.to_dict()}
    return Results(kind=REAL.name, model_name=FULL.model, config=config, rows=[*rows, *_differences(numbers)])


def _statistics(task: str, records: Sequence[dict[str, Any]]) -> list[Statistic]:
    if task != "perplexity":
        return TASKS[task].statistics(records)
    lengths = tuple(sorted({record["length"] for record in records}))
    return Perplexity(lengths=lengths, position_bins=8).statistics(records)


def _is_shown(row: Row) -> bool:
    return row.metric in _METRICS and row.position is row.bucket is None and row.length is not None


def _place(task: str, row: Row) -> Place:
    return task, row.metric, row.length or 0, row.depth


def _differences(numbers: Numbers) -> Iterator[Row]:
    pairs = [(one.arm(arm.name), one.arm(PLAIN)) for one in REAL.settings for arm in one.arms]
    pairs += [(one.arm(SCE), one.arm(ENTROPY)) for one in REAL.settings]
    for arm, other in pairs:
        places = {place for own in numbers[arm].values() for place in own} if arm != other else ()
        for place in sorted(places, key=str):
            yield from _difference(numbers, arm, place, other, place)
    experiment, _ = REAL.experiment(FULL)
    for each in experiment.contrasts:
        if each.lengths:
            place, other_place = (("perplexity", "loss", length, None) for length in each.lengths)
            for row in _difference(numbers, each.arm, place, each.against, other_place):
                yield replace(row, context_other=each.lengths[1])


def _difference(numbers: Numbers, arm: str, place: Place, other: str, other_place: Place) -> Iterator[Row]:
    """Of each seed that has both."""
    for (seed, ours), (other_seed, theirs) in product(numbers[arm].items(), numbers[other].items()):
        if seed == other_seed and place in ours and other_place in theirs:
            found = estimate_difference(ours[place], theirs[other_place])
            yield replace(found, arm=arm, reference=other, seed=seed)
