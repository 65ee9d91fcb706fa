"""A disk that is full, and one that cannot be written: an explanation, exit code 1, and an exact --resume."""

from __future__ import annotations

import random
import resource
import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from stage import Stage
from trial import Outcome, Trial, lengthwise, rows_of

PROMISE = "a full or read-only disk is explained; what was finished stays, and --resume is exact"


def trials(stage: Stage, rng: random.Random, count: int) -> Iterator[Trial]:
    """`count` trials over the verbs: a largest file size, then (as root) a small file system, whole or read-only."""
    whole = {}
    verbs = list(stage.verbs)
    for index in range(count):
        verb = verbs[index % len(verbs)]
        words = stage.verbs[verb]
        if verb not in whole:
            out = stage.folder / f"roomy-{verb}"
            lengthwise([*words, "--out", str(out)])
            whole[verb] = rows_of(out)
        if index // len(verbs) % 2 == 0:
            most = rng.choice([0, 100, 1000, 5000, 20_000, 60_000, 150_000])
            yield Trial(f"{verb}, files of at most {most} bytes", _limited(stage, words, most, whole[verb]))
        else:
            kilobytes = rng.choice([0, 8, 40, 120, 400])
            yield Trial(f"{verb}, {kilobytes or 'no'} kB", _mounted(stage, words, kilobytes, whole[verb]))


def _limited(stage: Stage, words: list[str], most: int, expected: object) -> str | None:
    out = stage.folder / "full"
    shutil.rmtree(out, ignore_errors=True)
    cut = lengthwise([*words, "--out", str(out)], before=partial(_set_limit, most))
    return _judge(cut, lambda: lengthwise([*words, "--out", str(out), "--resume"]), out, expected)


def _set_limit(most: int) -> None:
    # Python ignores SIGXFSZ, so a write beyond the limit fails as on a full disk.
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


def _mounted(stage: Stage, words: list[str], kilobytes: int, expected: object) -> str | None:
    place = stage.folder / "mount"
    place.mkdir(exist_ok=True)
    options = f"size={kilobytes}k" if kilobytes else "ro"
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(place)], capture_output=True)
    if mounted.returncode:
        return None
    try:
        out = place / "run"
        cut = lengthwise([*words, "--out", str(out)])
        subprocess.run(["mount", "-o", "remount,rw,size=200m", str(place)], check=True, capture_output=True)
        return _judge(cut, lambda: lengthwise([*words, "--out", str(out), "--resume"]), out, expected)
    finally:
        subprocess.run(["umount", "-l", str(place)], check=False, capture_output=True)


def _judge(cut: Outcome, resume, out: Path, expected: object) -> str | None:
    if cut.fault:
        return cut.fault
    if cut.code == 0:
        return None if rows_of(out) == expected else "exit 0 with other rows"
    if cut.code != 1:
        return f"exit code {cut.code}: {cut.output[-150:]}"
    resumed = resume()
    if resumed.fault or resumed.code:
        return f"--resume: {resumed.fault or resumed.output[-150:]}"
    return None if rows_of(out) == expected else "--resume gives other rows"
