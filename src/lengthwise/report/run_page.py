"""The page of one run, or of several side by side, from their folders alone."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lengthwise.config import read_yaml
from lengthwise.errors import UsageError
from lengthwise.files import atomic_write_text, named_path
from lengthwise.report.differences import paired_differences
from lengthwise.report.displays import display_of, displays, in_order, named_function
from lengthwise.report.drawing import Picture
from lengthwise.report.figures import training_curves
from lengthwise.report.html import GENERATOR, Section, render_page
from lengthwise.report.passages import Passage
from lengthwise.report.row_tables import (
    difference_rows,
    has_intervals,
    headline_rows,
    rows_table,
    side_by_side,
)
from lengthwise.report.tables import Table
from lengthwise.report.terminal import sce_sentence
from lengthwise.results import Results, Row, read_results
from lengthwise.runs import read_metrics
from lengthwise.samples import SampleLog

# Settings in which two runs may differ and still be read side by side.
_MAY_DIFFER = {"model", "adapter", "revision", "device", "dtype", "batch_size"}


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a run folder holds, under the name that tells it apart in the page."""

    path: Path
    label: str
    kind: str
    config: dict[str, Any]
    results: Results | None
    """None while a training run has not ended."""
    metrics: list[dict[str, Any]]

    @property
    def rows(self) -> list[Row]:
        """Its rows under its label."""
        return [replace(row, model=self.label) for row in self.results.rows] if self.results else []

    @property
    def partial(self) -> bool:
        """Whether results are missing."""
        return self.results is None or self.results.partial


def build_report(paths: Sequence[Path | str], out: Path | str | None = None) -> Path:
    """Write the page of the runs at `paths` and return where it is.

    Several runs share tables and figures. `out` is a file, or a folder that gets a `report.html`; by default
    the page of one run goes into its own folder, its figures beside it in `figures/`.

    A path may be `NAME=FOLDER`: tables and figures then show NAME in place of the model's name.

    Raises:
        UsageError: no runs; a folder that is no run or has no results yet; several runs without `out`;
            `out` is a file that is not one of our pages.
    """
    runs = _read(paths)
    target = _target(runs, named_path(out, what="--out") if out is not None else None)
    sections = [_section(task, runs) for task in _tasks(runs)]
    atomic_write_text(target, _page(runs, sections))
    if out is None:
        _write_figures(sections, runs[0].path / "figures")
    return target


def write_figures(paths: Sequence[Path | str], folder: Path) -> list[Path]:
    """Write the figures of the page as SVG files into `folder`; returns where they are.

    Raises:
        UsageError: no runs, or a folder that is no run or has no results yet.
    """
    runs = _read(paths)
    folder = named_path(folder, what="--out")
    return _write_figures([_section(task, runs) for task in _tasks(runs)], folder)


def _write_figures(sections: Sequence[Section], folder: Path) -> list[Path]:
    written = []
    for picture in (picture for section in sections for picture in section.figures):
        written.append(folder / f"{picture.name}.svg")
        atomic_write_text(written[-1], picture.svg + "\n")
    return written


def read_run(path: Path) -> Run:
    """Read a run folder.

    Raises:
        UsageError: not a run folder, without results, or with results that cannot be read.
    """
    if not (path / "config.yaml").is_file():
        raise UsageError(
            f"{path} is no run folder" if path.is_dir() else f"there is no folder {path}",
            expected="the --out folder of an earlier command (it has a config.yaml)",
        )
    config = read_yaml(path / "config.yaml")
    metrics = read_metrics(path / "metrics.jsonl")
    results = read_results(path / "results.json") if (path / "results.json").exists() else None
    if results is None and not metrics:
        raise UsageError(
            f"{path} has no results yet", fix="wait for the run to end, or run it again with --resume"
        )
    return Run(
        path=path,
        label=results.model_name if results else str(config.get("model", path.name)),
        kind=str(config.pop("kind", "run")),
        config=config,
        results=results,
        metrics=metrics,
    )


def _read(paths: Sequence[Path | str]) -> list[Run]:
    if not paths:
        raise UsageError("no run to report on", expected="one or more run folders")
    return _labelled([_read_named(str(path)) for path in paths])


def _read_named(path: str) -> Run:
    label, sign, folder = path.partition("=")
    whole = named_path(path, what="the run")
    if not sign or whole.exists():
        return read_run(whole)
    return replace(read_run(named_path(folder, what="the run")), label=label)


def _labelled(runs: Sequence[Run]) -> list[Run]:
    """Runs whose labels are all different: the model, then its folder too, then the whole path."""
    labels = [run.label for run in runs]
    for extended in (lambda run: f"{run.label} ({run.path.name})", lambda run: f"{run.label} ({run.path})"):
        counts = Counter(labels)
        labels = [
            extended(run) if counts[label] > 1 else label for run, label in zip(runs, labels, strict=True)
        ]
    return [replace(run, label=label) for run, label in zip(runs, labels, strict=True)]


def _target(runs: Sequence[Run], out: Path | None) -> Path:
    if out is None:
        if len(runs) > 1:
            raise UsageError("several runs need a place for their page", fix="--out page.html")
        return runs[0].path / "report.html"
    if out.is_dir():
        out = out / "report.html"
    if out.exists() and GENERATOR.encode() not in out.read_bytes():
        raise UsageError(f"{out} is not a page of lengthwise", fix="choose another --out")
    return out


