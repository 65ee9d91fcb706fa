"""Run the study: `python -m lengthwise_studies.context_32k --out FOLDER --texts FOLDER [--seconds 480]`.

Lanes run beside each other, each its jobs in order. A job is a process with a time limit; what it printed is in
FOLDER/logs, its run folder in FOLDER/runs, and how it ended in FOLDER/jobs.jsonl. A job whose model is not there yet
waits for its packages, so that they may come while others run. At the end of the time, or at SIGINT, every job is
interrupted; what it has finished is kept. The same command, given again, runs the jobs that have not succeeded.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from lengthwise.checkpoints.embedded_models import EMBEDDED, made_folder
from lengthwise.errors import MissingError
from lengthwise.text.embedded_texts import package_file
from lengthwise_studies.context_32k.jobs import SCALES, Job, jobs

_GRACE = 20.0
"""Seconds in which an interrupted job writes what is finished."""


def is_here(model: str) -> bool:
    """Whether an embedded model can be loaded."""
    importlib.invalidate_caches()
    known = EMBEDDED[model]
    with contextlib.suppress(MissingError):
        for module, file in known.gguf:
            package_file(module, file, install=known.install)
        return True
    return made_folder(model) is not None


@dataclass
class Lanes:
    """All lanes of a run.

    Args:
        out: the folder of everything.
        end: of `time.monotonic()`.
        here: whether a model can be loaded.
    """

    out: Path
    end: float
    here: Callable[[str], bool] = is_here
    ended: dict[str, bool] = field(default_factory=dict)
    """Whether a job ended well, by its name."""
    stopped: threading.Event = field(default_factory=threading.Event)
    started: float = field(default_factory=time.monotonic)
    _lock: threading.Lock = field(default_factory=threading.Lock)

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
        threads = [threading.Thread(target=self._lane, args=(lane,)) for lane in lanes.values()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    @property
    def _is_over(self) -> bool:
        return self.stopped.is_set() or time.monotonic() > self.end

    def _lane(self, lane: list[Job]) -> None:
        for job in lane:
            if self.ended.get(job.name):
                continue
            while not self._is_over and not (job.model is None or self.here(job.model)):
                self.stopped.wait(1.0)
            while not self._is_over and not all(name in self.ended for name in job.after):
                self.stopped.wait(1.0)
            if self._is_over:
                self._write(job, "not begun", 0.0)
            else:
                self._one(job)

    def _one(self, job: Job) -> None:
        began = time.monotonic()
        self._say(f"{job.name} begins")
        environment = os.environ | {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
        if job.on_cpu:
            environment["CUDA_VISIBLE_DEVICES"] = ""
        with (self.out / "logs" / f"{job.name}.log").open("a", encoding="utf-8") as log:
            # A group of its own, so that what the job started ends with it.
            process = subprocess.Popen(
                [sys.executable, *job.words], stdout=log, stderr=log, env=environment, start_new_session=True
            )
            end = min(self.end, began + job.seconds)
            while process.poll() is None and time.monotonic() < end and not self.stopped.is_set():
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
        self._write(job, ended, time.monotonic() - began)

    def _write(self, job: Job, ended: str, seconds: float) -> None:
        with self._lock:
            self.ended[job.name] = ended == "well"
            with (self.out / "jobs.jsonl").open("a", encoding="utf-8") as stream:
                stream.write(
                    json.dumps({"job": job.name, "ended": ended, "seconds": round(seconds, 1)}) + "\n"
                )
        self._say(f"{job.name}: {ended}, {seconds:.0f} s")

    def _say(self, what: str) -> None:
        print(f"{time.monotonic() - self.started:5.0f} s  {what}", flush=True)


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
