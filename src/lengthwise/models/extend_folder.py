"""From a model to a folder with the extended model, and what that would do before any weight is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lengthwise.errors import UsageError
from lengthwise.files import cannot_write
from lengthwise.models.embedded import EMBEDDED, made_folder
from lengthwise.models.extension.apply import extend
from lengthwise.models.extension.configure import plan_extension, write_extension
from lengthwise.models.extension.record import Extension
from lengthwise.models.extension.saving import loads_with
from lengthwise.models.loading import load
from lengthwise.models.quiet import quiet_transformers
from lengthwise.models.resolve import read_config
from lengthwise.models.saving import save_whole
from lengthwise.positions import rope_method


def plan_extended(
    model: str,
    method: str,
    *,
    factor: float,
    original_length: int | None = None,
    options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """What `save_extended` would write, from the model's configuration alone. Plain values.

    Raises:
        UsageError, MissingError: as `extend`, or there is no such model.
    """
    rope_method(method, options)
    if model in EMBEDDED and made_folder(model) is None:
        return {
            "model": model,
            "method": method,
            "factor": factor,
            "basis": "the model has not been made yet, so its configuration is not known",
        }
    config = read_config(model)
    with quiet_transformers():
        extension = plan_extension(
            config, method, factor=factor, original_length=original_length, options=options, name=model
        )
        write_extension(config, extension)
    return _facts(model, extension, config)


def save_extended(
    model: str,
    method: str,
    out: Path,
    *,
    factor: float,
    original_length: int | None = None,
    options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Extend a model and save it, in the dtype that it was saved in, with its tokenizer and a model card.

    Args:
        model: what `lengthwise.load` takes.
        method: a name of `lengthwise.positions.ROPE_METHODS`.
        out: the folder to write, whole or not at all; it must not exist or be empty.
        factor, original_length, options: as `extend`.

    Returns:
        What was done; plain values.

    Raises:
        UsageError: as `extend`, or there is something at `out`.
        MissingError: there is no such model.
        LengthwiseError: `out` cannot be written.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(
            f"there is something at {out} already",
            expected="a folder that does not exist",
            fix="choose another --out",
        )
    rope_method(method, options)
    loaded = load(model, device="cpu")
    extension = extend(
        loaded.model, method, factor=factor, original_length=original_length, name=model, **(options or {})
    )
    try:
        with quiet_transformers():
            out.parent.mkdir(parents=True, exist_ok=True)
            save_whole(loaded.model, loaded.tokenizer, out)
    except OSError as error:
        raise cannot_write(out, error) from error
    return _facts(model, extension, loaded.config) | {"written_to": str(out)}


def _facts(model: str, extension: Extension, config: Any) -> dict[str, Any]:
    return {
        "model": model,
        "method": extension.method,
        "factor": extension.factor,
        "original_length": extension.original_length,
        "extended_length": extension.extended_length,
        "options": extension.options,
        "rope_parameters": config.get_text_config().rope_parameters,
        "loads_with": loads_with(extension).replace("`", ""),
    }
