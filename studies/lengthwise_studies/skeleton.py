"""The skeleton of every study: parts that each fill a run folder, at a chosen scale, and one page made of them.

A study is data: an instance of `Study`, in its own file, named in the table of `study_table`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lengthwise.errors import UsageError, nearest
from lengthwise.evaluation.longbench_e import DATA_SETS, read_rows
from lengthwise.files import atomic_write_json, atomic_write_text, read_json
from lengthwise.report.html import Section, render_page
from lengthwise.report.tables import Table
from lengthwise.report.writers import to_markdown
from lengthwise.results import Results, Row
from lengthwise.runs import RunFolder
from lengthwise_studies.claims import tally

if TYPE_CHECKING:
    from lengthwise_studies.claims import Claim

_EARLIER = ".earlier.json"
"""In the folder of a study that is replaced: when the earlier run of each part began, until all are replaced."""
Sections = Callable[[Results, Path], list[Section]]
"""Makes the part of a page from the results of a run folder."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """One run folder of a study.

    Args:
        run: `run(out, scale, resume=, overwrite=)` trains and measures what the part needs, and gives the results.
        sections: its part of the page.
        scales: the sizes offered, by name; dataclasses, with fields `seeds` and `steps` where the study takes them.
        folder: the run folder below that of the study.
        heading: of the part's settings at the end of the page.
        plan: the experiments at a scale, for a dry run; None for a part without.
        cells: the cells at a scale, and what trains and tests one of them; None for a part without.
        claims: what is judged at a scale.
        seconds: what a part with neither took, where that is more than a moment.
    """

    run: Callable[..., Results]
    sections: Sections
    scales: Mapping[str, Any]
    folder: str = "."
    heading: str = "Where it comes from"
    plan: Callable[[Any], Sequence[tuple[Any, Any]]] | None = None
    cells: Callable[[Any], tuple[Sequence[Any], Callable[..., Any]]] | None = None
    claims: Callable[[Any], Iterable[Claim]] = lambda scale: ()
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Study:
    """One table, figure, theorem or demonstration.

    Args:
        title: of the page.
        parts: in the order of the page.
        lead: the sentences below the title; default: the first paragraph of the first section.
        takes: which of `seeds`, `steps` and `data` a user may set.
    """

    title: str
    parts: tuple[Part, ...]
    lead: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Produced:
    """What a study leaves: its page, and the tables to print."""

    page: Path
    tables: list[Table]


def computed(
    kind: str,
    rows: Callable[[Any], Iterable[Row]],
    *,
    model_name: str,
    notes: Callable[[Any], Sequence[str]] = lambda _: (),
    **also: Any,
) -> Callable[..., Results]:
    """The `run` of a part without training, from rows and notes at a scale; `also` is recorded beside the scale."""

    def run(out: Path | str, scale: Any, *, resume: bool = False, overwrite: bool = False) -> Results:
        config = {"scale": asdict(scale), **also}
        with RunFolder(out, kind=kind, config=config, resume=resume, overwrite=overwrite) as folder:
            if finished := folder.finished:
                return finished
            found = {"rows": list(rows(scale)), "notes": list(notes(scale))}
            results = Results(kind=kind, model_name=model_name, config=config, **found)
            folder.write_results(results)
            return results

    return run


def chosen_scale(scales: Mapping[str, Any], name: str, **given: int | str | None) -> Any:
    """The scale of that name, with other fields where given; `laptop` is `default` unless it is listed."""
    if name == "laptop" and name not in scales:
        name = "default"
    if name not in scales:
        raise UsageError(f"no scale {name!r}", expected=nearest(name, scales))
    changes = {what: value for what, value in given.items() if value is not None}
    for what, value in changes.items():
        if isinstance(value, int) and value < 1:
            raise UsageError(f"{what} is {value}", expected="1 or more")
    return replace(scales[name], **changes)


def chosen_scales(study: Study, scale: str, **given: int | str | None) -> list[Any]:
    """The scale of each part, with other fields where given.

    Raises:
        UsageError: a field that the study does not take; no such scale; a row of `data` in another format.
        MissingError: `data` lacks a file of LongBench-E.
    """
    for what, value in given.items():
        if value is not None and what not in study.takes:
            raise UsageError(f"this study takes no {what}", expected=f"without --{what}")
    if (data := given.get("data")) is not None:
        check_data(str(data))
    return [chosen_scale(part.scales, scale, **given) for part in study.parts]


@cache
def check_data(data: str) -> None:
    """Refuse a folder that is not LongBench's before anything is trained; raises what `read_rows` does."""
    for name, data_set in DATA_SETS.items():
        read_rows(name, data, metric=data_set.metric)


