"""The study of a model with 32,768 tokens: keeping its runs, and the tables and pictures of its page.

python -m tools.docs.context_32k keep FOLDER CODE GPU     FOLDER is what the study wrote; CODE is the commit that ran
python -m tools.docs.context_32k pictures docs/figures
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lengthwise.files import atomic_write_text
from lengthwise.measure.limit_headlines import LEAST_DOCUMENTS
from lengthwise.report.drawing import Curve, Picture, curve_picture, doubling_axis, token_axis
from lengthwise.report.limit_answer import reaches
from lengthwise.report.tables import Cell, Table, row_estimate
from lengthwise.results import Results, Row, read_results
from lengthwise_studies.context_32k.commands import SCALES
from lengthwise_studies.context_32k.commands import TASKS as ASKED
from tools.docs.kept_results import add_run, kept_run, results_folder, used_rows
from tools.docs.task_tables import against_chance

QWEN, SMOLLM2 = "qwen2.5-coder-0.5b", "smollm2-135m"
CACHES = {"16": "dynamic", "8": "hqq-int8", "4": "quanto-int4", "2": "quanto-int2"}
"""Bits of the cache -> its name."""
LONGEST = 8192
"""Tokens of the longest windows that were compared through a cache."""
BEYOND = 65_536
"""Tokens of the longest windows of the model; only their excess loss is drawn."""
FARTHEST = 3072
"""Tokens back: the farthest passage that both models use clearly without a quantized cache."""
_PLAIN, _YARN = "as trained", "YaRN x2"
LIMITS = {
    "limit-books": ("books", _PLAIN),
    "limit-books-beyond": ("books", _PLAIN),
    "limit-books-yarn2": ("books", _YARN),
    "limit-code": ("code", _PLAIN),
    "limit-code-yarn2-within": ("code", _YARN),
    "limit-code-beyond": ("code", _PLAIN),
    "limit-code-yarn2": ("code", _YARN),
}
"""Kept run -> its text and its positions."""
TASKS = (
    *("needle_single", "needle_multi_key", "tracking_one_move", "tracking_two_moves", "chains_0"),
    *("chains_1", "chains_4", "ordinals_2", "ordinals_8", "association_literal"),
)
_REPEATED = ("command", "measurement", "processor", "python", "cpu_count", "platform", "started")
_DROPPED = {
    "model": ("source", "vocab_size", "head", "tokenizer", "attn_implementation"),
    "packages": ("peft", "accelerate", "datasets"),
}
_NATS = "nats per token"


def keep_study(folder: Path, root: Path, code: str, gpu: str) -> Path:
    """Keep what the tables and pictures read of every run of three documents; five digits, no machine's paths."""
    from tools.docs.doc_tables import _shortened, _without_folders, show

    target = results_folder(root) / "context-32k.json"
    for path in sorted((folder / "runs").glob("*/results.json")):
        name, found = path.parent.name, read_results(path)
        rows = [_small(row) for row in used_rows(found, show) if row.bucket is None]
        if max((row.documents or 0 for row in rows), default=0) < LEAST_DOCUMENTS:
            continue
        inputs = json.loads((path.parent / "inputs.json").read_text(encoding="utf-8"))
        # The settings say it, or it is that of every run.
        named = {key: value for key, value in found.provenance.items() if key not in _REPEATED}
        for part in _DROPPED.keys() & named.keys():
            named[part] = {key: value for key, value in named[part].items() if key not in _DROPPED[part]}
        provenance = _shortened(_without_folders(named))
        weights = inputs["model"]["weights"] if "model" in inputs else inputs
        provenance |= {"code": code, "gpu": gpu, "weights": weights}
        kept = replace(
            found,
            model_name=_last(found.model_name),
            config={key: value for key, value in _without_folders(found.config).items() if value is not None},
            rows=rows,
            provenance=provenance,
        )
        add_run(target, name, kept, variant="interrupted" if found.partial else "")
    return target


def _small(row: Row) -> Row:
    """With five digits (tokens are whole), no standard error beside an interval, and a model's name alone."""
    places = 8 if row.unit == "tokens" else 5
    every = {name: value for name, value in vars(row).items() if isinstance(value, float)}
    digits = {name: float(f"{value:.{places}g}") for name, value in every.items()}
    stderr = None if row.ci_low is not None else row.stderr
    return replace(row, **digits | {"model": _last(row.model), "stderr": stderr})


