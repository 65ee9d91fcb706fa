"""The rows of `objective.py` on a GPU: all in one process, which times them in turn, round by round.

A process for each row, as on a CPU, would spend its time starting: a GPU's allocator says what each row takes, so
one process can tell rows apart. What a row gives is written as soon as it is there. A row that fails is noted with
its traceback. One that takes the process with it (a wrong access leaves the GPU unusable to it) is left out by the
next process, which does the rest.

Time is wall time of forward and backward by the GPU's own events, after a pass that is not timed. Memory is the
allocator's peak during a pass, beyond what was allocated before and the gradients themselves. `loss` and
`gradient_norms` are there to compare rows: those of one loss must agree.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measuring import spread


def run_rows(
    script: str, shape: str, dtype: str, options: argparse.Namespace, until: float
) -> dict[str, Any]:
    """Every row's passes and failures, by row, of one shape and dtype; stops at `until` (time.monotonic)."""
    log = Path(options.out) / f"{shape}-{dtype}.jsonl"
    log.unlink(missing_ok=True)
    left = list(options.rows)
    while left and (seconds := until - time.monotonic()) > 5:
        command = [sys.executable, script, "--worker", "all", "--shape", shape, "--dtype", dtype]
        command += ["--device", options.device, "--log", str(log), "--seconds", str(seconds - 3)]
        command += ["--repeats", str(options.repeats), "--min-context", str(options.min_context)]
        command += ["--threads", str(options.threads), "--rows", *left]
        try:
            code = subprocess.run(command, timeout=seconds, check=False).returncode
        except subprocess.TimeoutExpired:
            code = "the time was up"
        lines = read_lines(log)
        if code == 0 or isinstance(code, str):
            break
        begun = [line["row"] for line in lines if "begun" in line]
        if not begun or begun[-1] not in left:
            note(log, row="all", failed=f"the process ended with {code} before its first row")
            break
        failed = {line["row"] for line in lines if "failed" in line}
        if begun[-1] not in failed:
            note(log, row=begun[-1], failed=f"the process ended with {code} in this row")
            failed.add(begun[-1])
        left = [row for row in left if row not in failed]
    return gathered(read_lines(log))


def gathered(lines: list[dict]) -> dict[str, Any]:
    """The lines of a log by row: passes, and the failure of a row that has one."""
    rows: dict[str, Any] = {}
    for line in lines:
        row = rows.setdefault(line["row"], {"passes": [], "failed": None, "traceback": None})
        if "ms" in line:
            row["passes"].append({key: value for key, value in line.items() if key != "row"})
        elif "failed" in line:
            row |= {"failed": line["failed"], "traceback": line.get("traceback")}
    return rows


def read_lines(log: Path) -> list[dict]:
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def note(log: Path, **line: Any) -> None:
    with log.open("a") as file:
        file.write(json.dumps(line) + "\n")


