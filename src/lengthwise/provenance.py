"""Where a result comes from: versions, machine, command, time. Nothing here imports torch."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
import time
from typing import Any

PACKAGES = ("lengthwise", "torch", "transformers", "tokenizers", "peft", "accelerate", "datasets", "numpy")


def package_versions() -> dict[str, str | None]:
    """Installed versions of the packages that affect results; None for a missing one."""
    versions: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    return versions


def environment() -> dict[str, Any]:
    """What `env.json` holds: packages, Python, machine, command line, time of start (UTC)."""
    return {
        "packages": package_versions(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": platform.machine(),
        "cpu_count": os.cpu_count(),
        "command": sys.argv,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
