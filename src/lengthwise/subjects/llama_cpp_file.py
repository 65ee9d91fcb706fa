"""What a GGUF file that llama.cpp has opened says, and what llama.cpp does not obey of it."""

from __future__ import annotations

import ctypes
from functools import partial
from pathlib import Path
from typing import Any

from gguf import GGUFReader

from lengthwise.checkpoints.gguf_file import DIVISORS
from lengthwise.checkpoints.llama_cpp_keys import passed_over
from lengthwise.files import sampled_hash


def architecture(c: Any, model: Any) -> str:
    """The file's; "" if it does not say. `c` is the module `llama_cpp`, `model` its own pointer, here and below."""
    return _meta(c, model, "general.architecture") or ""


def says(c: Any, model: Any, key: str) -> str | None:
    """What the file has under a key, which is without the architecture, in text; None if it has none."""
    return _meta(c, model, f"{architecture(c, model)}.{key}")


def _meta(c: Any, model: Any, key: str) -> str | None:
    words = ctypes.create_string_buffer(256)
    found = c.llama_model_meta_val_str(model, key.encode(), words, len(words))
    return None if found < 0 else words.value.decode(errors="replace")


def remarks(c: Any, model: Any, path: Path, rope_scaling: str | None) -> list[str]:
    """What llama.cpp does otherwise than the file, or a subject's `rope_scaling`, says."""
    kind = rope_scaling and rope_scaling.partition(":")[0]
    found = passed_over(architecture(c, model), partial(says, c, model), kind)
    if kind and (left := [each.name for each in GGUFReader(path).tensors if each.name in DIVISORS]):
        found.append(f"{', '.join(left)} of the file divide frequencies beside rope_scaling {rope_scaling}")
    return found


def digest(c: Any, model: Any, path: Path) -> str:
    """A hash of the size of each part of a model, and of evenly spaced blocks."""
    return sampled_hash(_parts(c, model, path))


def _parts(c: Any, model: Any, path: Path) -> list[Path]:
    """llama.cpp finds the other parts of a first one by their names."""
    if (count := int(_meta(c, model, "split.count") or 1)) < 2:
        return [path]
    ends = [f"-{part:05}-of-{count:05}.gguf" for part in range(1, count + 1)]
    return [path.with_name(path.name.removesuffix(ends[0]) + end) for end in ends]