class Device:
    """Times a row and reads its memory: on a GPU, or on a CPU to try the program without one."""

    def __init__(self, name: str) -> None:
        import torch

        self.name, self._gpu = name, torch.cuda if name == "cuda" else None

    def milliseconds(self, work: Callable[[], Any]) -> float:
        if self._gpu is None:
            start = time.perf_counter()
            work()
            return 1e3 * (time.perf_counter() - start)
        start, end = (self._gpu.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        self._gpu.synchronize()
        return start.elapsed_time(end)

    def peak_of(self, work: Callable[[], Any]) -> int | None:
        """Bytes at the peak beyond those before."""
        if self._gpu is None:
            work()
            return None
        self._gpu.synchronize()
        self._gpu.reset_peak_memory_stats()
        before = self._gpu.memory_allocated()
        work()
        self._gpu.synchronize()
        return self._gpu.max_memory_allocated() - before

    def empty(self) -> None:
        gc.collect()
        if self._gpu is not None:
            self._gpu.empty_cache()


def measure_all(options: argparse.Namespace, build: Callable[..., Any]) -> None:
    """The worker: `build(row)` gives a row's step, which returns its loss, and the leaves that get gradients."""
    import torch

    until, log, device = time.monotonic() + options.seconds, Path(options.log), Device(options.device)
    torch.set_num_threads(options.threads)
    rows, slow = list(options.rows), {}
    for repeat in range(options.repeats):
        for row in list(rows):
            if time.monotonic() + slow.get(row, 0) > until:
                continue
            if repeat == 0:
                note(log, row=row, begun=True)
            started = time.monotonic()
            try:
                step, leaves = build(row)
                found = passes(step, leaves, device, first=repeat == 0)
                for line in found:
                    note(log, row=row, repeat=repeat, **line)
                print(f"  {row}: {found[-1]['ms']:.1f} ms, {found[0].get('extra_mib')} MiB", file=sys.stderr)
            except Exception as error:
                rows.remove(row)
                reason = f"{type(error).__name__}: {error}"[:2000]
                note(log, row=row, failed=reason, traceback=traceback.format_exc()[-8000:])
                print(f"  {row}: {reason[:300]}", file=sys.stderr)
                del error
            step = leaves = None
            with contextlib.suppress(Exception):
                device.empty()
            if device.name == "cuda":
                # After a wrong access every call fails: end here, and the next process does the other rows.
                torch.zeros(1, device="cuda").item()
            if repeat:
                slow[row] = time.monotonic() - started


def passes(step: Callable[[], Any], leaves: list[Any], device: Device, *, first: bool) -> list[dict]:
    """Two timed passes, after one that compiles and whose memory is read (two in the first round)."""

    def once() -> Any:
        for leaf in leaves:
            leaf.grad = None
        return step()

    loss = once()
    norms = [None if leaf.grad is None else float(leaf.grad.float().norm()) for leaf in leaves]
    value = None if loss is None else float(loss.detach())
    kept = sum(leaf.grad.nbytes for leaf in leaves if leaf.grad is not None)
    facts = {"loss": value, "gradient_norms": norms}
    del loss
    for leaf in leaves:
        leaf.grad = None
    if first:
        peak = device.peak_of(once)
        facts["extra_mib"] = None if peak is None else round((peak - kept) / 2**20, 1)
    timed = [{"ms": device.milliseconds(once)} for _ in range(2)]
    return [timed[0] | facts, *timed[1:]]


def ratio(rows: dict[str, Any], row: str, other: str) -> list[float]:
    """Of the medians of each round in which both were timed."""
    ours, theirs = by_round(rows, row), by_round(rows, other)
    return [ours[repeat] / theirs[repeat] for repeat in ours if repeat in theirs]


def by_round(rows: dict[str, Any], row: str) -> dict[int, float]:
    found: dict[int, list[float]] = {}
    for one in rows.get(row, {"passes": []})["passes"]:
        found.setdefault(one["repeat"], []).append(one["ms"])
    return {repeat: statistics.median(times) for repeat, times in found.items()}


def markdown(title: str, rows: dict[str, Any], bases: tuple[str, ...]) -> str:
    """A table: time, ratios to the rows `bases`, memory; failures below it."""
    lines = [
        f"### {title}",
        "",
        "| row | ms | " + " | ".join(f"/ {base}" for base in bases) + " | MiB | loss |",
    ]
    lines.append("|---|" + "--:|" * (len(bases) + 3))
    for row, found in rows.items():
        if not found["passes"]:
            continue
        cells = [spread(list(by_round(rows, row).values()), 1)]
        cells += [spread(ratio(rows, row, base)) for base in bases]
        head = found["passes"][0]
        memory, loss = head.get("extra_mib"), head.get("loss")
        cells += ["-" if memory is None else f"{memory:.0f}", "-" if loss is None else f"{loss:.6g}"]
        lines.append(f"| {row} | " + " | ".join(cells) + " |")
    lines += [
        "",
        *(
            f"- {row}: {found['failed'].splitlines()[0][:400]}"
            for row, found in rows.items()
            if found["failed"]
        ),
    ]
    return "\n".join(lines).rstrip() + "\n"
