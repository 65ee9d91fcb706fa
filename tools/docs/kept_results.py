"""What was run, each number once: the files `studies/results/*.json`, and reading and writing them.

    {"runs": {NAME: {"scale": ..., "variant": ..., "kind": ..., "model_name": ..., "config": ..., "notes": ...,
                     "provenance": ..., "shows": [[ARM, REFERENCE or null, SEED, KEY], ...]}},
     "columns": [FIELD, ...],
     "numbers": {KEY: [[VALUE, ...], ...]}}

`numbers` has the rows of an arm with one seed, or of a paired difference of two arms, under one KEY. Their values are
those of `lengthwise.results.Row` in the order of `columns`; fields without a column have their default. A run lists
the arms that it shows, by its own names. Runs that share an arm share its rows: what one measured of it, all show.
The provenance has the commit that ran. Rows are judged when a page is made, so their verdicts have today's rules.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from lengthwise.errors import UsageError, nearest
from lengthwise.files import atomic_write_text
from lengthwise.results import Results, Row

Shown = tuple[str | None, str | None, int | None]
"""Arm, reference and seed."""
BEFORE = "trained before"
"""The variant of an earlier training of a table, kept as far as claims read it. Verdicts are on the mean of both."""
_OF_THE_RUN = ("model", "arm", "reference", "seed")
_OF_A_TABLE = ("p_holm",)
"""Holm's correction is over one table, so it belongs to no arm. `verdicts` computes it."""
_DEFAULTS = {one.name: None if one.default is MISSING else one.default for one in fields(Row)}
_NAMES = [
    *(one for one in _DEFAULTS if one not in (*_OF_THE_RUN, *_OF_A_TABLE)),
    "model",
]


@dataclass(frozen=True, kw_only=True)
class Run:
    """One kept run.

    Args:
        scale: of the study; "" for a study with one.
        variant: what it is besides the run of the study at this scale, as `BEFORE`; "" for that run itself.
        results: its settings and rows.
    """

    scale: str
    variant: str
    results: Results


def results_folder(root: Path) -> Path:
    """Where a repository keeps its results."""
    return root / "studies" / "results"


@cache
def kept_runs(folder: Path) -> dict[str, Run]:
    """All runs by name."""
    return {
        name: _run(run, plain)
        for path in sorted(folder.glob("*.json"))
        for plain in [json.loads(path.read_text(encoding="utf-8"))]
        for name, run in plain["runs"].items()
    }


def kept_run(root: Path, name: str) -> Results:
    """The results of one run.

    Raises:
        UsageError: there is none of that name.
    """
    found = kept_runs(results_folder(root))
    if name not in found:
        raise UsageError(f"no kept run {name!r}", expected=nearest(name, found))
    return found[name].results


def runs_of(folder: Path, kind: str) -> list[Run]:
    """The runs of a study; those without a variant first."""
    found = [run for run in kept_runs(folder).values() if run.results.kind == kind]
    return sorted(found, key=lambda run: run.variant)


def add_run(path: Path, name: str, results: Results, *, scale: str = "", variant: str = "") -> None:
    """Write a run into the file `path`, beside those that it has; a run of the same name is replaced in its place.

    An arm is shared with the first one of the file whose numbers are equal, as far as both have them.
    """
    runs: dict[str, tuple[dict[str, Any], Results]] = {}
    if path.is_file():
        plain = json.loads(path.read_text(encoding="utf-8"))
        runs = {one: (run, _run(run, plain).results) for one, run in plain["runs"].items()}
    about = {
        **({"scale": scale} if scale else {}),
        **({"variant": variant} if variant else {}),
        "kind": results.kind,
        "model_name": results.model_name,
        "config": results.config,
        "notes": results.notes,
        "provenance": results.provenance,
    }
    runs[name] = about, results
    numbers: Numbers = {}
    shown = {one: run | {"shows": _shared(numbers, one, of)} for one, (run, of) in runs.items()}
    atomic_write_text(path, _text(shown, numbers))
    kept_runs.cache_clear()


