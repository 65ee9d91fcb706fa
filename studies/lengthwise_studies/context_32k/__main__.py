"""Run the study: `python -m lengthwise_studies.context_32k --out FOLDER --texts FOLDER [--seconds 480]`.

Lanes run beside each other, each its jobs in order. A job is a process with a time limit; what it printed is in
FOLDER/logs, its run folder in FOLDER/runs, and how it ended in FOLDER/jobs.jsonl. At the end of the time, or at
SIGINT, every job is interrupted; what it has finished is kept. The same command, given again, runs the jobs that have
not succeeded.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from lengthwise_studies.context_32k.jobs import SCALES, Job, jobs

_GRACE = 20.0
"""Seconds in which an interrupted job writes what is finished."""


@dataclass
class Lanes:
    """All lanes of a run: the folder of everything, and the end of its time as `time.monotonic()` has it."""

    out: Path
    end: float
    ended: dict[str, bool] = field(default_factory=dict)
    """Whether a job ended well, by its name."""
    stopped: threading.Event = field(default_factory=threading.Event)

    def run(self, all_jobs: list[Job]) -> None:
        """Every job for which there is time."""
        for folder in ("runs", "logs", "lab", "work"):
            (self.out / folder).mkdir(parents=True, exist_ok=True)
        if (self.out / "jobs.jsonl").exists():
            lines = map(json.loads, (self.out / "jobs.jsonl").read_text(encoding="utf-8").splitlines())
            self.ended = {line["job"]: True for line in lines if line["ended"] == "well"}
        lanes: dict[str, list[Job]] = {}
        for job in all_jobs:
            lanes.setdefault(job.lane, []).append(job)
        with ThreadPoolExecutor(len(lanes)) as pool:
            list(pool.map(self._lane, lanes.values()))

    def _lane(self, lane: list[Job]) -> None:
        for job in lane:
            while not self._is_over and not all(name in self.ended for name in job.after):
                self.stopped.wait(1.0)
            if not self.ended.get(job.name):
                began = time.monotonic()
                ended = "not begun" if self._is_over else self._one(job)
                line = {"job": job.name, "ended": ended, "seconds": round(time.monotonic() - began, 1)}
                self.ended[job.name] = ended == "well"
                with (self.out / "jobs.jsonl").open("a", encoding="utf-8") as stream:
                    stream.write(json.dumps(line) + "\n")
                print(line, flush=True)

    @property
    def _is_over(self) -> bool:
        return self.stopped.is_set() or time.monotonic() > self.end

    def _one(self, job: Job) -> str:
        """How the job ended."""
        environment = os.environ | {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
        if job.on_cpu:
            environment["CUDA_VISIBLE_DEVICES"] = ""
        end = time.monotonic() + job.seconds
        with (self.out / "logs" / f"{job.name}.log").open("a", encoding="utf-8") as log:
            # A group of its own, so that what the job started ends with it.
            process = subprocess.Popen(
                [sys.executable, *job.words], stdout=log, stderr=log, env=environment, start_new_session=True
            )
            while process.poll() is None and time.monotonic() < end and not self._is_over:
                time.sleep(0.2)
            ended = "well" if process.poll() == 0 else f"with {process.poll()}"
            if process.poll() is None:
                ended = "interrupted"
                process.send_signal(signal.SIGINT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=_GRACE)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        return ended


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--texts", type=Path, required=True, help="what `context_32k.texts` wrote")
    parser.add_argument("--seconds", type=float, default=480.0)
    parser.add_argument("--scale", choices=tuple(SCALES), default="full")
    given = parser.parse_args()
    lanes = Lanes(given.out, time.monotonic() + given.seconds)
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, lambda *_: lanes.stopped.set())
    lanes.run([*jobs(SCALES[given.scale], given.texts, given.out)])


if __name__ == "__main__":
    main()