def _page(runs: Sequence[Run], sections: Sequence[Section]) -> str:
    if len(runs) == 1:
        title = f"{runs[0].kind}: {runs[0].label}"
        lead = [display_of(task).question for task in _tasks(runs)][:1]
    else:
        title = f"{len(runs)} runs side by side"
        lead = [f"Compared: {'; '.join(run.label for run in runs)}."]
    notices = [
        f"`{run.label}` is partial: the run was interrupted, limited or has not ended."
        for run in runs
        if run.partial
    ]
    return render_page(
        title,
        [sentence for sentence in lead if sentence],
        sections,
        {
            f"Where it comes from: {run.label}": {
                "folder": os.path.abspath(run.path),
                "settings": run.config,
                **(run.results.provenance if run.results else {}),
            }
            for run in runs
        },
        notices=notices + _unequal_settings(runs),
        partial=any(run.partial for run in runs),
    )


def _tasks(runs: Sequence[Run]) -> list[str]:
    present = dict.fromkeys(row.task for run in runs for row in run.rows)
    if any(run.metrics for run in runs):
        present["training"] = None
    order = displays()
    return [task for task in order if task in present] + [task for task in present if task not in order]


def _unequal_settings(runs: Sequence[Run]) -> list[str]:
    """One sentence for each kind of run whose settings differ where a comparison needs them equal."""
    notices = []
    for kind in dict.fromkeys(run.kind for run in runs):
        configs = [run.config for run in runs if run.kind == kind]
        keys = dict.fromkeys(key for config in configs for key in config)
        differing = [
            key
            for key in keys
            if key not in _MAY_DIFFER and any(c.get(key) != configs[0].get(key) for c in configs)
        ]
        if differing and kind != "train":
            names = ", ".join(f"`{key}`" for key in differing)
            notices.append(f"The {kind} runs differ in {names}: their numbers are not of the same tokens.")
    return notices


def _section(task: str, runs: Sequence[Run]) -> Section:
    runs = [run for run in runs if _has(run, task)]
    rows = in_order([row for run in runs for row in run.rows if row.task == task])
    about = display_of(task)
    differences = difference_rows(rows)
    shown = {row.metric for row in rows}
    meanings = [f"`{metric}`: {meaning}" for metric, meaning in about.metrics.items() if metric in shown]
    notes = dict.fromkeys(note for run in runs if run.results for note in run.results.notes)
    return Section(
        title=about.title,
        paragraphs=[text for text in (about.question, *_sce_sentences(task, runs)) if text],
        tables=_tables(rows, about.title, partial=any(run.partial for run in runs)),
        figures=_pictures(task, rows, differences, runs),
        passages=_passages(about.passages, runs),
        notes=[*meanings, *notes],
        details=[rows_table(rows, caption=f"Every number of this part ({len(rows)})")] if rows else [],
    )


def _passages(function: str, runs: Sequence[Run]) -> list[Passage]:
    if not function:
        return []
    draw = named_function(function, "lengthwise.report.passages")
    return [passage for run in runs for passage in draw(SampleLog(run.path / "samples.jsonl"), run.label)]


def run_tables(paths: Sequence[Path | str]) -> list[Table]:
    """The tables of the page, one or two for each task, without figures.

    Raises:
        UsageError: no runs, or a folder that is no run or has no results yet.
    """
    runs = _read(paths)
    tables = []
    for task in _tasks(runs):
        ours = [run for run in runs if _has(run, task)]
        rows = in_order([row for run in ours for row in run.rows if row.task == task])
        tables += _tables(rows, display_of(task).title, partial=any(run.partial for run in ours))
    return tables


def _tables(rows: Sequence[Row], title: str, *, partial: bool) -> list[Table]:
    """The headline numbers, side by side where there are several models, and the paired differences."""
    plain, differences = headline_rows(rows), difference_rows(rows)
    tables = []
    if plain:
        draw = side_by_side if len({(row.model, row.arm, row.seed) for row in plain}) > 1 else rows_table
        intervals = ", with 95 % intervals" if has_intervals(plain) else ""
        tables.append(draw(plain, caption=f"{title}{' (partial)' if partial else ''}{intervals}"))
    if differences:
        tables.append(rows_table(differences, caption="Paired differences on the same tokens"))
    return tables


def _has(run: Run, task: str) -> bool:
    return any(row.task == task for row in run.rows) or (task == "training" and bool(run.metrics))


def _sce_sentences(task: str, runs: Sequence[Run]) -> list[str]:
    if task != "misalignment":
        return []
    said = [(run.label, sce_sentence(run.rows)) for run in runs]
    return [f"{label}: {text}" if len(runs) > 1 else text for label, text in said if text]


def _pictures(
    task: str, rows: Sequence[Row], differences: Sequence[Row], runs: Sequence[Run]
) -> list[Picture]:
    about = display_of(task)
    draws = [named_function(name, "lengthwise.report.figures") for name in about.figures]
    pictures = [draw(rows) for draw in draws]
    if task == "training":
        pictures.append(training_curves({run.label: run.metrics for run in runs if run.metrics}))
    for metric, better in about.better.items():
        chosen = [row for row in differences if row.metric == metric]
        pictures.append(paired_differences(chosen, better=better, name=f"differences-{metric}"))
    return [picture for picture in pictures if picture is not None]
