"""The machine: GPU, driver, versions, and its two ceilings: a copy in device memory and a bf16 matrix product."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
import shutil
import subprocess
from typing import Any

from part import Result, attempt, options

PACKAGES = (
    "torch triton transformers tokenizers accelerate peft datasets numpy pydantic cyclopts httpx2 gguf pyarrow "
    "liger-kernel cut-cross-entropy trl bitsandbytes pytest pytest-xdist"
)
MODULES = (
    "lengthwise.alignment lengthwise.training lengthwise.checkpoints lengthwise.subjects "
    "lengthwise.measure lengthwise.testing"
)


def version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def smi() -> str:
    fields = "--query-gpu=name,driver_version,memory.total,clocks.sm,power.limit"
    return subprocess.run(
        ["nvidia-smi", fields, "--format=csv,noheader"],
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
    ).stdout.strip()


def ceilings() -> dict[str, float]:
    import torch

    def milliseconds(work: Any) -> float:
        for _ in range(3):
            work()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(10):
            work()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) / 10

    source = torch.randn(2**29, device="cuda")
    target = torch.empty_like(source)
    copied = milliseconds(lambda: target.copy_(source))
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    product = milliseconds(lambda: a @ b)
    return {
        "copy_tb_per_s": 2 * source.nbytes / copied / 1e9,
        "bf16_product_tflops": 2 * 8192**3 / product / 1e9,
    }


def device() -> dict[str, Any]:
    import torch

    if not torch.cuda.is_available():
        return {"cuda": False}
    found = torch.cuda.get_device_properties(0)
    return {
        "cuda": torch.version.cuda,
        "devices": torch.cuda.device_count(),
        "name": found.name,
        "capability": f"{found.major}.{found.minor}",
        "memory_gib": found.total_memory / 2**30,
        "multiprocessors": found.multi_processor_count,
    }


def main() -> None:
    asked = options()
    result = Result(asked.result)
    result.keep(
        python=platform.python_version(),
        platform=platform.platform(),
        cores=os.cpu_count(),
        compiler=shutil.which("gcc") or shutil.which("cc") or shutil.which("clang"),
        versions={name: version(name) for name in PACKAGES.split()},
    )
    result.keep(device=attempt(device))
    result.keep(
        imports={name: attempt(lambda n=name: bool(importlib.import_module(n))) for name in MODULES.split()}
    )
    if asked.device == "cuda":
        result.keep(smi=attempt(smi))
        result.keep(ceilings=attempt(ceilings))
    for name, value in result.items():
        print(f"{name}: {str(value)[:600]}")
    failed = [name for name, found in result["imports"].items() if "error" in found]
    result.keep(ok=not failed, headline=headline(result, failed))


def headline(result: Result, failed: list[str]) -> str:
    device, versions = result["device"], result["versions"]
    words = [str(device.get("name", "no GPU")), f"torch {versions['torch']}", f"triton {versions['triton']}"]
    words += [
        f"{name} {value:.3g}"
        for name, value in result.get("ceilings", {}).items()
        if isinstance(value, float)
    ]
    words += [f"cannot import {name}" for name in failed]
    return ", ".join(words)


if __name__ == "__main__":
    main()
