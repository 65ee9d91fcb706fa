"""The files in a folder and below that are read as text, and what is left out."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from lengthwise.errors import UsageError


def files_in(
    folder: Path, is_read: Callable[[Path], bool], *, suffixes: str
) -> tuple[dict[str, Path], Counter[str]]:
    """The files for which `is_read` says so, by their path below the folder, and what is left out by kind.

    UsageError, which names the `suffixes` of such files, if there is none, and for a folder that cannot be read.
    """
    left_out: Counter[str] = Counter()
    paths: list[Path] = []
    # Unlike rglob, walk reports folders that cannot be read.
    for inner, folders, names in os.walk(folder, onerror=_refuse):
        for name in [name for name in folders if name.startswith(".")]:
            folders.remove(name)
            left_out["hidden folder"] += 1
        left_out["linked folder"] += sum(Path(inner, name).is_symlink() for name in folders)
        for path in (Path(inner, name) for name in names):
            if path.name.startswith("."):
                left_out["hidden file"] += 1
            elif not path.exists():
                left_out["broken link"] += 1
            elif not path.is_file():
                left_out["file that is not regular"] += 1
            elif not is_read(path):
                left_out[path.suffix.lower().removeprefix(".") or "file without suffix"] += 1
            else:
                paths.append(path)
    kept: dict[str, Path] = {}
    seen: set[Path] = set()
    # Files before the links to them.
    for path in sorted(paths, key=lambda path: (path.is_symlink(), path)):
        if (real := path.resolve()) in seen:
            left_out["link to a file that is read"] += 1
        else:
            seen.add(real)
            kept[path.relative_to(folder).as_posix()] = path
    if not kept:
        counts = ", ".join(f"{count} {kind}" for kind, count in (+left_out).items())
        raise UsageError(
            f"the folder {folder} has no file of text in it or below, but {counts or 'nothing'}",
            expected=f"files of {suffixes}",
            fix=f"use hf://{folder} for a data set in the hub's layout",
        )
    return {name: kept[name] for name in sorted(kept)}, +left_out


def _refuse(error: OSError) -> NoReturn:
    raise UsageError(f"cannot read a folder: {error}") from error