Numbers = dict[str, dict[tuple[Any, ...], dict[str, Any]]]
"""Key -> place and model of a row -> its fields that differ from their defaults."""


def _shared(numbers: Numbers, name: str, results: Results) -> list[list[Any]]:
    """Put the rows of a run into `numbers`; returns what it shows."""
    arms: dict[Shown, list[Row]] = {}
    for row in results.rows:
        arms.setdefault((row.arm, row.reference, row.seed), []).append(row)
    shows = []
    for shown, rows in arms.items():
        own = {(row.place, row.model): _fields(row, results.model_name) for row in rows}
        assert len(own) == len(rows), f"{name}: {shown} has a number twice"
        key = next((key for key, those in numbers.items() if _equal(own, those)), f"{name}: {_label(shown)}")
        numbers[key] = numbers.get(key, {}) | own
        shows.append([*shown, key])
    return shows


def _label(shown: Shown) -> str:
    arm, reference, seed = shown
    pair = " minus ".join(one for one in (arm, reference) if one is not None) or "all"
    return pair if seed is None else f"{pair}, seed {seed}"


def _equal(own: dict[tuple[Any, ...], Any], those: dict[tuple[Any, ...], Any]) -> bool:
    both = own.keys() & those.keys()
    return bool(both) and all(own[place] == those[place] for place in both)


def _fields(row: Row, model: str) -> dict[str, Any]:
    every = vars(row) | {"model": None if row.model == model else row.model}
    return {name: _nine_digits(every[name]) for name in _NAMES if every[name] != _DEFAULTS[name]}


def _nine_digits(value: Any) -> Any:
    return float(f"{value:.9g}") if isinstance(value, float) else value


def _text(runs: dict[str, Any], numbers: Numbers) -> str:
    """One line for each run, each key and each row."""
    used = {name for rows in numbers.values() for row in rows.values() for name in row}
    columns = [name for name in _NAMES if name in used]
    blocks = (
        f"{json.dumps(key)}: [\n"
        + ",\n".join(_line([row.get(name, _DEFAULTS[name]) for name in columns]) for row in rows.values())
        + "\n]"
        for key, rows in numbers.items()
    )
    listed = ",\n".join(f"{json.dumps(name)}: {_line(run)}" for name, run in runs.items())
    return (
        f'{{"runs": {{\n{listed}\n}},\n"columns": {_line(columns)},\n"numbers": {{\n'
        + ",\n".join(blocks)
        + "\n}}\n"
    )


def _line(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _run(run: dict[str, Any], plain: dict[str, Any]) -> Run:
    rows = [
        Row(
            **{"model": run["model_name"], "arm": arm, "reference": reference, "seed": seed}
            | _told(plain["columns"], values)
        )
        for arm, reference, seed, key in run["shows"]
        for values in plain["numbers"][key]
    ]
    results = Results(
        rows=rows, **{name: run[name] for name in ("kind", "model_name", "config", "notes", "provenance")}
    )
    return Run(scale=run.get("scale", ""), variant=run.get("variant", ""), results=results)


def _told(columns: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    found = dict(zip(columns, values, strict=True))
    return {name: value for name, value in found.items() if name != "model" or value is not None}


def used_rows(results: Results, show: Callable[[Results], object]) -> list[Row]:
    """The rows whose values `show` reads, or asks whether they are lower bounds."""
    read: set[int] = set()

    class Watched(Row):
        def __getattribute__(self, name: str) -> Any:
            if name in ("value", "at_least"):
                read.add(id(self))
            return super().__getattribute__(name)

    watched = [Watched(**vars(row)) for row in results.rows]
    of = Results(
        kind=results.kind,
        model_name=results.model_name,
        config=results.config,
        rows=list(watched),
        notes=results.notes,
        provenance=results.provenance,
    )
    read.clear()
    show(of)
    return [row for row, one in zip(results.rows, watched, strict=True) if id(one) in read]
