"""Try to break the command line: kills, mutations, full disks, damaged files, two writers.

    python tests/chaos [--seed N] [--minutes 30] [--only kill recipe ...] [--small]

One line a trial on standard error, a table at the end, exit code 1 if any promise of docs/guarantees.md failed.
"""

from __future__ import annotations

import argparse
import functools
import os
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

# A fork must not inherit threads.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import damage
import disks
import kills
import options
import recipes
import writers
from stage import build_stage

# name: module, trials of a whole campaign, trials of the small part in `make test`.
CAMPAIGNS = {
    "kill": (kills, 42, 2),
    "recipe": (recipes, 10_000, 100),
    "disk": (disks, 42, 1),
    "damage": (damage, 90, 3),
    "writers": (writers, 7, 1),
    # Last: it runs as many as the time leaves.
    "options": (options, 2_000, 6),
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--only", nargs="*", choices=CAMPAIGNS, default=list(CAMPAIGNS))
    parser.add_argument("--small", action="store_true", help="the part that `make test` runs")
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else (0 if given.small else random.randrange(10**6))
    print(f"seed {seed}", file=sys.stderr)
    # The heavy imports once; forks share them.
    import torch
    import transformers  # noqa: F401

    from lengthwise import machine

    torch.set_num_threads(1)
    # Plans measure the machine's speed, half of their time. Forks inherit the first measurement.
    machine.product_rate = functools.cache(machine.product_rate)
    for dtype in ("float32", "bfloat16"):
        machine.product_rate("cpu", dtype)
    started = time.monotonic()
    tried, failed, seconds = Counter(), Counter(), Counter()
    with tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as folder:
        os.environ["LENGTHWISE_CACHE"] = str(Path(folder) / "cache")
        stage = build_stage(Path(folder) / "stage")
        for name in given.only:
            module, whole, small = CAMPAIGNS[name]
            begun = time.monotonic()
            for trial in module.trials(
                stage, random.Random(f"{seed}/{name}"), small if given.small else whole
            ):
                tried[name] += 1
                failed[name] += trial.fault is not None
                if trial.fault or name != "recipe":
                    print(
                        f"{trial.campaign}: {trial.what}: {trial.fault or 'ok'}", file=sys.stderr, flush=True
                    )
                if time.monotonic() - started > 60 * given.minutes:
                    break
            seconds[name] = round(time.monotonic() - begun)
    print(f"\nseed {seed}\n\n| campaign | promise | trials | failed | seconds |\n|---|---|--:|--:|--:|")
    for name in given.only:
        promise = CAMPAIGNS[name][0].PROMISE
        print(f"| {name} | {promise} | {tried[name]} | {failed[name]} | {seconds[name]} |")
    return 1 if sum(failed.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
