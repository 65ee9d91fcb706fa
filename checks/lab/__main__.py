"""Faults planted in a real model, sound pairs, simulations: what `compare` says of each (two hours).

    python -m checks.lab [--out runs/lab] [--model smollm2-135m] [--scale 2] [--only WORDS] [--shard 0/14] [--kept]
                         [--no-nulls]

`make check-lab` runs this. The table (`checks.lab.table`) says what must be found and which pairs must be equal;
the tests walk it on `tiny-books`. Here it is planted in SmolLM2-135M, at places and lengths that are `scale` times
as large. Then made-up sides show how often a sound pair is called different, and how often intervals hold the truth
(`checks.lab.nulls`, `checks.lab.limit_null`), and documents are drawn from real ones (`checks.lab.real_documents`).
Exits with 1 if anything is wrong.

What is finished in --out is not run again, so that several processes may fill it, each a shard, at one scale or
several. --kept runs nothing more: the numbers are of the pairs that are finished. The numbers of all go
to its `results.json`, which `python -m tools.docs.doc_tables keep runs/lab MODEL` keeps for the documentation.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from checks.lab import nulls, real_documents
from checks.lab.bases import EMBEDDED
from checks.lab.judged import compared, says_of, wrong_of, wrong_words
from checks.lab.sides import Base, Pair, loaded
from checks.lab.table import PAIRS
from lengthwise.errors import UsageError
from lengthwise.files import atomic_write_text
from lengthwise.report.comparison_verdict import evidence, verdict
from lengthwise.results import Results, Row, read_results
from lengthwise.subjects import load

KIND = "lab"
Found = dict[str, Results]
"""What was found of each pair, by its words; a refused one has notes alone."""


def folder_of(kind: str, pair: Pair) -> str:
    """The folder of a pair below --out."""
    return "".join(letter if letter.isalnum() else "-" for letter in f"{kind} {pair.what}".lower())


def finished(kind: str, pair: Pair, out: Path) -> Results | None:
    """The results of a pair that is finished below --out; of a refused one the refusal as a note."""
    folder = out / "pairs" / folder_of(kind, pair)
    refused = folder.with_suffix(".refused")
    if refused.exists():
        return Results(kind="refused", model_name="", config={}, rows=[], notes=[refused.read_text()])
    path = folder / "results.json"
    found = read_results(path) if path.exists() else None
    return None if found is None or found.partial else found


def run_pair(kind: str, pair: Pair, base: Base, out: Path) -> None:
    """Compare a pair below --out."""
    folder = out / "pairs" / folder_of(kind, pair)
    shutil.rmtree(folder, ignore_errors=True)
    try:
        compared(pair, base, "books", out=folder)
    except UsageError as error:
        atomic_write_text(folder.with_suffix(".refused"), str(error))


def said_of(pair: Pair, found: Results, model: str) -> tuple[str, list[str]]:
    """What is said of a pair of this model, and what is wrong with it."""
    if found.kind == "refused":
        says = says_of(pair, model)
        return found.notes[0], [
            *wrong_words(says, found.notes[0]),
            *([] if says.refused else ["it is refused"]),
        ]
    return " ".join(verdict(found.rows)), wrong_of(pair, found)


def wanted(only: str) -> list[tuple[str, Pair]]:
    """Every pair of the embedded model."""
    return [
        (kind, pair)
        for kind, pairs in PAIRS.items()
        for pair in pairs
        if pair.base == EMBEDDED and only in f"{kind}: {pair.what}"
    ]


def run_missing(missing: Sequence[tuple[str, Pair]], name: str, scale: int, out: Path) -> None:
    """Compare these pairs, whose side A is a model by its name."""
    model = load(name, dtype="float32", device="cpu")
    plain = Base(loaded(model.model, model, kept=True), scale)
    bases = {"float32": plain}
    for kind, pair in missing:
        base = bases.setdefault(pair.dtype, plain.cast(pair.dtype))
        started = time.monotonic()
        # The stub of a server takes no longer prompts.
        run_pair(kind, pair, replace(base, scale=1 if kind == "server" else scale, opened=ExitStack()), out)
        print(f"{time.monotonic() - started:5.0f} s  {kind}: {pair.what}", flush=True)


SIMULATED = {
    "compare": nulls.simulated,
    "limit": nulls.simulated_limit,
    "documents": real_documents.simulated,
}
"""What made-up sides, or real documents, are given to -> the rows, and what is off."""


def simulated(name: str, out: Path) -> tuple[list[Row], list[str]]:
    """A simulation, from its file below --out if it is finished."""
    path = out / f"nulls-{name}.json"
    if not path.exists():
        rows, off = SIMULATED[name]()
        kept = Results(kind=KIND, model_name="made up", config={"wrong": off}, rows=rows)
        atomic_write_text(path, kept.to_json())
    found = read_results(path)
    return found.rows, found.config["wrong"]


SOUND, CALLED = "sound", "called"
"""Tasks of rows beside that of faults, KIND: of sound pairs by their dtype, and how many pairs each pattern has."""


def rows_of(task: str, arm: str, some: list[tuple[Pair, Results, list[str]]], model: str) -> list[Row]:
    """The numbers of a kind: pairs, those of which all that is said is right, and how far their sides are apart.

    Of the pairs that are `planted` those were run that are finished.
    """
    apart = [
        max(
            (row for row in found.rows if row.metric == "difference" and row.is_whole),
            key=lambda row: row.length or 0,
        )
        for _, found, _ in some
        if found.kind != "refused"
    ]
    levels = [row.value for _, found, _ in some for row in found.rows if row.metric == "tolerance"]
    values = {
        "planted": sum(_place(*each) == (task, arm) for each in wanted("")),
        "pairs": len(some),
        "right": sum(not wrong for *_, wrong in some),
        "least": min((row.value or 0.0 for row in apart), default=None),
        "most": max((row.value or 0.0 for row in apart), default=None),
        "tolerance": min((level for level in levels if level is not None), default=None),
    }
    rows = [Row(model=model, task=task, arm=arm, metric=name, value=value) for name, value in values.items()]
    if task == KIND:
        called = Counter(_called(found) for _, found, _ in some)
        rows += [
            Row(model=model, task=CALLED, arm=arm, metric=name, value=count, unit="")
            for name, count in called.items()
        ]
    return rows


def _called(found: Results) -> str:
    """What the pattern of a pair is called."""
    return of.pattern if (of := evidence(found.rows)) is not None else "refused"


def _place(kind: str, pair: Pair) -> tuple[str, str]:
    """Task and arm of the rows that count a pair."""
    return (SOUND, pair.dtype) if kind == "sound" else (KIND, kind)


def _shard(words: str) -> tuple[int, int]:
    index, number = map(int, words.split("/"))
    if not 0 <= index < number:
        raise ValueError
    return index, number


def main(words: Sequence[str] | None = None) -> int:
    """Run what is not finished, write the numbers, and print what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/lab"))
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--scale", type=int, default=2)
    parser.add_argument("--only", default="")
    parser.add_argument("--shard", type=_shard, default=(0, 1), metavar="INDEX/NUMBER")
    parser.add_argument("--kept", action="store_true")
    parser.add_argument("--no-nulls", action="store_true")
    given = parser.parse_args(words)
    given.out.mkdir(parents=True, exist_ok=True)
    by_place: dict[tuple[str, str], list[tuple[Pair, Results, list[str]]]] = {}
    examples: dict[str, list[str]] = {}
    failures = []
    pairs = wanted(given.only)[given.shard[0] :: given.shard[1]]
    missing = [] if given.kept else [each for each in pairs if finished(*each, given.out) is None]
    if missing:
        run_missing(missing, given.model, given.scale, given.out)
    for kind, pair in pairs:
        if (found := finished(kind, pair, given.out)) is None:
            continue
        said, wrong = said_of(pair, found, given.model)
        print(f"{kind}: {pair.what}: {said}")
        by_place.setdefault(_place(kind, pair), []).append((pair, found, wrong))
        if not wrong:
            examples.setdefault(kind, [pair.what, said])
        failures += [f"{kind}: {pair.what}: {each}" for each in wrong]
    rows = [row for place, some in by_place.items() for row in rows_of(*place, some, given.model)]
    for name in SIMULATED:
        if not given.no_nulls and given.only in f"nulls: {name}":
            found_rows, off = simulated(name, given.out)
            rows += found_rows
            failures += off
    settings = {"scale": given.scale, "wrong": failures, "examples": examples}
    kept = Results(kind=KIND, model_name=given.model, config=settings, rows=rows)
    if not given.only and given.shard == (0, 1):
        atomic_write_text(given.out / "results.json", kept.to_json())
    print(*failures, sep="\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
