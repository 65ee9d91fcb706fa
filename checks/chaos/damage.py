"""Damaged files: a flipped bit, a cut, zeros or garbage, in every kind of file that a command reads.

The command must explain itself, or rebuild what it made itself and give the same rows. Other rows at exit 0 fail.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from stage import Stage
from trial import Trial, lengthwise, rows_of

PROMISE = "a damaged file is named or rebuilt; what carries a checksum never changes a number in silence"


def _flip(data: bytearray, at: int, rng: random.Random) -> bytearray:
    data[at] ^= 1 << rng.randrange(8)
    return data


def _cut(data: bytearray, at: int, rng: random.Random) -> bytearray:
    return data[:at]


def _zeros(data: bytearray, at: int, rng: random.Random) -> bytearray:
    end = min(len(data), at + 4000)
    data[at:end] = bytes(end - at)
    return data


def _garbage(data: bytearray, at: int, rng: random.Random) -> bytearray:
    end = min(len(data), at + 64)
    data[at:end] = rng.randbytes(end - at)
    return data


def _nested(data: bytearray, at: int, rng: random.Random) -> bytearray:
    return bytearray(b"[" * 5000)


DAMAGES: dict[str, Callable[[bytearray, int, random.Random], bytearray]] = {
    "bit": _flip,
    "cut": _cut,
    "zeros": _zeros,
    "garbage": _garbage,
    "nested": _nested,
}


@dataclass(frozen=True)
class _Case:
    """A folder, copied and damaged for each trial, and the command that reads the copy."""

    made: Path
    words: list[str]
    run: Path | None = None
    """The run folder whose rows must be as `expected` after an exit with 0."""
    expected: list[dict] | None = None
    environment: dict[str, str] = field(default_factory=dict)


def trials(stage: Stage, rng: random.Random, count: int) -> Iterator[Trial]:
    """`count` damages to runs, checkpoints, models in and out of the cache, and adapters."""
    work = stage.folder / "damaged"
    made: dict[str, _Case] = {}
    for index in range(count):
        name = list(CASES)[index % len(CASES)]
        kind = rng.choice(list(DAMAGES))
        # A small campaign makes those that it damages.
        case = made.get(name) or made.setdefault(name, CASES[name](stage, work))
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(case.made, work)
        files = sorted(path for path in work.rglob("*") if path.is_file() and path.stat().st_size)
        file = rng.choice(files)
        data = bytearray(file.read_bytes())
        at = rng.randrange(len(data))
        file.write_bytes(DAMAGES[kind](data, at, rng))
        outcome = lengthwise(case.words, environment=case.environment)
        fault = outcome.fault
        if fault is None and outcome.code == 0 and case.run and rows_of(case.run) != case.expected:
            fault = "other rows at exit 0"
        yield Trial(f"{name}: {kind} at {at} of {file.relative_to(work)}", fault)


def _run(stage: Stage, work: Path) -> _Case:
    """An interrupted run that --resume continues: settings and finished samples."""
    half, ppl = stage.folder / "half", stage.verbs["ppl"]
    lengthwise([*ppl, "--out", str(half)])
    expected = rows_of(half)
    (half / "results.json").unlink()
    log = half / "samples.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:20]))
    return _Case(half, [*ppl, "--out", str(work), "--resume"], work, expected)


def _training(stage: Stage, work: Path) -> _Case:
    """Two checkpoints and no results yet. They record sizes, so a flipped bit is not seen."""
    trained, train = stage.folder / "half-trained", stage.verbs["train"]
    lengthwise([*train, "--out", str(trained)])
    (trained / "results.json").unlink()
    shutil.rmtree(trained / "model")
    return _Case(trained, [*train, "--out", str(work), "--resume"])


def _report(stage: Stage, work: Path) -> _Case:
    finished = stage.folder / "finished"
    lengthwise([*stage.verbs["measure"], "--out", str(finished)])
    return _Case(finished, ["report", str(work), "--out", str(stage.folder / "page.html")])


def _cache(stage: Stage, work: Path) -> _Case:
    """Converted into the cache: damage of any kind is found, and the model made again."""
    cache, of_cached = stage.folder / "cache-with-model", stage.folder / "of-cached"
    words = ["ppl", "tiny-books", *stage.verbs["ppl"][2:], "--out", str(of_cached), "--overwrite"]
    lengthwise(words, environment={"LENGTHWISE_CACHE": str(cache)})
    return _Case(cache, words, of_cached, rows_of(of_cached), {"LENGTHWISE_CACHE": str(work)})


def _model(stage: Stage, work: Path) -> _Case:
    """It has no checksums, so a flipped bit of a weight is not seen."""
    return _Case(stage.model, ["ppl", str(work), *stage.verbs["ppl"][2:]])


def _adapter(stage: Stage, work: Path) -> _Case:
    """Without checksums too."""
    adapted = stage.folder / "with-adapter"
    lengthwise([*stage.verbs["train"], "--set", "adapter={r: 2}", "--out", str(adapted)])
    return _Case(adapted / "model", [*stage.verbs["ppl"], "--adapter", str(work)])


CASES: dict[str, Callable[[Stage, Path], _Case]] = {
    "run": _run,
    "training": _training,
    "report": _report,
    "cache": _cache,
    "model": _model,
    "adapter": _adapter,
}
"""What is damaged; the commands read `work`."""