def _last(name: str) -> str:
    """A model's name; of a folder the last part."""
    return Path(name).name if Path(name).is_absolute() else name


def limits_table(root: Path) -> Table:
    """Both limits, a row for each text, length and encoding."""
    lines: list[list[Cell]] = []
    for name, (text, positions) in LIMITS.items():
        run = kept_run(root, name)
        by = {row.metric: row for row in run.rows}
        sound, used = by["sound_up_to"], by["used_up_to"]
        lines.append(
            [
                text,
                positions,
                f"{sound.length:,}",
                *(each.text for each in reaches(run).values()),
                f"{by['tolerance'].documents}, {used.documents}",
            ]
        )
    columns = ("", "positions", "windows of", "sound up to", "used up to", "documents")
    return Table(columns=columns, rows=lines)


def caches_table(root: Path) -> Table:
    """A row for each model and cache: what the cache changes in `compare` and in `limit`."""
    lines: list[list[Cell]] = []
    for model in (QWEN, SMOLLM2):
        for bits, cache in CACHES.items():
            books, code = (_found(root, f"cache-{model}-{text}-{cache}") for text in ("books", "code"))
            served = f"served-{model}-{cache}"
            limits: list[Cell] = [None, None]
            if _found(root, served):
                limits = [each.text for each in reaches(kept_run(root, served)).values()]
            lines.append(
                [
                    model,
                    f"{bits} bits, {cache}",
                    *(_whole(rows, "shift") for rows in (books, code)),
                    _whole(books, "benefit_kept", distance=FARTHEST),
                    *limits,
                ]
            )
    columns = (
        *("", "cache", "loss added, books", "loss added, code", "benefit kept"),
        *("sound up to", "used up to"),
    )
    return Table(columns=columns, rows=lines)


def tasks_table(root: Path) -> Table:
    """Accuracy of ten tasks at both lengths, beside guessing; a note names what the study has and was not run."""
    runs, missing = [], []
    for length in SCALES["full"].prompts:
        names = {family: f"tasks-{family}-{length}" for family in ASKED}
        kept = {family: kept_run(root, name) for family, name in names.items() if _found(root, name)}
        runs += [replace(run, model_name="accuracy") for run in kept.values()]
        missing.append(f"{', '.join(family for family in ASKED if family not in kept)} at {length:,} tokens")
    table = against_chance(runs)
    rows = [line for name in TASKS for line in table.rows if line[0] == name]
    return replace(table, rows=rows, notes=[f"Not run, for want of time: {'; '.join(missing)}."])


TABLES = {"limits": limits_table, "caches": caches_table, "tasks": tasks_table}
"""Name -> what makes it."""


def read_of(results: Results) -> Table:
    """What tables and pictures of this study read of a run of `limit` or `compare`, a row each."""
    if results.kind == "limit":
        read = {"sound_up_to", "used_up_to", "tolerance", "benefit", "benefit_nearby"}
        if any(row.length == BEYOND for row in results.rows):
            read.add("excess")
        shown = [row for row in results.rows if row.metric in read]
    else:
        shown = [
            row
            for row in results.rows
            if (row.metric in ("difference", "shift") and row.is_whole)
            or (row.length == LONGEST and row.metric == "shift" and row.value)
            or (row.length == LONGEST and row.metric in ("benefit_a", "benefit_b", "benefit_kept"))
        ]
    rows: list[list[Cell]] = [
        [row.metric, f"{row.position or row.distance}", row_estimate(row)] for row in shown
    ]
    return Table(columns=("", "at", "value"), rows=rows)


def _found(root: Path, name: str) -> list[Row]:
    """The rows of a kept run; none where it is not kept."""
    from lengthwise.errors import UsageError

    try:
        return kept_run(root, name).rows
    except UsageError:
        return []


def _whole(rows: Sequence[Row], metric: str, *, distance: int | None = None) -> Cell:
    """A number over the longest windows, or of one distance."""
    found = [
        row
        for row in rows
        if (row.metric, row.length, row.distance) == (metric, LONGEST, distance) and row.position is None
    ]
    return row_estimate(found[0]) if found else None


