"""Models that are built once in the cache: those known by name, and GGUF files. Imports no torch."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

from lengthwise.errors import MissingError, UsageError, reason
from lengthwise.files import build_once, cache_dir, sha256
from lengthwise.text.embedded_texts import package_file

SHIPPED = Path(__file__).with_name("tiny_books")
"""tiny-books as the package has it: an ordinary model folder with float16 weights (`tools/tiny_books.py`)."""

_RULES = 4
"""Of the conversion of a GGUF file. Another number converts files and embedded models again that are in the cache."""


EMBEDDED: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_suffix(".json").read_bytes())
"""The models that need no hub, by name: what they are, and the command that installs their sources.

`gguf` is (module, file in it) of each part of the file, in order; a model without one comes with lengthwise. `sha256`
is the hash of the whole file, if it is in parts; that of Gemma's is in SHA256SUMS of its package.
"""


def _place(name: str) -> Path:
    """Where in the cache an embedded model is, by what it is made of and the rules of its conversion."""
    parts: list[Any] = EMBEDDED[name].get("gguf") or [sha256(SHIPPED / "model.safetensors")]
    key = hashlib.sha256(json.dumps([_RULES, *parts]).encode()).hexdigest()[:16]
    return cache_dir() / "models" / key / name


def made_folder(name: str) -> Path | None:
    """The folder of an embedded model in the cache; None before it has been built."""
    folder = _place(name)
    return folder if (folder / "config.json").is_file() else None


def build_embedded(name: str) -> Path:
    """The folder of an embedded model in the cache, made at the first call.

    MissingError if a package is not installed, or its file is not the expected one.
    """
    model = EMBEDDED[name]
    return build_once(
        _place(name),
        lambda folder: _join(model, folder) if "gguf" in model else _widen(folder),
        what=f"the model {name}",
    )


def _join(model: dict[str, Any], folder: Path) -> None:
    """Write a model whose GGUF file is in one part or several."""
    whole = folder / "whole.gguf"
    with whole.open("wb") as stream:
        for module, file in model["gguf"]:
            stream.write(package_file(module, file, install=model["install"]).read_bytes())
    expected = model.get("sha256")
    if expected and (found := sha256(whole)) != expected:
        raise MissingError(
            f"the parts in the packages are damaged: the SHA-256 of the whole is {found}",
            expected=expected,
            fix=model["install"],
        )
    write_converted(whole, folder)
    whole.unlink()


def _widen(folder: Path) -> None:
    """Write the shipped model to `folder`, its float16 weights as float32."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(SHIPPED, folder, dirs_exist_ok=True)
    weights = {name: tensor.float() for name, tensor in load_file(SHIPPED / "model.safetensors").items()}
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def convert_gguf_file(path: Path) -> Path:
    """The folder of the converted model, created at the first call for this file (its path, size and time).

    Raises:
        UsageError: the file is not a GGUF of a causal LM that transformers can read.
        LengthwiseError: the cache cannot be written.
    """
    status = path.stat()
    identity = f"{_RULES} {path.resolve()} {status.st_size} {status.st_mtime_ns}"
    key = hashlib.sha256(identity.encode()).hexdigest()[:16]
    return build_once(
        cache_dir() / "models" / f"gguf-{path.stem}-{key}",
        lambda folder: write_converted(path, folder),
        what=f"the converted model of {path.name}",
    )


def write_converted(path: Path, folder: Path) -> None:
    """Dequantise the model in the GGUF file `path` to fp32 and save it, with its tokenizer, to `folder`.

    UsageError if it is damaged, or transformers would compute something else than the file says.
    """
    import torch

    from lengthwise.versions import need_newer

    need_newer("reading GGUF files")
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GgufConfig

    from lengthwise.checkpoints.gguf_file import ANOTHER_WAY, GgufFile
    from lengthwise.checkpoints.gguf_tokenizer import mend

    where = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
    try:
        file = GgufFile.read(path)
        # dequantize=True leaves plain nn.Linear layers; without it save_pretrained refuses.
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            **where,
            config=file.configured(AutoConfig.from_pretrained(**where)),
            dtype=torch.float32,
            quantization_config=GgufConfig(dequantize=True),
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
        model, info = loaded
        tokenizer = AutoTokenizer.from_pretrained(**where)
        mend(tokenizer, file.tokenizer)
        misfits = {name for name, *_ in info["mismatched_keys"]}
        file.check_loaded(model, sorted(info["missing_keys"] | misfits), tokenizer)
    except (MemoryError, UsageError):
        raise
    # The readers raise whatever a damaged file leads them to, AssertionError and OverflowError among others.
    except Exception as error:
        raise UsageError(
            f"{path} cannot be converted: {reason(error)}",
            expected="a whole GGUF file of an architecture that transformers reads",
            fix=ANOTHER_WAY.format(path=path),
        ) from error
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
