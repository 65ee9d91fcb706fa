"""What is done in each process of a run: a model is judged, and what was found is kept in a file of its own."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers

from checks.zoo.architectures import Animal
from checks.zoo.judge import judged
from lengthwise.files import atomic_write_text

SECONDS = 240
"""The most of a processor's time that one model takes; those of recurrent layers in plain torch take a minute."""


def prepared() -> None:
    """A process that judges: one thread, and no word of progress."""
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115


def kept(animal: Animal, names: Sequence[str], folder: Path) -> dict[str, Any]:
    """What was found of a model: of its file, with what that lacks."""
    path = folder / f"{''.join(each if each.isalnum() else '-' for each in animal.name)}.json"
    versions = {"transformers": transformers.__version__}
    found = json.loads(path.read_text()) if path.exists() else {}
    kind = [animal.architecture, animal.variant]
    if (found.get("kind"), found.get("versions")) != (kind, versions):
        found = {"kind": kind, "versions": versions, "cells": {}, "none": None, "seconds": 0.0}
    missing = [name for name in names if name not in found["cells"]]
    if not missing or found["none"]:
        return found
    started = time.process_time()
    signal.signal(signal.SIGPROF, _late)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        cells = judged(animal, missing)
    except TimeoutError:
        cells = f"it takes more than {SECONDS} seconds"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    found["none"] = cells if isinstance(cells, str) else None
    found["cells"] |= {} if isinstance(cells, str) else cells
    found["seconds"] += round(time.process_time() - started, 1)
    atomic_write_text(path, json.dumps(found, indent=1) + "\n")
    return found


def _late(*_: Any) -> None:
    raise TimeoutError
