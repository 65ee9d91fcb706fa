"""What a GGUF file that llama.cpp has opened says, and what llama.cpp does not obey of it."""

from __future__ import annotations

import ctypes
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader

from lengthwise.checkpoints.gguf_file import DIVISORS
from lengthwise.checkpoints.llama_cpp_keys import passed_over

_BLOCKS, _BLOCK = 1024, 4096
"""Blocks of a file that a hash reads, and the bytes of each."""


class OpenFile:
    """A file, or the first of several parts, and the model that llama.cpp made of it."""

    def __init__(self, c: Any, model: Any, path: Path) -> None:
        self._c, self._model, self._path = c, model, path
        self.architecture = self._meta("general.architecture") or ""

    def of(self, key: str) -> str | None:
        """What the file has under a key, which is without the architecture, in text; None if it has none."""
        return self._meta(f"{self.architecture}.{key}")

    def _meta(self, key: str) -> str | None:
        words = ctypes.create_string_buffer(256)
        found = self._c.llama_model_meta_val_str(self._model, key.encode(), words, len(words))
        return None if found < 0 else words.value.decode(errors="replace")

    def remarks(self, rope_scaling: str | None) -> list[str]:
        """What llama.cpp does otherwise than the file, or a subject's `rope_scaling`, says."""
        kind = rope_scaling and rope_scaling.partition(":")[0]
        found = passed_over(self.architecture, self.of, kind)
        if kind and (left := [each.name for each in GGUFReader(self._path).tensors if each.name in DIVISORS]):
            found.append(
                f"{', '.join(left)} of the file divide frequencies beside rope_scaling {rope_scaling}"
            )
        return found

    def digest(self) -> str:
        """A hash of the size of each part, and of evenly spaced blocks."""
        digest = hashlib.sha256()
        for file in self._parts():
            size = file.stat().st_size
            digest.update(f"{size}\n".encode())
            with file.open("rb") as stream:
                for start in np.linspace(0, max(0, size - _BLOCK), _BLOCKS, dtype=np.int64):
                    stream.seek(int(start))
                    digest.update(stream.read(_BLOCK))
        return digest.hexdigest()[:32]

    def _parts(self) -> list[Path]:
        """llama.cpp finds the other parts of a first one by their names."""
        if (count := int(self._meta("split.count") or 1)) < 2:
            return [self._path]
        ends = [f"-{part:05}-of-{count:05}.gguf" for part in range(1, count + 1)]
        return [self._path.with_name(self._path.name.removesuffix(ends[0]) + end) for end in ends]
