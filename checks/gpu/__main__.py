"""Kernels, speed, a training step and `limit` on a GPU (five minutes); `checks/gpu.sh` where there is no network.

Runs the parts, each in a process of its own with its own time limit. $OUT (or runs/gpu) gets gpu.json (all that was
found, with tracebacks), gpu.md (a table) and gpu.log (all that the parts printed). They are written again after
each part, so what stops this program loses one part only.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Part:
    """A program of this folder, its words, its time limit in seconds, and whether it may run beside the one before.

    Those that compile and compare do, and what is timed runs alone.
    """

    program: str
    seconds: int
    words: tuple[str, ...] = ()
    beside: bool = False


PARTS = {
    "facts": Part("facts.py", 90),
    "cases": Part("cases.py", 130),
    "kernels": Part("tiles.py", 110, beside=True),
    "llama": Part("llama.py", 90, beside=True),
    "speed": Part("tiles.py", 50, ("speed",)),
    "bench-llama3": Part("bench.py", 110, ("llama3",)),
    "bench-qwen": Part("bench.py", 60, ("qwen",)),
    "train": Part("train.py", 75),
    "limit": Part("limit.py", 75),
    "ranks": Part("ranks.py", 75),
}


def main() -> int:
    """1 if a part failed or did not end."""
    parser = argparse.ArgumentParser(description=__doc__, prog="checks/gpu.sh")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--small", action="store_true", help="small sizes, to try the program")
    parser.add_argument(
        "--parts", default=",".join(PARTS), help="names with commas, in this order: %(default)s"
    )
    parser.add_argument("--seconds", type=float, default=420.0, help="for all parts (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT") or "runs/gpu"))
    asked = parser.parse_args()
    names = asked.parts.split(",")
    if unknown := sorted(set(names) - set(PARTS)):
        parser.error(f"no part {', '.join(unknown)}")
    asked.out.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + asked.seconds
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as work, (asked.out / "gpu.log").open("w") as log:
        for group in groups(names):
            left = end - time.monotonic()
            with ThreadPoolExecutor(len(group)) as pool:
                runs = {
                    name: pool.submit(run_part, name, asked, min(left, PARTS[name].seconds), Path(work), log)
                    for name in group
                }
            for name, run in runs.items():
                found[name] = run.result()
                ended = f"{state(found[name])}, {found[name]['took']:.0f} s: {headline(found[name])}"
                print(f"== {name}: {ended}", flush=True)
            (asked.out / "gpu.json").write_text(json.dumps(found, indent=1))
            (asked.out / "gpu.md").write_text(table(found))
    print("\n" + table(found))
    return int(any(one.get("ok") is not True and not one.get("skipped") for one in found.values()))


def groups(names: list[str]) -> list[list[str]]:
    """Names that run at the same time."""
    found: list[list[str]] = []
    for name in names:
        if PARTS[name].beside and found:
            found[-1].append(name)
        else:
            found.append([name])
    return found


def run_part(name: str, asked: argparse.Namespace, seconds: float, work: Path, log: TextIO) -> dict[str, Any]:
    """What a part kept, with how it ended, how long it took and the end of what it printed."""
    if seconds < 10:
        return {"ok": None, "ended": "not started: the time was up", "took": 0.0, "output": ""}
    part, kept = PARTS[name], work / f"{name}.json"
    command = [sys.executable, str(HERE / part.program), "--device", asked.device, "--seconds", str(seconds)]
    command += [
        "--result",
        str(kept),
        "--work",
        str(work),
        *(["--small"] if asked.small else []),
        *part.words,
    ]
    print(f"== {name}, at most {seconds:.0f} s", file=log, flush=True)
    # One write: parts beside each other print too.
    sys.stdout.write(f"== {name}, at most {seconds:.0f} s\n")
    sys.stdout.flush()
    started = time.monotonic()
    # A group of its own, so that what the part started ends with it.
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    lines: list[str] = []
    reader = threading.Thread(target=follow, args=(name, process.stdout, log, lines), daemon=True)
    reader.start()
    try:
        ended = f"ended with {process.wait(timeout=seconds)}"
    except subprocess.TimeoutExpired:
        ended = f"stopped after its {seconds:.0f} s"
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    reader.join(timeout=5)
    try:
        result = json.loads(kept.read_text())
    except (OSError, ValueError):
        result = {"ok": False, "headline": "gave no result"}
    if ended != "ended with 0":
        result["ok"] = False
    return result | {"ended": ended, "took": time.monotonic() - started, "output": "".join(lines)[-20000:]}


def follow(name: str, stream: Any, log: TextIO, lines: list[str]) -> None:
    """Everything into the log; on the screen no line is long."""
    for line in stream:
        lines.append(line)
        log.write(f"{name}: {line}")
        log.flush()
        if line.strip():
            sys.stdout.write(f"  {name}: {line.rstrip()[:170]}\n")
            sys.stdout.flush()


def state(one: dict[str, Any]) -> str:
    if one.get("skipped"):
        return "skipped"
    return "ok" if one.get("ok") is True else "FAILED"


def headline(one: dict[str, Any]) -> str:
    words = str(one.get("headline", one["ended"]))
    return words if one["ended"] in ("ended with 0", words) else f"{words} ({one['ended']})"


def table(found: dict[str, Any]) -> str:
    """Every part in a row; the benchmark's tables; the failures in a line each."""
    lines = ["| part | state | seconds | what it found |", "|---|---|--:|---|"]
    lines += [
        f"| {name} | {state(one)} | {one['took']:.0f} | {headline(one)} |" for name, one in found.items()
    ]
    for one in found.values():
        if one.get("table"):
            lines += ["", one["table"].rstrip()]
    for name, one in found.items():
        failures = [] if one.get("table") else one.get("failures") or []
        if failures:
            lines += ["", f"{name}:", *(f"- {' '.join(failure.split())[:500]}" for failure in failures[:12])]
        if state(one) == "FAILED" and not failures and not one.get("table"):
            lines += ["", f"{name}, the end of its output:", "```", one["output"].rstrip()[-1500:], "```"]
    speeds = found.get("speed", {}).get("speed") or {}
    if speeds:
        lines += ["", "SCE on 1024 pairs, V = 128256, bf16:"]
        lines += [
            f"- {name}: {value.get('ms', value.get('error'))} ms, {value.get('tb_per_s')} TB/s"
            for name, value in speeds.items()
        ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
