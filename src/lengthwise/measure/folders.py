"""A measurement again, from a run folder's samples: what comparing runs needs besides their numbers."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lengthwise.errors import UsageError
from lengthwise.measure.correlation import Correlation, correlate_rows
from lengthwise.measure.measurement import Measurement
from lengthwise.measure.statistics import Statistic
from lengthwise.results import Results, Row, read_results
from lengthwise.samples import SampleLog

if TYPE_CHECKING:
    from collections.abc import Mapping

# Kind of run: the module whose `summarise` made its rows, and the settings that this takes.
MEASURED = {
    "measure": ("misalignment", "MisalignmentSettings"),
    "ppl": ("perplexity", "PerplexitySettings"),
    "recall": ("recall", "RecallSettings"),
    "limit": ("limit", "LimitSettings"),
    "longppl": ("longppl", "LongPplSettings"),
}
COMPARABLE = (*MEASURED, "eval")
# Of an evaluation's settings, those that belong to a side or change no score.
_OWN = ("model", "adapter", "dtype", "device", "batch_size")
_SCORES = {"score": "score", "probability": "gold_probability"}


def read_measurement(path: Path) -> tuple[str, Measurement]:
    """The kind of the run at `path`, and its measurement under the model's name.

    Raises:
        UsageError: no finished run, or of a kind that has no items to pair.
    """
    results = _results(path)
    if results.kind not in COMPARABLE:
        raise UsageError(
            f"{path} is a run of {results.kind!r}, which has no items to pair",
            expected=f"runs of {', '.join(COMPARABLE)}",
        )
    if results.partial:
        raise UsageError(f"the run in {path} is not finished", fix="finish it with --resume")
    log = SampleLog(path / "samples.jsonl")
    if results.kind == "eval":
        return results.kind, _evaluation(results, log)
    module_name, settings_name = MEASURED[results.kind]
    module = importlib.import_module(f"lengthwise.measure.{module_name}")
    stored: Mapping[str, Any] = results.provenance["measurement"]
    # JSON has lists where the settings have tuples.
    settings = {key: tuple(value) if isinstance(value, list) else value for key, value in stored.items()}
    return results.kind, module.summarise(log, getattr(module, settings_name)(**settings), results.model_name)


def _evaluation(results: Results, log: SampleLog) -> Measurement:
    """Mean scores by task, and by task and length: every question is an item."""
    groups: dict[tuple[str, str, int | None], list[dict[str, Any]]] = {}
    for key in log:
        record = log[key]
        lengths = [part[1:] for part in key.split("/") if part[:1] == "L" and part[1:].isdigit()]
        length = int(lengths[0]) if lengths else None
        for entry, metric in _SCORES.items():
            if record.get(entry) is not None:
                groups.setdefault((record["task"], metric, length), []).append(
                    {"document": record["document"], "value": record[entry]}
                )
    statistics = [
        Statistic.of(
            Row(
                model=results.model_name,
                task=task,
                metric=metric,
                value=None,
                unit="share",
                length=length,
                n=len(records),
            ),
            [(record["document"], [record["value"], 1]) for record in records],
        )
        for (task, metric, length), records in groups.items()
    ]
    return Measurement.of(
        statistics,
        model_name=results.model_name,
        settings={key: value for key, value in results.config.items() if key not in _OWN},
        samples=log,
        keys=list(log),
    )


def correlate_runs(
    paths: Sequence[Path], metric: str, score: str
) -> tuple[list[tuple[str, float, float]], Correlation]:
    """`correlate_rows` of the rows in run folders; a model's runs are put together by its name.

    Raises:
        UsageError: as `correlate_rows`; a folder without results.
    """
    runs: dict[str, list[Row]] = {}
    for path in paths:
        results = _results(path)
        adapter = results.config.get("adapter")
        name = f"{results.model_name} with {adapter}" if adapter else results.model_name
        runs.setdefault(name, []).extend(results.rows)
    return correlate_rows(runs, metric, score)


def _results(path: Path) -> Results:
    file = path / "results.json"
    if not file.is_file():
        raise UsageError(
            f"{path} has no results" if path.is_dir() else f"there is no folder {path}",
            expected="the --out folder of a finished run",
        )
    return read_results(file)
