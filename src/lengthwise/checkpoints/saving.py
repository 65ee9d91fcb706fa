"""Saved models: folders written whole or not at all, extended models."""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from torch import nn

from lengthwise.checkpoints.embedded_models import EMBEDDED, made_folder
from lengthwise.checkpoints.extending import extend
from lengthwise.checkpoints.extension import Extension, plan_extension, read_extension, write_extension
from lengthwise.checkpoints.faults import remarks
from lengthwise.checkpoints.hidden import is_peft_model, unwrap
from lengthwise.checkpoints.loading import load_weights
from lengthwise.checkpoints.position_limits import RECORD
from lengthwise.checkpoints.resolve import quiet_transformers, read_config, resolve
from lengthwise.errors import LengthwiseError, UsageError, reason
from lengthwise.files import atomic_write_json, atomic_write_text, named_path, read_json, share, writing
from lengthwise.positions import ROPE_METHODS, rope_method
from lengthwise.settings import path_text

logger = logging.getLogger(__name__)

_HEADING = "## Context extension"
_CARD = "README.md"
BESIDE = (
    *("LICENSE", "LICENSE.md", "LICENSE.txt", "NOTICE", "NOTICE.txt", "USE_POLICY.md"),
    *("preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json"),
)
"""Files that a model made from another keeps: its terms, and what prepares images and sounds for its towers."""


def save_whole(
    model: Any,
    tokenizer: Any,
    path: Path,
    *,
    base: str | None = None,
    kept: Iterable[str] = BESIDE,
    weights: dict[str, Any] | None = None,
    check: Callable[[Path], None] | None = None,
) -> None:
    """Save model (or adapter) and tokenizer so that `path`, missing or empty before, holds all of it or nothing.

    `base` is what the model was made from: a whole model keeps its files of the names `kept`. `weights` are those of
    a model that does not hold them itself, because it is sharded. `check` is given the folder before it has its name,
    and raises if it should not get it.

    An extended model's card says so; an extended base model is recorded beside its adapter, so that
    `load(base, adapter=path)` extends it again.

    Raises:
        LengthwiseError: `path` cannot be written, or is not empty.
    """
    with writing(path), quiet_transformers():
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part"))
        try:
            model.save_pretrained(unfinished, **({} if weights is None else {"state_dict": weights}))
            tokenizer.save_pretrained(unfinished)
            if base is not None and not is_peft_model(model):
                _keep(base, kept, unfinished)
            write_extension_files(model, unfinished)
            _write_older_rope(unfinished / "config.json")
            if check is not None:
                check(unfinished)
            share(unfinished)
            os.replace(unfinished, path)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)


def _keep(base: str, names: Iterable[str], folder: Path) -> None:
    """Copy files of a model that none of its parts writes. What cannot be read now is said, and loses nothing."""
    found: dict[str, bytes] = {}
    try:
        resolved = resolve(base)
        for name in names:
            if (file := resolved.file(name)) is not None and not (folder / name).exists():
                found[name] = file.read_bytes()
    except (LengthwiseError, OSError) as error:
        logger.warning(
            "not all files beside the weights of %s are kept, as its licence: %s", base, reason(error)
        )
    for name, content in found.items():
        (folder / name).write_bytes(content)


def _write_older_rope(file: Path) -> None:
    """Say rope in the older keys too: programs that do not know `rope_parameters` take base 10,000 and no scaling.

    Rope by type of layer had other keys in each model, and is left alone.
    """
    whole = read_json(file, expected="settings") if file.exists() else {}
    # Of a model with towers, its language model's.
    settings = whole.get("text_config") or whole
    rope = settings.get("rope_parameters") or {}
    # transformers 5.0 writes an empty rope_theta beside the types.
    if rope.get("rope_theta") is None:
        return
    top = {key: rope[key] for key in ("rope_theta", "partial_rotary_factor") if key in rope}
    scaling = {key: value for key, value in rope.items() if key not in top}
    settings |= top | ({} if {**scaling} == {"rope_type": "default"} else {"rope_scaling": scaling})
    atomic_write_json(file, whole)


