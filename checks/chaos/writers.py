"""Two runs started in one folder: one runs, the other is refused, and the rows are whole."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from stage import Stage
from trial import Trial, lengthwise, rows_of

PROMISE = "of two runs in one folder one runs and the other is refused"


def trials(stage: Stage, rng: random.Random, count: int) -> Iterator[Trial]:
    """`count` pairs of runs at once."""
    for _ in range(count):
        verb = rng.choice(list(stage.verbs))
        out = stage.folder / "shared"
        shutil.rmtree(out, ignore_errors=True)
        words = [*stage.verbs[verb], "--out", str(out)]
        with ThreadPoolExecutor(2) as pool:
            both = list(pool.map(lengthwise, [words, words]))
        yield Trial(verb, _judge(both, rows_of(out)))


def _judge(both, rows) -> str | None:
    for outcome in both:
        if outcome.fault:
            return outcome.fault
    codes = sorted(outcome.code for outcome in both)
    # The second may find the first one's run in use (1) or already finished (2).
    if codes[0] != 0 or codes[1] not in (1, 2):
        return f"exit codes {codes}"
    return None if rows else "no results"
