"""The page of one run, or of several side by side, from their folders alone."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lengthwise.errors import UsageError
from lengthwise.files import atomic_write_text, file_to_write, named_path, named_run
from lengthwise.report import tables
from lengthwise.report.drawing import FIGURE_BEGINS, Picture
from lengthwise.report.figures import figures_of, training_curves
from lengthwise.report.html import GENERATOR, Section, render_page
from lengthwise.report.limit_answer import REACHES, reaches
from lengthwise.report.ranking import MOST_SERIES
from lengthwise.report.sentence import said
from lengthwise.report.tables import Table
from lengthwise.results import Results, Row, read_metrics, read_results
from lengthwise.samples import of_this_version
from lengthwise.settings import Subject, TextOptions
from lengthwise.yaml_text import read_yaml

# Settings in which two runs may differ and still be read side by side: which model, and how it is read.
_MAY_DIFFER = Subject.model_fields.keys() - TextOptions.model_fields.keys() - {"text"} | {
    "batch_size",
    "side_b",
}

_kept = of_this_version("the results of the runs")


@dataclass(kw_only=True)
class _Run:
    path: Path
    label: str
    """Tells the run apart in the page; `results` have it as their model."""
    results: Results
    """Partial and without rows while a training run has not ended."""
    metrics: list[dict[str, Any]]


@_kept
def build_report(paths: Sequence[Path | str], out: Path | str | None = None) -> Path:
    """Write the page of the runs at `paths` and return where it is.

    Several runs share tables and figures. `out` is a file, or a folder that gets a `report.html`; by default
    the page of one run goes into its own folder, its figures beside it in `figures/`.

    A path may be `NAME=FOLDER`: tables and figures then show NAME in place of the model's name.

    Raises:
        UsageError: no runs; a folder that is no run or has no results yet; several runs without `out`;
            `out` is a file that is not one of our pages.
    """
    runs = read_runs(paths)
    target = _target(runs, named_path(out, what="--out") if out is not None else None)
    parts = _by_task(runs)
    says = [said(run.results) for run in runs]
    title, lead = says[0].sentence, says[0].more
    if len(runs) > 1:
        title, order = _ranked(runs, [each.numbers for each in says])
        lead = [says[place].sentence for place in order]
    partial = [run.label for run in runs if run.results.partial]
    notices = [
        f"`{label}` is partial: the run was interrupted, limited or has not ended." for label in partial
    ]
    # Below the last of its parts, the notes of a run are read once.
    last = {run.label: task for task, of_task in parts.items() for run in of_task}
    sections = [
        _section(
            task, of_task, [note for run in of_task if last[run.label] == task for note in run.results.notes]
        )
        for task, of_task in parts.items()
    ]
    page = render_page(
        title,
        lead,
        sections,
        {
            f"Where it comes from: {run.label}": {
                "folder": os.path.abspath(run.path),
                "settings": run.results.config,
                **run.results.provenance,
            }
            for run in runs
        },
        notices=notices + _unequal_settings([run.results for run in runs]),
        # The sentence of one run says so itself.
        partial=bool(partial) and len(runs) > 1,
    )
    atomic_write_text(target, page)
    if out is None:
        _write_pictures([each for section in sections for each in section.figures], target.parent / "figures")
    return target


@_kept
def write_figures(paths: Sequence[Path | str], folder: Path | str) -> list[Path]:
    """Write the figures of the page as SVG files into `folder`; returns where they are."""
    parts = _by_task(read_runs(paths))
    pictures = [picture for task, runs in parts.items() for picture in _pictures(task, runs)]
    return _write_pictures(pictures, named_path(folder, what="--out"))


@_kept
def run_tables(paths: Sequence[Path | str]) -> list[Table]:
    """The tables of the page, one or two for each task, without figures."""
    parts = _by_task(read_runs(paths))
    return [table for task, runs in parts.items() for table in _tables(task, runs)]


def run_rows(paths: Sequence[Path | str]) -> list[Row]:
    """Every number of the runs; the model of an unfinished one says so."""
    runs = [(run.results.rows, " (partial)" if run.results.partial else "") for run in read_runs(paths)]
    return tables.in_order([replace(row, model=f"{row.model}{mark}") for rows, mark in runs for row in rows])


def _write_pictures(pictures: Sequence[Picture], folder: Path) -> list[Path]:
    names = [folder / f"{picture.name}.svg" for picture in pictures]
    written = [file_to_write(path, what="the figure", begins=FIGURE_BEGINS) for path in names]
    for path, picture in zip(written, pictures, strict=True):
        atomic_write_text(path, picture.svg + "\n")
    return written


def _by_task(runs: Sequence[_Run]) -> dict[str, list[_Run]]:
    """The parts of the page: each task with the runs that have it."""
    found: dict[str, list[_Run]] = {}
    for run in runs:
        for task in dict.fromkeys(
            [*(row.task for row in run.results.rows), *["training"] * bool(run.metrics)]
        ):
            found.setdefault(task, []).append(run)
    return {task: found[task] for task in tables.tasks_in_order(found)}


def _rows(task: str, runs: Sequence[_Run]) -> list[Row]:
    return tables.in_order([row for run in runs for row in run.results.rows if row.task == task])


def _tables(task: str, runs: Sequence[_Run], *, narrow: bool = False) -> list[Table]:
    """The headline numbers, side by side where there are several models, and the paired differences.

    A page has narrow tables: where the columns of all models do not fit, its lines are ranked in their place.
    """
    rows = _rows(task, runs)
    plain = [row for row in rows if row.is_headline]
    differences = [row for row in rows if row.is_whole and not row.is_headline]
    found = []
    if plain:
        partial = " (partial)" if any(run.results.partial for run in runs) else ""
        intervals = ", with 95 % intervals" if tables.has_intervals(plain) else ""
        about = {"caption": f"{tables.display_of(task).title}{partial}{intervals}"}
        several = len({(row.model, row.arm, row.seed) for row in plain}) > 1
        table = (tables.side_by_side if several else tables.rows_table)(plain, **about)
        if narrow and len(table.columns) > tables.MOST_COLUMNS:
            table = tables.rows_table(
                sorted(plain, key=lambda row: (*map(str, row.place), -(row.value or 0))), **about
            )
        found.append(table)
    if differences:
        found.append(tables.rows_table(differences, caption="Paired differences on the same tokens"))
    return found


def _pictures(task: str, runs: Sequence[_Run]) -> list[Picture]:
    rows = _rows(task, runs)
    pictures: list[Picture | None] = [*figures_of(task, rows)]
    if task == "training":
        pictures.append(training_curves({run.label: run.metrics for run in runs if run.metrics}))
    return [picture for picture in pictures if picture is not None]


def _ranked(runs: Sequence[_Run], numbers: Sequence[Sequence[Row]]) -> tuple[str, Sequence[int]]:
    """The runs by the first number of their sentences, where all have the same, from the greatest; and their order.

    Of more than can be read at once, the greatest and the least.
    """
    firsts = [own[0] for own in numbers if own]
    if len(firsts) < len(runs) or len({row.place for row in firsts}) > 1:
        return f"{len(runs)} runs: {', '.join(run.label for run in runs)}", range(len(runs))
    order = sorted(range(len(runs)), key=lambda place: -(firsts[place].value or 0.0))
    first = firsts[order[0]]
    where = "" if first.length is None or first.unit == "tokens" else f" at {first.length:,} tokens"
    name = f"{first.metric.replace('_', ' ').capitalize()}{where} ({first.unit})"
    values = [f"{runs[place].label} {_number(runs[place], firsts[place])}" for place in order]
    if len(runs) > MOST_SERIES:
        return f"{name} of {len(runs)} runs: from {values[0]} to {values[-1]}.", order
    return f"{name}: {'; '.join(values)}.", order


def _number(run: _Run, row: Row) -> str:
    if row.metric in REACHES:
        return reaches(run.results)[row.metric].text
    return tables.tokens_text(row).removesuffix(" tokens") if row.unit == "tokens" else tables.row_text(row)


def _section(task: str, runs: Sequence[_Run], notes: Sequence[str]) -> Section:
    rows, display = _rows(task, runs), tables.display_of(task)
    shown = {row.metric for row in rows}
    meanings = [(metric, text) for metric, text in display.metrics.items() if metric in shown]
    return Section(
        title=display.title,
        paragraphs=[text for text in [tables.questions().get(task, "")] if text],
        figures=_pictures(task, runs),
        notes=[*dict.fromkeys(notes)],
        details=[
            *_tables(task, runs, narrow=True),
            *([tables.rows_table(rows, caption=f"Every number of this part ({len(rows)})")] if rows else []),
            *(
                [Table(columns=("metric", "what it is"), rows=meanings, caption="Metrics")]
                if meanings
                else []
            ),
        ],
    )


def read_runs(paths: Sequence[Path | str]) -> list[_Run]:
    """The runs, with labels that are all different: the model, then its folder too, then the whole path."""
    if not paths:
        raise UsageError("no run to report on", expected="one or more run folders")
    runs = [_read_run(str(path)) for path in paths]
    if twice := [str(at) for at, n in Counter(os.path.realpath(run.path) for run in runs).items() if n > 1]:
        raise UsageError(f"{twice[0]} is given twice", expected="different runs")
    for place in (lambda run: run.path.name, lambda run: run.path):
        labels = Counter(run.label for run in runs)
        for run in runs:
            if labels[run.label] > 1:
                run.label += f" ({place(run)})"
    for run in runs:
        run.label = " ".join(tables.readable(run.label).split())
        run.results.model_name = run.label
        run.results.rows = [replace(row, model=run.label) for row in run.results.rows]
    return runs


def _read_run(name: str) -> _Run:
    label, path = named_run(name)
    if not (path / "config.yaml").is_file():
        raise UsageError(
            f"{path} is no run folder" if path.is_dir() else f"there is no folder {path}",
            expected="the --out folder of an earlier command (it has a config.yaml)",
        )
    metrics = read_metrics(path / "metrics.jsonl")
    if (path / "results.json").exists():
        results = read_results(path / "results.json")
    elif metrics:
        config = read_yaml(path / "config.yaml")
        kind, model = str(config.pop("kind", "run")), str(config.get("model", path.name))
        results = Results(kind=kind, model_name=model, config=config, rows=[], partial=True)
    else:
        raise UsageError(
            f"{path} has no results yet", fix="wait for the run to end, or run it again with --resume"
        )
    return _Run(path=path, label=label or results.model_name, results=results, metrics=metrics)


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


def _unequal_settings(found: Sequence[Results]) -> list[str]:
    """One sentence for each kind of run whose settings differ where a comparison needs them equal."""
    notices = []
    for kind in dict.fromkeys(results.kind for results in found if results.kind != "train"):
        first, *others = (_decides(results) for results in found if results.kind == kind)
        keys = dict.fromkeys(key for each in (first, *others) for key in each)
        differing = [f"`{key}`" for key in keys if any(each.get(key) != first.get(key) for each in others)]
        if differing:
            notices.append(
                f"The {kind} runs differ in {', '.join(differing)}: their numbers are not of the same tokens."
            )
    return notices


def _decides(results: Results) -> dict[str, Any]:
    """What decides which tokens a run reads. Where the text's content is known, its name decides nothing."""
    text = results.provenance.get("text") or {}
    prints = {"text": text.get("corpus_fingerprint"), "tokenizer": text.get("tokenizer_fingerprint")}
    rest = _MAY_DIFFER | (TextOptions.model_fields.keys() | {"text"} if prints["text"] else set[str]())
    settings = {name: value for name, value in results.config.items() if name not in rest}
    return {name: value for name, value in prints.items() if value} | settings
