"""The tables of what was kept: `python -m lengthwise_studies.real.table FOLDER` (`studies/results/real` has the run).

Every number is made again from the records of segments and questions, by the statistics that measured them.
Differences are to plain CE, those of SCE to the entropy penalty too, paired by document (or context) within each
seed. Three intervals at 95 %: over seeds and documents together (`over_seeds`), over seeds alone (Student's t), over
documents alone (bootstrap of their sums over the seeds).
"""

from __future__ import annotations

import argparse
import json
import lzma
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from lengthwise.errors import UsageError
from lengthwise.evaluation.tasks import TASKS
from lengthwise.measure.perplexity import Perplexity
from lengthwise.measure.statistics import Statistic, estimate, estimate_difference, students_t
from lengthwise.report.tables import Cell, Estimate, Table
from lengthwise.report.writers import to_markdown
from lengthwise.results import Row
from lengthwise_studies.over_seeds import over_seeds
from lengthwise_studies.paper.methods import ENTROPY, PLAIN, SCE

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
        training: line -> seed -> the logged steps.
        left_out: what was not done, in words.
        facts: device, versions, design; the first file's.
    """

    trained: int = 0
    numbers: dict[Line, dict[int | None, dict[Place, Statistic]]] = field(default_factory=dict)
    training: dict[Line, dict[int | None, list[dict[str, Any]]]] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

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
                kept.facts = kept.facts or row["head"]
                kept.trained = row["head"]["design"]["size"]["trained"]
                continue
            line, seed = (row["setting"], row["arm"]), row["seed"]
            if "record" in row:
                kind = row["record"].get("task", "perplexity")
                records.setdefault((line, seed, kind), []).append(row["record"])
            elif "settings" in row:
                bins = row["settings"].get("position_bins", bins)
            elif "cross_entropy" in row:
                kept.training.setdefault(line, {}).setdefault(seed, []).append(row)
            elif "left_out" in row:
                kept.left_out.append(f"{line[0]}, {line[1]}, seed {seed}: {row['left_out']}")
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
    """An arm minus another in one number."""

    mean: float
    together: Estimate | None
    p: float | None
    of_seeds: Estimate | None
    of_documents: Estimate
    detectable: float | None
    seeds: int


def difference(
    kept: Kept, line: Line, place: Place, *, to: str = PLAIN, same_documents: bool = True
) -> Difference | None:
    """The paired difference to another arm of the same extension; None without a seed that both have.

    Args:
        kept: the run.
        line: the arm.
        place: the number.
        to: the other arm.
        same_documents: whether all seeds read the same documents; else their documents are pooled.
    """
    ours = kept.of(line, place)
    theirs = kept.of((line[0], to), place) if (line[0], to) in kept.numbers else {}
    seeds = [seed for seed in ours if seed in theirs]
    if not seeds:
        return None
    rows = [estimate_difference(ours[seed], theirs[seed]) for seed in seeds]
    values = [row.value for row in rows if row.value is not None]
    pooled = estimate_difference(
        _joined([ours[seed] for seed in seeds], same_documents),
        _joined([theirs[seed] for seed in seeds], same_documents),
    )
    mean = fmean(values)
    together = p = detectable = None
    if same_documents:
        try:
            over = over_seeds([(row.value or 0.0, row.stderr or 0.0, row.documents or 0) for row in rows])
            together, p = Estimate(over.mean, *over.interval, signed=True), over.p_value()
            detectable = over.detectable()
        except UsageError:
            pass
    of_seeds = None
    if len(values) > 1:
        half = students_t(0.975, len(values) - 1) * stdev(values) / math.sqrt(len(values))
        of_seeds = Estimate(mean, mean - half, mean + half, signed=True)
    of_documents = Estimate(pooled.value, pooled.ci_low, pooled.ci_high, signed=True)
    return Difference(mean, together, p, of_seeds, of_documents, detectable, len(seeds))


def _joined(several: Sequence[Statistic], same_documents: bool) -> Statistic:
    """One statistic of all seeds: sums by document, or the documents of all seeds side by side."""
    records = [
        (name if same_documents else f"{index}/{name}", list(totals))
        for index, one in enumerate(several)
        for name, totals in zip(one.documents, one.totals, strict=True)
    ]
    return Statistic.of(replace(several[0].row, n=None), records, estimator=several[0].estimator)


def tables(kept: Kept) -> list[Table]:
    """Everything that the run can say."""
    found: list[Table] = []
    for task in dict.fromkeys(
        place[0] for seeds in kept.numbers.values() for own in seeds.values() for place in own
    ):
        level, changed = ("accuracy", ("accuracy", "gold_loss"))
        if task == "perplexity":
            level, changed = task, ("loss", "loss_best_temperature")
        found.append(levels(kept, task, level))
        found += [changes(kept, task, metric, to=to) for metric in changed for to in (PLAIN, ENTROPY)]
    return [*(table for table in found if table.rows), _training(kept)]


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


def changes(kept: Kept, task: str, metric: str, *, to: str = PLAIN) -> Table:
    """The same minus that of another arm, with all intervals; SCE alone is compared with its entropy."""
    rows: list[list[Cell]] = []
    for line in kept.numbers:
        if line[1] == to or (to == ENTROPY and line[1] != SCE):
            continue
        for place in kept.places(task, metric):
            found = difference(kept, line, place, to=to, same_documents=task == "perplexity")
            if found is not None:
                numbers = (found.together, found.p, found.of_seeds, found.of_documents, found.detectable)
                rows.append([*line, _where(kept, place), found.seeds, *numbers])
    columns = ["", "", "at", "seeds", "over both", "p", "over seeds", "over documents", "could be seen"]
    note = "Each seed has contexts of its own for its questions: they are pooled."
    return Table(columns=columns, rows=rows, caption=f"{task}, {metric} minus that of {to}", notes=[note])


def _training(kept: Kept) -> Table:
    rows: list[list[Cell]] = []
    for line, seeds in kept.training.items():
        tenth = max(1, max(map(len, seeds.values())) // 10)
        cells: list[Cell] = []
        for name in ("cross_entropy", "entropy", "jeffreys"):
            for part in (slice(None, tenth), slice(-tenth, None)):
                cells.append(float(fmean(step[name] for own in seeds.values() for step in own[part])))
        rows.append([*line, len(seeds), max(map(len, seeds.values())), *cells])
    columns = ["", "", "seeds", "steps"]
    columns += [f"{name}, {when}" for name in ("CE", "entropy", "Jeffreys") for when in ("first", "last")]
    caption = "Training: means over the first and the last tenth of the steps, nats"
    return Table(columns=columns, rows=rows, caption=caption, notes=kept.left_out)


def main() -> None:
    """Print the tables of a folder in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    kept = read_kept(kept_files(parser.parse_args().folder))
    print(json.dumps({name: of for name, of in kept.facts.items() if name != "design"}), "\n")
    print("\n".join(map(to_markdown, tables(kept))))


if __name__ == "__main__":
    main()
