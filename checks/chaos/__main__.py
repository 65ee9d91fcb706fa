"""Tries to break the command line: kills, mutations, full disks, damaged files, two writers (half an hour).

    python checks/chaos [--seed N] [--minutes 30] [--only kill recipe ...] [--small]

One line a trial on standard error, a table at the end, exit code 1 if any promise of
docs/evidence/guarantees.md failed. As many campaigns run at once as there are cores; the trials of each
follow from the seed and its name alone.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
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
from stage import Stage, build_stage

# name: module, trials of a whole campaign, trials of the small part in `make test`.
CAMPAIGNS = {
    # First, because it takes longest.
    "options": (options, 2_000, 4),
    "kill": (kills, 42, 1),
    "recipe": (recipes, 10_000, 20),
    "disk": (disks, 42, 1),
    "damage": (damage, 90, 2),
    "writers": (writers, 7, 1),
}


@dataclass(frozen=True)
class Tally:
    """What became of one campaign."""

    name: str
    tried: int
    failed: int
    seconds: float


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--only", nargs="*", choices=CAMPAIGNS, default=list(CAMPAIGNS))
    parser.add_argument("--small", action="store_true", help="the part that `make test` runs")
    given = parser.parse_args()
    started = time.monotonic()
    seed = given.seed if given.seed is not None else (0 if given.small else random.randrange(10**6))
    print(f"seed {seed}", file=sys.stderr)
    _prepare()
    # In `make test` other tests run beside it.
    at_once = 1 if given.small else os.cpu_count()
    with tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as folder:
        os.environ["LENGTHWISE_CACHE"] = str(Path(folder) / "cache")
        # Some trials name "../..": a folder of the campaign, not whatever it was started in.
        sys.path[0] = str(Path(sys.path[0]).resolve())
        work = Path(folder) / "work" / "here"
        work.mkdir(parents=True)
        os.chdir(work)
        run = functools.partial(
            _run,
            stage=build_stage(Path(folder) / "stage"),
            seed=seed,
            small=given.small,
            until=started + 60 * given.minutes,
        )
        with ProcessPoolExecutor(at_once, mp_context=multiprocessing.get_context("fork")) as pool:
            tallies = list(pool.map(run, given.only))
    _print_table(seed, tallies, time.monotonic() - started)
    return 1 if any(tally.failed for tally in tallies) else 0


def _prepare() -> None:
    """Do once what every command would do for itself: the heavy imports, and measuring the machine for plans."""
    import torch

    from lengthwise import machine
    from lengthwise.measure.table import MEASUREMENTS

    torch.set_num_threads(1)
    for module in ("peft", "rich.table", "lengthwise.training.training_run", "lengthwise.cli.main"):
        importlib.import_module(module)
    for entry in MEASUREMENTS.values():
        assert entry.measurement
    importlib.import_module("lengthwise.measure.runner")
    machine.product_rate = functools.cache(machine.product_rate)
    for dtype in ("float32", "bfloat16"):
        machine.product_rate("cpu", dtype)


def _run(name: str, *, stage: Stage, seed: int, small: bool, until: float) -> Tally:
    """One campaign, to its end or until the clock shows `until`."""
    module, whole, few = CAMPAIGNS[name]
    tried = failed = 0
    begun = time.monotonic()
    for trial in module.trials(stage, random.Random(f"{seed}/{name}"), few if small else whole):
        tried += 1
        failed += trial.fault is not None
        if trial.fault or name != "recipe":
            # In one write, so that two campaigns do not mix within a line.
            sys.stderr.write(f"{name}: {trial.what}: {trial.fault or 'ok'}\n")
            sys.stderr.flush()
        if time.monotonic() > until:
            break
    return Tally(name, tried, failed, time.monotonic() - begun)


def _print_table(seed: int, tallies: Sequence[Tally], seconds: float) -> None:
    print(f"\nseed {seed}, {seconds:.0f} seconds\n")
    print("| campaign | promise | trials | failed | seconds |\n|---|---|--:|--:|--:|")
    for tally in tallies:
        promise = CAMPAIGNS[tally.name][0].PROMISE
        print(f"| {tally.name} | {promise} | {tally.tried} | {tally.failed} | {tally.seconds:.0f} |")


if __name__ == "__main__":
    sys.exit(main())
