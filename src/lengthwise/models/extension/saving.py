"""What a saved model says of its extension: a record beside an adapter, a section of the model card."""

from __future__ import annotations

import json
from pathlib import Path

from peft import PeftModel
from torch import nn

from lengthwise.errors import UsageError
from lengthwise.files import atomic_write_json, atomic_write_text
from lengthwise.models.extension.record import RECORD, Extension, read_extension
from lengthwise.models.hidden import unwrap
from lengthwise.positions import ROPE_METHODS

_HEADING = "## Context extension"


def write_extension_files(model: nn.Module, folder: Path) -> None:
    """Beside a saved model or adapter: what `load` needs to know, and what a reader does.

    A model's own record is in its config.json; an adapter has none, so it gets a file.
    """
    extension = read_extension(unwrap(model).config)
    if extension is None:
        return
    adapter = isinstance(model, PeftModel)
    if adapter:
        atomic_write_json(folder / f"{RECORD}.json", extension.to_dict())
    card = folder / "README.md"
    text = card.read_text(encoding="utf-8") if card.exists() else "---\nlibrary_name: transformers\n---\n"
    if _HEADING not in text:
        atomic_write_text(card, text.rstrip() + "\n\n" + card_section(extension, adapter=adapter))


def read_extension_file(path: Path) -> Extension:
    """The extension in a file that `write_extension_files` wrote beside an adapter.

    Raises:
        UsageError: the file is damaged.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UsageError(f"{path} is damaged: {error}", fix="copy the adapter again") from error
    return Extension.from_dict(value, source=str(path))


def card_section(extension: Extension, *, adapter: bool) -> str:
    """What was done to the positions, for the model card."""
    settings = ", ".join(f"{key} = {json.dumps(value)}" for key, value in extension.options.items())
    how = ROPE_METHODS[extension.method].what
    lines = [
        _HEADING,
        "",
        f"Extended by lengthwise: `{extension.method}` ({how}).",
        "",
        f"- from {extension.original_length} tokens to {extension.extended_length} (factor {extension.factor:g})",
        f"- base of the model before: {extension.theta:g}",
        f"- options: {settings or 'none'}",
        f"- loads with: {loads_with(extension, adapter=adapter)}",
    ]
    if extension.method == "clex" and extension.factor > 1:
        lines.append(
            "- the weights of the learned frequencies (`rotary_emb.frequencies`) are among the model's"
        )
    return "\n".join(lines) + "\n"


def loads_with(extension: Extension, *, adapter: bool = False) -> str:
    """What can load a model with this extension."""
    if adapter:
        return "`lengthwise.load(BASE, adapter=FOLDER)`, which extends the base model first"
    if extension.to_hf_config() is None:
        return "`lengthwise.load` (its rope type is not one of transformers, which refuses it)"
    return "`AutoModelForCausalLM.from_pretrained` of transformers 5, and `lengthwise.load`"
