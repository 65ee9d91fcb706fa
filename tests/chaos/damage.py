"""Damaged files: a flipped bit, a cut, zeros or garbage, in every kind of file that a command reads.

The command must explain itself, or rebuild what it made itself and give the same rows. Other rows at exit 0 fail.
"""

from __future__ import annotations

import abc
import random
import shutil
from collections.abc import Callable, Iterator
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


def trials(stage: Stage, rng: random.Random, count: int) -> Iterator[Trial]:
    """`count` damages to runs, checkpoints, models in and out of the cache, and adapters."""
    cases = {
        "run": _Resumed(stage),
        "training": _Training(stage),
        "report": _Reported(stage),
        "cache": _Cached(stage),
        "model": _Model(stage),
        "adapter": _Adapter(stage),
    }
    for index in range(count):
        name = list(cases)[index % len(cases)]
        kind = rng.choice(list(DAMAGES))
        yield cases[name].trial(name, kind, rng)


class _Case(abc.ABC):
    """A folder made once, copied for each damage."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.work = stage.folder / "damaged"
        self.made = self.make()

    @abc.abstractmethod
    def make(self) -> Path:
        """The folder that is copied and damaged."""

    @abc.abstractmethod
    def command(self) -> list[str]:
        """The command that reads the copy."""

    def environment(self) -> dict[str, str]:
        """Variables for the command."""
        return {}

    def fault(self) -> str | None:
        """What is wrong after an exit with 0."""
        return None

    def trial(self, name: str, kind: str, rng: random.Random) -> Trial:
        shutil.rmtree(self.work, ignore_errors=True)
        shutil.copytree(self.made, self.work)
        files = sorted(path for path in self.work.rglob("*") if path.is_file() and path.stat().st_size)
        file = rng.choice(files)
        data = bytearray(file.read_bytes())
        at = rng.randrange(len(data))
        file.write_bytes(DAMAGES[kind](data, at, rng))
        outcome = lengthwise(self.command(), environment=self.environment())
        fault = outcome.fault
        if fault is None and outcome.code == 0:
            fault = self.fault()
        return Trial(f"{name}: {kind} at {at} of {file.relative_to(self.work)}", fault)


class _Resumed(_Case):
    """An interrupted run that --resume continues: settings and finished samples."""

    def make(self) -> Path:
        self.words = self.stage.verbs["ppl"]
        out = self.stage.folder / "half"
        shutil.rmtree(out, ignore_errors=True)
        lengthwise([*self.words, "--out", str(out)])
        self.expected = rows_of(out)
        (out / "results.json").unlink()
        log = out / "samples.jsonl"
        log.write_text("".join(log.read_text().splitlines(keepends=True)[:20]))
        return out

    def command(self) -> list[str]:
        return [*self.words, "--out", str(self.work), "--resume"]

    def fault(self) -> str | None:
        return None if rows_of(self.work) == self.expected else "other rows at exit 0"


class _Training(_Case):
    """A training run with two checkpoints and no results yet. They record sizes, so a flipped bit is not seen."""

    def make(self) -> Path:
        out = self.stage.folder / "half-trained"
        shutil.rmtree(out, ignore_errors=True)
        lengthwise(["train", str(self.stage.recipe), "--out", str(out)])
        (out / "results.json").unlink()
        shutil.rmtree(out / "model")
        return out

    def command(self) -> list[str]:
        return ["train", str(self.stage.recipe), "--out", str(self.work), "--resume"]


class _Reported(_Case):
    """A finished run of which a page is made."""

    def make(self) -> Path:
        out = self.stage.folder / "finished"
        shutil.rmtree(out, ignore_errors=True)
        lengthwise([*self.stage.verbs["recall"], "--out", str(out)])
        return out

    def command(self) -> list[str]:
        return ["report", str(self.work), "--out", str(self.stage.folder / "page.html")]


class _Model(_Case):
    """A model folder. It has no checksums, so a flipped bit of a weight is not seen."""

    def make(self) -> Path:
        return self.stage.model

    def command(self) -> list[str]:
        return ["ppl", str(self.work), *self.stage.verbs["ppl"][2:]]


class _Adapter(_Case):
    """A saved adapter, without checksums as well."""

    def make(self) -> Path:
        out = self.stage.folder / "with-adapter"
        shutil.rmtree(out, ignore_errors=True)
        lengthwise(["train", str(self.stage.recipe), "--set", "adapter={r: 2}", "--out", str(out)])
        return out / "model"

    def command(self) -> list[str]:
        return [*self.stage.verbs["ppl"], "--adapter", str(self.work)]


class _Cached(_Case):
    """A model that was converted into the cache: damage of any kind is found, and the model made again."""

    def make(self) -> Path:
        made = self.stage.folder / "cache-with-model"
        self.out = self.stage.folder / "of-cached"
        shutil.rmtree(made, ignore_errors=True)
        lengthwise(self.command(), environment={"LENGTHWISE_CACHE": str(made)})
        self.expected = rows_of(self.out)
        return made

    def command(self) -> list[str]:
        shutil.rmtree(self.out, ignore_errors=True)
        return ["ppl", "tiny-books", *self.stage.verbs["ppl"][2:], "--out", str(self.out)]

    def environment(self) -> dict[str, str]:
        return {"LENGTHWISE_CACHE": str(self.work)}

    def fault(self) -> str | None:
        return None if rows_of(self.out) == self.expected else "other rows at exit 0"