def write_extension_files(model: nn.Module, folder: Path) -> None:
    """Write the record for `load` beside a saved adapter, and a section of the model card for people.

    The record of a whole model is in its config.json. Limits of the former context become those of the new one.
    """
    extension = read_extension(unwrap(model).config)
    if extension is None:
        return
    _lengthen(extension, folder)
    loads_with = _loads_with(extension)
    if is_peft_model(model):
        atomic_write_json(folder / f"{RECORD}.json", extension.to_dict())
        loads_with = "`lengthwise.load(BASE, adapter=FOLDER)`, which extends the base model first"
    card = folder / _CARD
    text = card.read_text(encoding="utf-8") if card.exists() else "---\nlibrary_name: transformers\n---\n"
    if _HEADING in text:
        return
    method, factor, layers = ROPE_METHODS[extension.method], extension.factor, extension.layer_type
    had = f", of which the model had {extension.published_factor:g}" if extension.published_factor > 1 else ""
    options = ", ".join(f"{key} = {json.dumps(value)}" for key, value in extension.options.items())
    lines = [
        text.rstrip() + f"\n\n{_HEADING}\n",
        f"Extended by lengthwise: `{extension.method}` ({method.what}).\n",
        f"- from {extension.original_length} tokens to {extension.extended_length} (factor {factor:g}{had})",
        *([f"- layers: those of type `{layers}` alone"] if layers else []),
        f"- base of the model before: {extension.theta:g}",
        f"- options: {options or 'none'}",
        f"- loads with: {loads_with}",
    ]
    if method.learned and factor > 1:
        lines += ["- the weights of the learned frequencies (`rotary_emb.frequencies`) are among the model's"]
    atomic_write_text(card, "\n".join(lines) + "\n")


def _lengthen(extension: Extension, folder: Path) -> None:
    """Raise the lengths at which a tokenizer cuts, servers end and `generate` stops, if they were the context's."""
    for name, key in (
        ("tokenizer_config.json", "model_max_length"),
        ("generation_config.json", "max_length"),
    ):
        settings = read_json(folder / name, expected="settings") if (folder / name).exists() else {}
        if extension.original_length <= (settings.get(key) or 0) < extension.extended_length:
            atomic_write_json(folder / name, settings | {key: extension.extended_length})


def new_folder(out: Path | str) -> Path:
    """The path of a folder to write, which is missing or empty; UsageError if it is not."""
    out = named_path(out, what="--out")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(
            f"{out} exists already", expected="a folder that does not exist", fix="choose another --out"
        )
    return out


def check_whole_weights(config: Any, name: str) -> None:
    """Raise UsageError if a checkpoint's weights are quantized: few formats of them can be written again."""
    quantized = getattr(config, "quantization_config", None)
    if quantized is not None:
        raise UsageError(
            f"the weights of {name} are quantized ({dict(quantized).get('quant_method', 'in a way of its own')})",
            expected="a checkpoint that is not",
            fix="use the model that it was made from, and quantize the result",
        )


def plan_extended(model: str | Path, method: str, *, factor: float, **settings: Any) -> dict[str, Any]:
    """What `save_extended` would write, from the model's configuration alone."""
    model = path_text(model)
    rope_method(method, settings.get("options"))
    if model in EMBEDDED and made_folder(model) is None:
        basis = "the model has not been built yet, so its configuration is not known"
        return {"model": model, "method": method, "factor": factor, "basis": basis}
    config = read_config(model)
    check_whole_weights(config, model)
    with quiet_transformers():
        extension = plan_extension(config, method, factor=factor, name=model, **settings)
        write_extension(config, extension)
    return _facts(model, extension, config)


def save_extended(
    model: str | Path,
    method: str,
    out: Path | str,
    *,
    factor: float,
    original_length: int | None = None,
    options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Extend a model and save it in its own dtype, with its tokenizer and a model card.

    `out` is written whole or not at all; it must not exist or be empty. The other arguments are those of `load` and
    `extend`. Returns what was done as plain values.

    Raises:
        UsageError: as `extend`, or there is something at `out`, or the weights are quantized.
        MissingError: there is no such model.
        LengthwiseError: `out` cannot be written.
    """
    out, model = new_folder(out), path_text(model)
    rope_method(method, options)
    check_whole_weights(read_config(model), model)
    weights, tokenizer, source = load_weights(model, device="cpu")
    # They stay in what is written.
    for each in remarks(weights, tokenizer, source=source):
        logger.warning("%s: %s", model, each)
    extension = extend(
        weights, method, factor=factor, original_length=original_length, name=model, **(options or {})
    )
    save_whole(weights, tokenizer, out, base=model, kept=(_CARD, *BESIDE))
    return _facts(model, extension, weights.config) | {"written_to": str(out)}


def _loads_with(extension: Extension) -> str:
    if extension.to_hf_config() is None:
        return "`lengthwise.load` (transformers does not have its rope type)"
    newest = " of transformers 5" if extension.layer_type is not None else ""
    return f"`AutoModelForCausalLM.from_pretrained`{newest}, and `lengthwise.load`"


def _facts(model: str, extension: Extension, config: Any) -> dict[str, Any]:
    return {
        "model": model,
        "method": extension.method,
        "factor": extension.factor,
        **({"published_factor": extension.published_factor} if extension.published_factor > 1 else {}),
        "original_length": extension.original_length,
        "extended_length": extension.extended_length,
        "options": extension.options,
        "rope_parameters": config.get_text_config().rope_parameters,
        "loads_with": _loads_with(extension).replace("`", ""),
    }
