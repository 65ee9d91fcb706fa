"""Files that may be compressed."""

from __future__ import annotations

import bz2
import gzip
import importlib
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lengthwise.errors import MissingError


def _zstd(path: Path) -> Any:
    try:
        # By name: it is no dependency.
        return importlib.import_module("zstandard").open(path)
    except ImportError as error:
        raise MissingError(f"{path} needs the package zstandard", fix="pip install zstandard") from error


_COMPRESSED: dict[str, Callable[[Path], Any]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
    ".zst": _zstd,
}


def suffixes(path: Path) -> tuple[str, str]:
    """What a file holds, and how it is compressed."""
    last = path.suffix.lower()
    return (Path(path.stem).suffix.lower(), last) if last in _COMPRESSED else (last, "")


def unpacked(path: Path) -> bytes:
    """The content of a file; raises what its compression raises, and MissingError for a package that it needs."""
    if not (compressed := suffixes(path)[1]):
        return path.read_bytes()
    with _COMPRESSED[compressed](path) as stream:
        return stream.read()
