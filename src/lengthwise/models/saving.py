"""A model folder, written whole or not at all."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from lengthwise.models.extension.saving import write_extension_files


def save_whole(model: Any, tokenizer: Any, path: Path) -> None:
    """Save model (or adapter) and tokenizer so that `path` holds all of it or does not exist.

    An extended model's card says so; an extended base model is recorded beside its adapter, so that
    `load(base, adapter=path)` extends it again.
    """
    unfinished = path.with_name(f".{path.name}.part")
    for left_over in (unfinished, path):
        if left_over.exists():
            shutil.rmtree(left_over)
    model.save_pretrained(unfinished)
    tokenizer.save_pretrained(unfinished)
    write_extension_files(model, unfinished)
    os.replace(unfinished, path)
