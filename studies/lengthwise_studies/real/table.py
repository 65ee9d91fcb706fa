"""The kept rows of the real model (`studies/results/real`), read and compared.

Every number is made again from the records of segments and questions, by the statistics that measured them.
Differences are paired by document (or context) within each seed. Their intervals at 95 % are over seeds and documents
together (`over_seeds`), and over seeds alone (Student's t).
"""

from __future__ import annotations

import json
import lzma
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from lengthwise.errors import UsageError
from lengthwise.evaluation.tasks import TASKS
from lengthwise.measure.perplexity import Perplexity
from lengthwise.measure.statistics import Statistic, estimate, estimate_difference, students_t
from lengthwise.report.tables import Cell, Estimate, Table
from lengthwise.results import Row
from lengthwise_studies.over_seeds import rows_over_seeds
from lengthwise_studies.paper.methods import PLAIN

Line = tuple[str, str]
"""Setting and arm."""
Place = tuple[str, str, int, float | str | None]
"""Task, metric, length, depth or quarter."""


@dataclass
class Kept:
    """What the files of a run hold.

    Args:
        trained: T.
        numbers: line -> seed -> place -> the totals by document.
    """

    trained: int = 0
    numbers: dict[Line, dict[int | None, dict[Place, Statistic]]] = field(default_factory=dict)

    def places(self, task: str, metric: str) -> list[Place]:
        """The places of a number, in order of length and depth."""
        found = {place for seeds in self.numbers.values() for own in seeds.values() for place in own}
        order = ("first quarter", "second quarter", "third quarter", "last quarter")

        def key(place: Place) -> tuple[int, float]:
            where = place[3]
            return place[2], -1.0 if where is None else order.index(where) if isinstance(
                where, str
            ) else where

        return sorted((place for place in found if place[:2] == (task, metric)), key=key)

    def of(self, line: Line, place: Place) -> dict[int | None, Statistic]:
        """A number of an arm by seed."""
        return {seed: own[place] for seed, own in self.numbers[line].items() if place in own}


def kept_files(folder: Path) -> list[Path]:
    """The files of all seeds."""
    return sorted(folder.glob("rows-seed*.jsonl.xz"))


def read_kept(files: Iterable[Path]) -> Kept:
    """Read the rows of all seeds."""
    kept = Kept()
    records: dict[tuple[Line, int | None, str], list[dict[str, Any]]] = {}
    bins = 8
    for file in files:
        for row in map(json.loads, lzma.decompress(file.read_bytes()).splitlines()):
            if "head" in row:
                kept.trained = row["head"]["design"]["size"]["trained"]
                continue
            line, seed = (row["setting"], row["arm"]), row["seed"]
            if "record" in row:
                kind = row["record"].get("task", "perplexity")
                records.setdefault((line, seed, kind), []).append(row["record"])
            elif "settings" in row:
                bins = row["settings"].get("position_bins", bins)
    for (line, seed, kind), own in records.items():
        places = kept.numbers.setdefault(line, {}).setdefault(seed, {})
        for statistic in _statistics(kind, own, bins):
            found = statistic.row
            if found.position is None and found.length is not None:
                where = found.depth if found.bucket is None else found.bucket
                places[kind, found.metric, found.length, where] = statistic
    return kept


def _statistics(kind: str, records: Sequence[dict[str, Any]], bins: int) -> list[Statistic]:
    if kind != "perplexity":
        return TASKS[kind].statistics(records)
    lengths = tuple(sorted({record["length"] for record in records}))
    return Perplexity(lengths=lengths, position_bins=bins).statistics(records)


@dataclass(frozen=True)
class Difference:
    """An arm minus another in one number; `together` and what follows from it where all seeds read the same text."""

    mean: float
    together: Estimate | None
    p: float | None
    of_seeds: Estimate | None
    detectable: float | None


def difference(kept: Kept, line: Line, place: Place, *, to: str = PLAIN) -> Difference | None:
    """The paired difference of an arm to another one of the same extension; None without a seed that both have."""
    ours = kept.of(line, place)
    theirs = kept.of((line[0], to), place) if (line[0], to) in kept.numbers else {}
    rows = [estimate_difference(one, theirs[seed]) for seed, one in ours.items() if seed in theirs]
    if not rows:
        return None
    values = [row.value for row in rows if row.value is not None]
    mean = fmean(values)
    together = p = detectable = None
    # Each seed has contexts of its own for its questions.
    if place[0] == "perplexity":
        try:
            over = rows_over_seeds(rows)
            together, p = Estimate(over.mean, *over.interval, signed=True), over.p_value()
            detectable = over.detectable()
        except UsageError:
            pass
    of_seeds = None
    if len(values) > 1:
        half = students_t(0.975, len(values) - 1) * stdev(values) / math.sqrt(len(values))
        of_seeds = Estimate(mean, mean - half, mean + half, signed=True)
    return Difference(mean, together, p, of_seeds, detectable)


def _where(kept: Kept, place: Place) -> str:
    *_, length, part = place
    parts = (f"{length / kept.trained:g}T", part if isinstance(part, str | None) else f"depth {part:g} %")
    return ", ".join(filter(None, parts))


def mean_of(found: Mapping[int | None, Statistic]) -> Cell:
    """Over the seeds, with the lowest and the highest seed."""
    rows: list[Row] = [estimate(one) for one in found.values()]
    values = [row.value for row in rows if row.value is not None]
    if len(values) < 2:
        return next(iter(values), None)
    return Estimate(fmean(values), min(values), max(values))


def levels(kept: Kept, task: str, metric: str) -> Table:
    """A number of every arm by length and depth: mean over seeds, with the lowest and the highest seed."""
    places = kept.places(task, metric)
    lines = [line for line in kept.numbers if any(kept.of(line, place) for place in places)]
    documents = max(len(one.documents) for line in lines for one in kept.of(line, places[0]).values())
    of = "held-out documents; all lengths predict the same tokens" if task == metric else "contexts a seed"
    return Table(
        columns=["", "", "seeds", *(_where(kept, place) for place in places)],
        rows=[
            [*line, len(kept.of(line, places[0])), *(mean_of(kept.of(line, place)) for place in places)]
            for line in lines
        ],
        caption=f"{task}, {metric}",
        notes=[f"T = {kept.trained} tokens; {documents} {of}."],
    )
