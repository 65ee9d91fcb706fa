"""What works on this machine, what is missing, and the command that installs it."""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Iterator
from typing import Any

from lengthwise.cache import cache_dir
from lengthwise.catalogue import corpora, models
from lengthwise.provenance import PACKAGES, package_versions

Finding = dict[str, Any]


def diagnose() -> list[Finding]:
    """Check packages, torch, the cache folder, the embedded models and texts.

    A finding has `what`, `state` (ok, note, missing), `detail`, `fix` (the command that repairs it) and `needed`
    (whether measuring needs it). A note works, but slower or without something.
    """
    findings = list(_packages())
    if not any(finding["state"] == "missing" for finding in findings):
        findings += _torch()
    return [*findings, _cache(), *_embedded()]


def _finding(what: str, detail: str, *, state: str = "ok", fix: str = "", needed: bool = False) -> Finding:
    """`fix` counts only where something is wrong."""
    return {
        "what": what, "state": state, "detail": detail, "fix": "" if state == "ok" else fix, "needed": needed
    }  # fmt: skip


def _packages() -> Iterator[Finding]:
    yield _finding("python", platform.python_version())
    versions = package_versions()
    for name in PACKAGES[1:]:
        state = "ok" if versions[name] else "missing"
        yield _finding(
            name, versions[name] or "not installed", state=state, fix=f"pip install {name}", needed=True
        )


def _torch() -> Iterator[Finding]:
    try:
        import torch
    except (ImportError, OSError) as error:
        problem = str(error).splitlines()[0]
        fix = "pip install --force-reinstall torch"
        yield _finding("torch loads", problem, state="missing", fix=fix, needed=True)
        return
    from lengthwise.machine import product_rate

    cores, threads = os.cpu_count() or 1, torch.get_num_threads()
    state = "ok" if threads > 1 or cores == 1 else "note"
    fix = f"export OMP_NUM_THREADS={cores}"
    yield _finding("torch threads", f"{threads} of {cores} cores", state=state, fix=fix)
    single, half = (product_rate("cpu", dtype) / 1e9 for dtype in ("float32", "bfloat16"))
    yield _finding("matrix product, CPU", f"{single:.0f} GFLOP/s in float32, {half:.0f} in bfloat16")
    has_gpu = torch.cuda.is_available()
    if has_gpu:
        names = ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
        bf16 = "with" if torch.cuda.is_bf16_supported() else "without"
        yield _finding("CUDA", f"{names}; {bf16} bfloat16")
    else:
        yield _finding("CUDA", "no device: everything runs, on the CPU", state="note")
    yield _objective(has_gpu)


def _objective(has_gpu: bool) -> Finding:
    from lengthwise.alignment.chunked import tile_on

    on_gpu = tile_on("cuda")
    never_run = " (never tried on a real one)" if on_gpu == "triton" else ""
    return _finding(
        "objective",
        f"the {tile_on('cpu')} tile on a CPU, the {on_gpu} tile on a GPU{never_run}",
        state="note" if has_gpu and on_gpu == "torch" else "ok",
        fix="pip install 'lengthwise[gpu]'",
    )


def _cache() -> Finding:
    folder = cache_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        problem = f"{folder} cannot be written: {error.strerror or error}"
        fix = "export LENGTHWISE_CACHE=/another/folder"
        return _finding("cache folder", problem, state="missing", fix=fix, needed=True)
    return _finding("cache folder", str(folder))


def _embedded() -> Iterator[Finding]:
    for kind, entries in (("model", models()), ("text", corpora())):
        for entry in entries:
            state = "missing" if entry["state"] == "missing" else "ok"
            yield _finding(f"{kind} {entry['name']}", entry["state"], state=state, fix=entry["made from"])
