"""A measurement again, from a run folder's samples: what comparing runs needs besides their numbers."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lengthwise.errors import UsageError
from lengthwise.measure.correlation import Correlation, correlate_rows
from lengthwise.measure.measurement import Measurement
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


def read_measurement(path: Path) -> tuple[str, Measurement]:
    """The kind of the run at `path`, and its measurement under the model's name.

    Raises:
        UsageError: no finished run, one without its samples, or of a kind that has no items to pair.
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
    if not len(log):
        raise UsageError(
            f"{path} has no samples.jsonl, or an empty one: there are no items to pair",
            expected="the whole run folder; results.json alone does not suffice",
        )
    if results.kind == "eval":
        from lengthwise.measure.table import MEASUREMENTS

        return results.kind, MEASUREMENTS["eval"].load(MEASUREMENTS["eval"].read)(results, log)
    module_name, settings_name = MEASURED[results.kind]
    module = importlib.import_module(f"lengthwise.measure.{module_name}")
    stored: Mapping[str, Any] = results.provenance["measurement"]
    # JSON has lists where the settings have tuples.
    settings = {key: tuple(value) if isinstance(value, list) else value for key, value in stored.items()}
    return results.kind, module.summarise(log, getattr(module, settings_name)(**settings), results.model_name)


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
