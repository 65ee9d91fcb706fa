"""An evaluation's run as a measurement: every question is an item that two runs can be paired on."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from lengthwise.evaluation.score_rows import BESIDE, ranked_metrics, unit_of
from lengthwise.evaluation.tasks import FAMILIES
from lengthwise.measure.measurement import Measurement
from lengthwise.measure.statistics import Statistic, mean_of_ratios, ratio
from lengthwise.results import Row
from lengthwise.samples import SampleLog

if TYPE_CHECKING:
    from lengthwise.results import Results

# Settings that decide which questions are asked, or how their answers are scored. The source of the questions
# (text, data, stories, templates) shows in their hash.
_SETTINGS = (
    "backend", "mode", "tasks", "lengths", "depths", "samples", "seed", "max_length", "truncation", "chat",
)  # fmt: skip


@dataclass(frozen=True)
class _Score:
    key: str
    task: str
    metric: str
    document: str
    value: float

    @property
    def length(self) -> int | None:
        """The tokens in a key like `needle_single/L2048/d50/s003`."""
        found = self._part("L")
        return None if found is None else int(found)

    @property
    def depth(self) -> float | None:
        """The per cent in such a key."""
        return self._part("d")

    def _part(self, letter: str) -> float | None:
        parts = (part[1:] for part in self.key.split("/") if part[:1] == letter)
        return next((float(part) for part in parts if part.replace(".", "", 1).isdigit()), None)


def evaluation_of(results: Results, log: SampleLog, *, by_depth: bool = False) -> Measurement:
    """Mean scores by task and length, and the plain mean over the tasks of a family that has one.

    Tasks and metrics have the names of the run's own rows. The items are questions, not tokens: models with
    different tokenizers can be paired on the same questions.
    """
    tasks: Mapping[str, Mapping[str, Any]] = results.provenance["tasks"]
    harness = results.config.get("backend") == "lm-eval"
    scores = _of_lm_eval(log) if harness else _of_ours(log, tasks)
    blank = Row(
        model=results.model_name, task="", metric="", value=None, unit="score" if harness else "share"
    )
    statistics = [
        statistic
        for task, metric in dict.fromkeys((score.task, score.metric) for score in scores)
        for statistic in _by_length(
            [score for score in scores if (score.task, score.metric) == (task, metric)],
            replace(blank, task=task, metric=metric, unit=blank.unit if harness else unit_of(metric)),
            by_depth=by_depth,
        )
    ]
    for family in () if harness else FAMILIES:
        members = [task.name for task in family.tasks if task.name in tasks]
        if family.mean is not None and len(members) > 1:
            statistics += _by_length(
                [score for score in scores if score.task in members and score.metric not in BESIDE],
                replace(blank, task=family.name, metric=family.mean),
                members=members,
            )
    items = SampleLog()
    for key, document in dict.fromkeys((score.key, score.document) for score in scores):
        items.append(key, {"document": document})
    measurement = Measurement.of(
        statistics,
        model_name=results.model_name,
        settings={key: results.config.get(key) for key in _SETTINGS} | _identity(results, log, tasks),
        samples=items,
        keys=list(items),
    )
    # If all samples score alike there is no spread to estimate an interval from.
    blank_interval = {"stderr": None, "ci_low": None, "ci_high": None}
    measurement.rows = [
        replace(row, **blank_interval) if row.stderr == 0 else row for row in measurement.rows
    ]
    return measurement


def _of_ours(log: SampleLog, tasks: Mapping[str, Mapping[str, Any]]) -> list[_Score]:
    found = []
    ranked = ranked_metrics([log[key] for key in log if "probability" in log[key]])
    for key in sorted(log):
        record = log[key]
        task = record["task"]
        metrics = ranked if "probability" in record else {tasks[task]["metric"]: "score"}
        found += [
            _Score(key, task, metric, record["document"], record[field]) for metric, field in metrics.items()
        ]
    return found


def _of_lm_eval(log: SampleLog) -> list[_Score]:
    """Scores that are means over samples. The log also has the requests behind them."""
    found = []
    for key in sorted(log):
        record = log[key]
        if "score" in record:
            task, _, metric = record["task"].partition("/")
            found.append(_Score(key, task, metric, record["document"], record["score"]))
    return found


def _identity(
    results: Results, log: SampleLog, tasks: Mapping[str, Mapping[str, Any]]
) -> dict[str, int | str | None]:
    """What differs between runs with other questions or other scorers."""
    if results.config.get("backend") == "lm-eval":
        # The key of a request is a hash of it.
        requests = sorted(key for key in log if "score" not in log[key])
        return {
            "version of lm-eval": results.provenance.get("lm_eval"),
            "requests": hashlib.sha256("\n".join(requests).encode()).hexdigest()[:12],
        }
    hashes = {f"questions of {name}": about["questions_sha256"][:12] for name, about in tasks.items()}
    return hashes | {f"version of {name}": about["version"] for name, about in tasks.items()}


def _by_length(
    scores: Sequence[_Score], row: Row, *, members: Sequence[str] = (), by_depth: bool = False
) -> list[Statistic]:
    """One mean at each length (and depth), over questions or (with `members`) over these tasks."""
    totals: Callable[[_Score], list[float]] = partial(_placed, members) if members else _counted
    estimator = mean_of_ratios([[place] for place in range(len(members))]) if members else ratio
    found = []
    for length in sorted({score.length for score in scores}, key=lambda length: length or 0):
        of_length = [score for score in scores if score.length == length]
        depths = sorted({score.depth for score in of_length if by_depth and score.depth is not None})
        for depth in (None, *depths):
            at = [score for score in of_length if depth in (None, score.depth)]
            found.append(
                Statistic.of(
                    replace(row, length=length, depth=depth, n=len(at)),
                    [(score.document, totals(score)) for score in at],
                    estimator=estimator,
                )
            )
    return found


def _counted(score: _Score) -> list[float]:
    return [score.value, 1.0]


def _placed(tasks: Sequence[str], score: _Score) -> list[float]:
    """Sum and count at the place of the score's task, 0 elsewhere."""
    totals = [0.0] * (2 * len(tasks))
    place = 2 * tasks.index(score.task)
    totals[place : place + 2] = _counted(score)
    return totals