def produce_page(
    study: Study,
    out: Path,
    *,
    scale: str = "default",
    resume: bool = False,
    overwrite: bool = False,
    **given: int | str | None,
) -> Produced:
    """Run every part of a study and write `report.html`, and `figures/` with its pictures and tables.

    Raises:
        UsageError: see `chosen_scales` and `RunFolder`; a page in `out` that is not of this study.
        Interrupted: Ctrl-C. Finished work stays, and `resume` continues it: after `overwrite`, also by replacing the
            parts of the earlier run that are left.
    """
    scales = chosen_scales(study, scale, **given)
    _refuse_another_page(study, out)
    earlier = _earlier_runs(study, out, overwrite=overwrite)
    sections: list[Section] = []
    provenance: dict[str, dict[str, Any]] = {}
    partial = False
    for part, size in zip(study.parts, scales, strict=True):
        folder = out / part.folder
        again = overwrite or (resume and earlier.get(part.folder, 0) == _begun(folder))
        results = part.run(folder, size, resume=resume and not again, overwrite=again)
        sections += part.sections(results, folder)
        provenance[part.heading] = {"settings": results.config, **results.provenance}
        partial |= results.partial
    tables = [table for section in sections for table in section.tables]
    for section in sections:
        for picture in section.figures:
            atomic_write_text(out / "figures" / f"{picture.name}.svg", picture.svg + "\n")
    atomic_write_text(out / "figures" / "tables.md", "\n".join(map(to_markdown, tables)))
    page, lead = out / "report.html", study.lead or sections[0].paragraphs[:1]
    if not study.lead and len(study.parts) == 1:
        # The page says it once.
        sections[0] = replace(sections[0], paragraphs=sections[0].paragraphs[1:])
    atomic_write_text(
        page, render_page(study.title, [*tally(tables), *lead], sections, provenance, partial=partial)
    )
    (out / _EARLIER).unlink(missing_ok=True)
    return Produced(page, tables)


def _refuse_another_page(study: Study, out: Path) -> None:
    """UsageError if this study would write its page over one that it has not made: no part of it is in `out`."""
    made = (name for name in ("report.html", "figures") if (out / name).exists())
    # A part in `out` itself refuses the files of others, and those of another study.
    if any((out / part.folder).exists() for part in study.parts) or (name := next(made, None)) is None:
        return
    raise UsageError(
        f"{out} holds {name}, and no part of this study",
        expected="an empty or new folder, or an earlier run of this study",
        fix="choose another --out",
    )


def _earlier_runs(study: Study, out: Path, *, overwrite: bool) -> dict[str, Any]:
    """When each part that is still to be replaced was begun, by folder; empty if none of them has been replaced."""
    file = out / _EARLIER
    if overwrite:
        runs = {part.folder: when for part in study.parts if (when := _begun(out / part.folder)) is not None}
        if len(runs) > 1:
            atomic_write_json(file, runs)
        return runs
    earlier = read_json(file, expected="when each part was begun") if file.exists() else {}
    # An --overwrite that was stopped before anything came of it has put the earlier run back.
    return earlier if any(_begun(out / folder) != when for folder, when in earlier.items()) else {}


def _begun(folder: Path) -> int | None:
    """A number that tells the run in a folder from all others there; it comes back with a run that is put back."""
    # What RunFolder puts back when it is opened: a kill left a run there that has no result yet.
    before = folder / ".earlier"
    if before.exists() and not any((folder / name).exists() for name in ("samples.jsonl", "results.json")):
        folder = before
    # The settings are written once, when a run begins.
    config = folder / "config.yaml"
    return config.stat().st_mtime_ns if config.exists() else None
