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
from lengthwise.report.drawing import Picture
from lengthwise.report.figures import figures_of, training_curves
from lengthwise.report.html import GENERATOR, Section, render_page
from lengthwise.report.passages import influential_passages
from lengthwise.report.row_tables import (
    difference_rows,
    display_of,
    has_intervals,
    headline_rows,
    in_order,
    rows_table,
    side_by_side,
    tasks_in_order,
)
from lengthwise.report.tables import Table
from lengthwise.report.terminal import sce_sentence
from lengthwise.results import Results, Row, read_results
from lengthwise.runs import read_metrics
from lengthwise.samples import SampleLog

# Settings in which two runs may differ and still be read side by side.
_MAY_DIFFER = {"model", "adapter", "revision", "device", "dtype", "batch_size"}


@dataclass(frozen=True, kw_only=True)
class _Run:
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


@dataclass(frozen=True)
class _Part:
    """One task, with the runs that have it."""

    task: str
    runs: list[_Run]
    rows: list[Row]
    """Of all runs, in the order of tables."""

    @property
    def tables(self) -> list[Table]:
        """The headline numbers, side by side where there are several models, and the paired differences."""
        plain, differences = headline_rows(self.rows), difference_rows(self.rows)
        tables = []
        if plain:
            draw = side_by_side if len({(row.model, row.arm, row.seed) for row in plain}) > 1 else rows_table
            partial = " (partial)" if any(run.partial for run in self.runs) else ""
            intervals = ", with 95 % intervals" if has_intervals(plain) else ""
            tables.append(draw(plain, caption=f"{display_of(self.task).title}{partial}{intervals}"))
        if differences:
            tables.append(rows_table(differences, caption="Paired differences on the same tokens"))
        return tables

    @property
    def pictures(self) -> list[Picture]:
        """The figures of the task, and one of paired differences for each metric that has a better direction."""
        pictures: list[Picture | None] = [*figures_of(self.task, self.rows)]
        if self.task == "training":
            pictures.append(training_curves({run.label: run.metrics for run in self.runs if run.metrics}))
        differences = difference_rows(self.rows)
        for metric, better in display_of(self.task).better.items():
            chosen = [row for row in differences if row.metric == metric]
            pictures.append(paired_differences(chosen, better=better, name=f"differences-{metric}"))
        return [picture for picture in pictures if picture is not None]

    def section(self) -> Section:
        """The part of the page."""
        about = display_of(self.task)
        paragraphs, passages = [about.question], []
        if self.task == "misalignment":
            said = {run.label: sce_sentence(run.rows) for run in self.runs}
            paragraphs += [
                f"{label}: {text}" if len(self.runs) > 1 else text for label, text in said.items() if text
            ]
        if self.task == "influence":
            for run in self.runs:
                passages += influential_passages(SampleLog(run.path / "samples.jsonl"), run.label)
        shown = {row.metric for row in self.rows}
        meanings = [f"`{metric}`: {text}" for metric, text in about.metrics.items() if metric in shown]
        notes = dict.fromkeys(note for run in self.runs if run.results for note in run.results.notes)
        whole = rows_table(self.rows, caption=f"Every number of this part ({len(self.rows)})")
        return Section(
            title=about.title,
            paragraphs=[text for text in paragraphs if text],
            tables=self.tables,
            figures=self.pictures,
            passages=passages,
            notes=[*meanings, *notes],
            details=[whole] if self.rows else [],
        )


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
    sections = {part.task: part.section() for part in _parts(runs)}
    atomic_write_text(target, _page(runs, sections))
    if out is None:
        pictures = [picture for section in sections.values() for picture in section.figures]
        _write_pictures(pictures, target.parent / "figures")
    return target


def write_figures(paths: Sequence[Path | str], folder: Path | str) -> list[Path]:
    """Write the figures of the page as SVG files into `folder`; returns where they are.

    Raises:
        UsageError: no runs, or a folder that is no run or has no results yet.
    """
    pictures = [picture for part in _parts(_read(paths)) for picture in part.pictures]
    return _write_pictures(pictures, named_path(folder, what="--out"))


def run_tables(paths: Sequence[Path | str]) -> list[Table]:
    """The tables of the page, one or two for each task, without figures.

    Raises:
        UsageError: no runs, or a folder that is no run or has no results yet.
    """
    return [table for part in _parts(_read(paths)) for table in part.tables]


def _write_pictures(pictures: Sequence[Picture], folder: Path) -> list[Path]:
    written = [folder / f"{picture.name}.svg" for picture in pictures]
    for path, picture in zip(written, pictures, strict=True):
        atomic_write_text(path, picture.svg + "\n")
    return written


def _parts(runs: Sequence[_Run]) -> list[_Part]:
    tasks = {
        run.label: {row.task for row in run.rows} | ({"training"} if run.metrics else set()) for run in runs
    }
    present = [row.task for run in runs for row in run.rows] + ["training"] * any(run.metrics for run in runs)
    return [
        _Part(
            task,
            [run for run in runs if task in tasks[run.label]],
            in_order([row for run in runs for row in run.rows if row.task == task]),
        )
        for task in tasks_in_order(present)
    ]


def _read(paths: Sequence[Path | str]) -> list[_Run]:
    """The runs, with labels that are all different: the model, then its folder too, then the whole path."""
    if not paths:
        raise UsageError("no run to report on", expected="one or more run folders")
    runs = [_read_named(str(path)) for path in paths]
    for extended in (lambda run: f"{run.label} ({run.path.name})", lambda run: f"{run.label} ({run.path})"):
        counts = Counter(run.label for run in runs)
        runs = [replace(run, label=extended(run)) if counts[run.label] > 1 else run for run in runs]
    return runs


def _read_named(path: str) -> _Run:
    label, sign, folder = path.partition("=")
    whole = named_path(path, what="the run")
    if not sign or whole.exists():
        return _read_run(whole)
    return replace(_read_run(named_path(folder, what="the run")), label=label)


def _read_run(path: Path) -> _Run:
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
    return _Run(
        path=path,
        label=results.model_name if results else str(config.get("model", path.name)),
        kind=str(config.pop("kind", "run")),
        config=config,
        results=results,
        metrics=metrics,
    )


def _target(runs: Sequence[_Run], out: Path | None) -> Path:
    if out is None:
        if len(runs) > 1:
            raise UsageError("several runs need a place for their page", fix="--out page.html")
        return runs[0].path / "report.html"
    if out.is_dir():
        out = out / "report.html"
    if out.exists() and GENERATOR.encode() not in out.read_bytes():
        raise UsageError(f"{out} is not a page of lengthwise", fix="choose another --out")
    return out


def _page(runs: Sequence[_Run], sections: dict[str, Section]) -> str:
    if len(runs) == 1:
        title = f"{runs[0].kind}: {runs[0].label}"
        lead = [display_of(task).question for task in sections][:1]
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
        list(sections.values()),
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


def _unequal_settings(runs: Sequence[_Run]) -> list[str]:
    """One sentence for each kind of run whose settings differ where a comparison needs them equal."""
    notices = []
    for kind in dict.fromkeys(run.kind for run in runs if run.kind != "train"):
        configs = [run.config for run in runs if run.kind == kind]
        keys = dict.fromkeys(key for config in configs for key in config if key not in _MAY_DIFFER)
        differing = [f"`{key}`" for key in keys if any(c.get(key) != configs[0].get(key) for c in configs)]
        if differing:
            notices.append(
                f"The {kind} runs differ in {', '.join(differing)}: their numbers are not of the same tokens."
            )
    return notices
