"""What works on this machine, what is missing, and the command that installs it."""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from lengthwise.cache import cache_dir
from lengthwise.provenance import package_versions

NEEDED = ("torch", "transformers", "tokenizers", "peft", "accelerate", "datasets", "numpy")


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One checked item."""

    what: str
    state: Literal["ok", "note", "missing"]
    """note: works, but slower or without something."""
    detail: str
    fix: str = ""
    """The command that installs or repairs it."""
    needed: bool = False
    """Whether measuring needs it."""


def diagnose() -> list[Finding]:
    """Check packages, torch, the cache folder, the embedded models and texts."""
    findings = [*_packages()]
    if not any(finding.state == "missing" for finding in findings):
        findings += _torch()
    findings.append(_cache())
    findings += _embedded()
    return findings


def _packages() -> Iterator[Finding]:
    yield Finding(what="python", state="ok", detail=platform.python_version())
    versions = package_versions()
    for name in NEEDED:
        version = versions[name]
        yield Finding(
            what=name,
            state="ok" if version else "missing",
            detail=version or "not installed",
            fix="" if version else f"pip install {name}",
            needed=True,
        )


def _torch() -> Iterator[Finding]:
    try:
        import torch
    except (ImportError, OSError) as error:
        yield Finding(
            what="torch loads",
            state="missing",
            detail=str(error).splitlines()[0],
            fix="pip install --force-reinstall torch",
            needed=True,
        )
        return
    cores, threads = os.cpu_count() or 1, torch.get_num_threads()
    yield Finding(
        what="torch threads",
        state="ok" if threads > 1 or cores == 1 else "note",
        detail=f"{threads} of {cores} cores",
        fix="" if threads > 1 or cores == 1 else f"export OMP_NUM_THREADS={cores}",
    )
    single, half = (_product_rate(dtype) for dtype in ("float32", "bfloat16"))
    yield Finding(
        what="matrix product, CPU",
        state="ok",
        detail=f"{single / 1e9:.0f} GFLOP/s in float32, {half / 1e9:.0f} in bfloat16",
    )
    if torch.cuda.is_available():
        names = ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
        bf16 = "with" if torch.cuda.is_bf16_supported() else "without"
        yield Finding(what="CUDA", state="ok", detail=f"{names}; {bf16} bfloat16")
    else:
        yield Finding(what="CUDA", state="note", detail="no device: everything runs, on the CPU")
    yield _objective(torch.cuda.is_available())


def _objective(has_gpu: bool) -> Finding:
    from lengthwise.alignment.backend import tile_on

    on_gpu = tile_on("cuda")
    never_run = " (never tried on a real one)" if on_gpu == "triton" else ""
    slow = has_gpu and on_gpu == "torch"
    return Finding(
        what="objective",
        state="note" if slow else "ok",
        detail=f"the {tile_on('cpu')} tile on a CPU, the {on_gpu} tile on a GPU{never_run}",
        fix="pip install 'lengthwise[gpu]'" if slow else "",
    )


def _product_rate(dtype: str) -> float:
    from lengthwise.machine import product_rate

    return product_rate("cpu", dtype)


def _cache() -> Finding:
    folder = cache_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        return Finding(
            what="cache folder",
            state="missing",
            detail=f"{folder} cannot be written: {error.strerror or error}",
            fix="export LENGTHWISE_CACHE=/another/folder",
            needed=True,
        )
    return Finding(what="cache folder", state="ok", detail=str(folder))


def _embedded() -> Iterator[Finding]:
    from lengthwise.catalogue import corpora, models

    for kind, entries in (("model", models()), ("text", corpora())):
        for entry in entries:
            missing = entry["state"] == "missing"
            yield Finding(
                what=f"{kind} {entry['name']}",
                state="missing" if missing else "ok",
                detail=entry["state"],
                fix=entry["made from"] if missing else "",
            )