def _curve(rows: Sequence[Row], metric: str, label: str, style: int, *, length: int | None = None) -> Curve:
    """A metric by distance, or by the end of its stretch of positions."""
    some = [
        row
        for row in rows
        if row.metric == metric and row.value is not None and (length is None or row.length == length)
        if row.distance or row.position_end
    ]
    some.sort(key=_place)
    return Curve(
        label=label,
        x=[_place(row) for row in some],
        y=[row.value or 0.0 for row in some],
        low=[row.ci_low for row in some],
        high=[row.ci_high for row in some],
        style=style,
    )


def _place(row: Row) -> int:
    return row.distance or row.position_end or 0


def limits_picture(root: Path) -> Picture:
    """Excess loss by context and benefit by distance, books and code, with and without YaRN."""
    panels: dict[str, list[Curve]] = {}
    for metric, what in (("excess", "Sound? Excess loss"), ("benefit", "Used? Benefit of a passage")):
        for text in ("books", "code"):
            runs = {"as trained": f"limit-{text}-beyond", "with YaRN x2": f"limit-{text}-yarn2"}
            panels[f"{what}, {text}"] = [
                _curve(kept_run(root, name).rows, metric, label, style)
                for style, (label, name) in enumerate(runs.items())
            ]

    def dress(axes: Any, heading: str, places: Sequence[float]) -> None:
        if "Used" in heading:
            axes.set_xlabel("distance (tokens)")
            doubling_axis(axes, places, apart=4)
            axes.set_ylim(-1, 6.5)
        else:
            token_axis(axes, places, ticks=4)
            axes.axhline(0.1, color="#999999", linewidth=0.8, linestyle="--")
            axes.set_ylim(-1.0, 0.3)
        axes.axvline(32_768, color="#999999", linewidth=0.8, linestyle=":")

    title = "Qwen2.5-Coder-0.5B read to twice the length that it was trained for"
    return _drawn(panels, dress, name="context-32k", title=title, across="context (tokens)")


def caches_picture(root: Path) -> Picture:
    """What is used of far context and how much loss is added, by the bits of the cache, for two models."""
    panels: dict[str, list[Curve]] = {}
    for what in ("Benefit of a passage", "Loss that the cache adds"):
        for model in (QWEN, SMOLLM2):
            curves = panels.setdefault(f"{what}\n{model}", [])
            for style, (bits, cache) in enumerate(CACHES.items()):
                plain = bits == "16"
                if plain and "Loss" in what:
                    continue
                rows = kept_run(root, f"cache-{model}-books-{CACHES['4'] if plain else cache}").rows
                metric = "shift" if "Loss" in what else "benefit_a" if plain else "benefit_b"
                curves.append(_curve(rows, metric, f"{bits} bits", style, length=LONGEST))

    def dress(axes: Any, heading: str, places: Sequence[float]) -> None:
        if "Loss" in heading:
            token_axis(axes, places, ticks=4)
            axes.set_ylim(-0.2, 3.2)
        else:
            axes.set_xlabel("distance (tokens)")
            doubling_axis(axes, places, apart=2)
            axes.set_ylim(-0.5, 5.2)

    title = "What a cache of fewer bits costs two models"
    return _drawn(panels, dress, name="cache-bits", title=title, across="position (tokens)")


def _drawn(
    panels: Mapping[str, Sequence[Curve]], dress: Callable[[Any, str, Sequence[float]], None], **about: str
) -> Picture:
    """Two panels a row, in nats, each with its own scale."""
    found = curve_picture(
        panels, up=_NATS, caption="", columns=2, share_y=False, levels=[0], dress=dress, **about
    )
    assert found is not None
    return found


PICTURES = {"context-32k": limits_picture, "cache-bits": caches_picture}


def main(words: Sequence[str], root: Path) -> None:
    """Keep a run of the study, or draw the pictures."""
    if words[0] == "keep":
        print(keep_study(Path(words[1]), root, words[2], words[3]))
        return
    for name, maker in PICTURES.items():
        atomic_write_text(Path(words[1]) / f"{name}.svg", maker(root).svg + "\n")


if __name__ == "__main__":
    main(sys.argv[1:], Path.cwd())
