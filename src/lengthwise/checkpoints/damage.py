"""Why a model, tokenizer or adapter could not be loaded, and which of its files is damaged."""

from __future__ import annotations

from pathlib import Path

from lengthwise.errors import LengthwiseError, MissingError, UsageError, is_out_of_memory, reason
from lengthwise.files import read_json


def unloadable(
    what: str,
    location: str,
    error: Exception,
    *,
    otherwise: type[LengthwiseError] = UsageError,
    expected: str = "all files of a causal language model, and options that it takes",
) -> LengthwiseError:
    """The error for a model, tokenizer or adapter that a library could not load.

    A MissingError if a file is absent or damaged, else an error of the type `otherwise`.
    """
    # It has its own explanation.
    if is_out_of_memory(error):
        raise error
    if "trust_remote_code" in str(error):
        return UsageError(
            f"{what} brings code of its own, which lengthwise does not run",
            expected="a model and a tokenizer of types that transformers has",
        )
    if damaged := damaged_files(Path(location), error):
        return MissingError(f"{what} cannot be loaded: {damaged} is damaged", fix="download it again")
    kind = MissingError if isinstance(error, ImportError | OSError) else otherwise
    fix = f"complete {location}, as by downloading it again" if isinstance(error, OSError) else None
    if isinstance(error, ImportError):
        expected = "the package, or the device, that its weights need"
        fix = "install it, or serve the model where it runs and measure its URL"
    return kind(f"{what} cannot be loaded: {reason(error)}", expected=expected, fix=fix)


def damaged_files(folder: Path, error: Exception) -> str | None:
    """The file of a model or adapter that is damaged; None if there is none."""
    from safetensors import SafetensorError, safe_open

    for file in sorted(folder.glob("*.json")) + sorted(folder.glob("*.safetensors")):
        try:
            if file.suffix == ".json":
                read = read_json(file, expected="a JSON object")
                if file.name.endswith(".index.json") and not isinstance(read.get("weight_map"), dict):
                    return str(file)
            else:
                with safe_open(file, framework="numpy"):
                    pass
        except (UsageError, SafetensorError, OSError):
            return str(file)
    pickles = ", ".join(str(file) for file in sorted(folder.glob("*.bin")))
    return f"{pickles} (or holds other objects than tensors)" if pickles and is_damage(error) else None


def is_damage(error: Exception) -> bool:
    """Whether a library says that a file of weights is damaged, or holds more than tensors."""
    return (
        type(error).__name__ in ("UnpicklingError", "SafetensorError", "EOFError", "BadZipFile")
        or "PytorchStreamReader" in str(error)
        or "weights_only" in str(error)
    )
