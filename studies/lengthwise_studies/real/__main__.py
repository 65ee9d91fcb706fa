"""Run the study: `python -m lengthwise_studies.real --out FOLDER [--seconds 330] [--design full|tiny]`.

With several workers each seed has a process of its own on the same device, so that one reads text or loads a model
while another computes. Each row is written to FOLDER/rows-seedN.jsonl once it is measured. What there was no
time to begin is named there; `--kept` does that alone.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

_GRACE = 12.0
"""Seconds after which a worker that has not stopped by itself is ended."""


def main(given: list[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--design", default="full", choices=("full", "tiny"))
    parser.add_argument(
        "--pairs", type=int, help="training steps of one pair of windows, in place of the design's"
    )
    parser.add_argument("--methods", nargs="+", default=["YaRN", "CLEX"])
    parser.add_argument("--kept", type=Path, help="an earlier run's rows: what they have is not done again")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--seconds", type=float, default=330.0)
    parser.add_argument("--device", default="auto", choices=("auto", "cpu"))
    parser.add_argument("--code", default="", help="the commit, where there is no repository")
    options = parser.parse_args(given)
    started = time.monotonic()
    (options.out / "adapters").mkdir(parents=True, exist_ok=True)
    if len(options.seeds) == 1:
        work(options, options.seeds[0], started)
        return
    rest = given if given is not None else sys.argv[1:]
    command = [sys.executable, "-m", "lengthwise_studies.real", *rest]
    workers = [subprocess.Popen([*command, "--seeds", str(seed)]) for seed in options.seeds]
    end = started + options.seconds + _GRACE
    for worker in workers:
        try:
            worker.wait(timeout=max(0.1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            worker.kill()
    print(f"all workers: {time.monotonic() - started:.0f} s", flush=True)
    sys.exit(max(abs(worker.wait()) for worker in workers))


def work(options: argparse.Namespace, seed: int, started: float) -> None:
    """The jobs of a seed."""
    import torch

    from lengthwise.machine import package_versions
    from lengthwise_studies.real.design import DESIGNS, jobs
    from lengthwise_studies.real.table import Kept, kept_files, read_kept
    from lengthwise_studies.real.worker import Worker

    design = DESIGNS[options.design]
    if options.pairs is not None:
        design = replace(design, size=replace(design.size, steps=options.pairs))
    on_gpu = options.device == "auto" and torch.cuda.is_available()
    head = {
        "design": {**asdict(design), "size": design.size.to_dict()},
        "device": torch.cuda.get_device_name() if on_gpu else "cpu",
        "packages": package_versions(),
        "code": options.code,
        "seconds": options.seconds,
        "methods": options.methods,
    }
    kept = read_kept(kept_files(options.kept)) if options.kept else Kept()
    out = options.out / f"rows-seed{seed}.jsonl"
    with out.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps({"head": head, "seed": seed}) + "\n")
    folder, deadline = options.out / "adapters", started + options.seconds
    worker = Worker(design, seed, out, folder, deadline, options.device)
    todo = jobs(seed, options.methods)
    worker.run([job for job in todo if not kept.has((design.setting(job.method), job.arm), seed, job.task)])
    if worker.failed:
        sys.exit(1)


if __name__ == "__main__":
    main()
