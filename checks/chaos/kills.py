"""SIGKILL at a random moment, then --resume: the rows are those of a run that nobody killed."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator

from stage import Stage
from trial import Trial, lengthwise, rows_of

PROMISE = "a killed run resumes to the same rows"


def trials(stage: Stage, rng: random.Random, count: int) -> Iterator[Trial]:
    """`count` kills, spread over the verbs, each at a random share of the verb's own time."""
    whole = {}
    for index in range(count):
        verb = list(stage.verbs)[index % len(stage.verbs)]
        words = stage.verbs[verb]
        if verb not in whole:
            out = stage.folder / f"whole-{verb}"
            outcome = lengthwise([*words, "--out", str(out)])
            whole[verb] = (rows_of(out), outcome)
        expected, unbroken = whole[verb]
        share = rng.random()
        yield Trial(
            f"{verb} at {share:.0%}", unbroken.fault or _kill(stage, words, share, unbroken, expected)
        )


def _kill(stage: Stage, words, share, unbroken, expected) -> str | None:
    if expected is None:
        return f"the unbroken run gave no results: {unbroken.output[-150:]}"
    out = stage.folder / "killed"
    shutil.rmtree(out, ignore_errors=True)
    lengthwise([*words, "--out", str(out)], kill_after=share * unbroken.seconds)
    resumed = lengthwise([*words, "--out", str(out), "--resume"])
    if resumed.fault or resumed.code:
        return resumed.fault or f"--resume exits with {resumed.code}: {resumed.output[-150:]}"
    return None if rows_of(out) == expected else "other rows than without the kill"
