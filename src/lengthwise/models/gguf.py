"""GGUF files: converted once to a plain fp32 model folder in the cache."""

from __future__ import annotations

import hashlib
from pathlib import Path

from lengthwise.errors import UsageError, reason
from lengthwise.files import build_once, cache_dir


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
