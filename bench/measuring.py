"""What the benchmarks share: the machine, a fresh process for each row, memory, ratios with their spread."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any


def in_fresh_process(script: str, arguments: list[str], *, threads: int) -> Any:
    """What `script` prints as JSON on stdout."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, script, *arguments]
    return json.loads(subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE).stdout)


def machine(threads: int) -> dict:
    import torch

    models = [
        line.split(":")[1].strip()
        for line in read("/proc/cpuinfo").splitlines()
        if line.startswith("model name")
    ]
    return {
        "cpu": models[0] if models else platform.processor(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "threads": threads,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def resident(field: str) -> int | None:
    for line in read("/proc/self/status").splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    return None


def reset_peak() -> None:
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def ratios(rows: dict[str, list[dict]], row: str, peer: str, key: str) -> list[float] | None:
    if peer not in rows or any(run[key] is None for run in rows[row] + rows[peer]):
        return None
    return [ours[key] / theirs[key] for ours, theirs in zip(rows[row], rows[peer], strict=True)]


def spread(values: list[float] | None, digits: int = 2) -> str:
    if not values:
        return "-"
    middle = f"{statistics.median(values):.{digits}f}"
    return middle if len(values) == 1 else f"{middle} ({min(values):.{digits}f}-{max(values):.{digits}f})"
