"""What was done to a model's positions: the record in its configuration, beside an adapter and in the model card."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field
from torch import Tensor, nn

from lengthwise.files import atomic_write_json, atomic_write_text, read_json
from lengthwise.models.hidden import is_peft_model, unwrap
from lengthwise.models.resolve import ResolvedModel, looks_like_path
from lengthwise.positions import ROPE_METHODS, rope_method
from lengthwise.positions.rope.plain_rope import RopeMethod
from lengthwise.settings import Finite, Settings, Whole, checked

RECORD = "lengthwise_extension"
"""Name of the record: a key in config.json; beside an adapter, which has no config.json, the stem of a file."""
_HEADING = "## Context extension"


class Extension(Settings):
    """One extension of one model. Its values are plain, so a JSON round trip gives an equal object."""

    method: str
    """A name of ROPE_METHODS."""
    factor: Finite
    """s: the context becomes this many times longer."""
    original_length: Whole
    """L0: tokens of context that the model was trained for."""
    theta: Finite
    """The model's own base."""
    head_dim: Whole
    """Rotated dimensions per head."""
    options: dict[str, Any] = Field(default_factory=dict)
    """All options of the method."""
    layer_type: str | None = None
    """The layers that are extended, in a model with rotary positions by type of layer; None is all layers."""

    @property
    def extended_length(self) -> int:
        """s * L0 in whole tokens."""
        return int(self.factor * self.original_length)

    @property
    def rope_method(self) -> RopeMethod:
        """The method with its options."""
        return rope_method(self.method, self.options)

    @property
    def custom_rope_type(self) -> str:
        """The rope type for a method that transformers does not have."""
        return f"lengthwise_{self.method}"

    def inverse_frequencies(self, length: int | None = None) -> tuple[Tensor, float]:
        """`RopeMethod.inverse_frequencies` of this model."""
        return self.rope_method.inverse_frequencies(*self._rope, length=length)

    def to_hf_config(self) -> dict[str, Any] | None:
        """`RopeMethod.to_hf_config` of this model."""
        return self.rope_method.to_hf_config(*self._rope)

    def to_dict(self) -> dict[str, Any]:
        """The record, as `from_dict` reads it; without a layer type if all layers are extended."""
        return {key: value for key, value in dict(self).items() if (key, value) != ("layer_type", None)}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any], *, source: str) -> Extension:
        """The extension that `to_dict` wrote.

        Raises:
            UsageError: a value is missing, unknown or of the wrong type.
        """
        return checked(cls, value, source=source)

    @property
    def _rope(self) -> tuple[float, int, int, float]:
        return self.theta, self.head_dim, self.original_length, self.factor


def read_extension(config: Any) -> Extension | None:
    """The extension that a model's configuration records; None if it was not extended by lengthwise."""
    value = getattr(config.get_text_config(), RECORD, None)
    return None if value is None else Extension.from_dict(value, source=f"{RECORD} in the configuration")


def write_extension_files(model: nn.Module, folder: Path) -> None:
    """Write the record for `load` beside a saved adapter, and a section of the model card for people.

    The record of a whole model is in its config.json.
    """
    extension = read_extension(unwrap(model).config)
    if extension is None:
        return
    adapter = is_peft_model(model)
    if adapter:
        atomic_write_json(folder / f"{RECORD}.json", extension.to_dict())
    card = folder / "README.md"
    text = card.read_text(encoding="utf-8") if card.exists() else "---\nlibrary_name: transformers\n---\n"
    if _HEADING not in text:
        atomic_write_text(card, text.rstrip() + "\n\n" + card_section(extension, adapter=adapter))


def card_section(extension: Extension, *, adapter: bool) -> str:
    """The section of the model card on the extension."""
    settings = ", ".join(f"{key} = {json.dumps(value)}" for key, value in extension.options.items())
    how = ROPE_METHODS[extension.method].what
    lines = [
        _HEADING,
        "",
        f"Extended by lengthwise: `{extension.method}` ({how}).",
        "",
        f"- from {extension.original_length} tokens to {extension.extended_length} (factor {extension.factor:g})",
        *([f"- layers: those of type `{extension.layer_type}` alone"] if extension.layer_type else []),
        f"- base of the model before: {extension.theta:g}",
        f"- options: {settings or 'none'}",
        f"- loads with: {loads_with(extension, adapter=adapter)}",
    ]
    if ROPE_METHODS[extension.method].learned and extension.factor > 1:
        lines.append(
            "- the weights of the learned frequencies (`rotary_emb.frequencies`) are among the model's"
        )
    return "\n".join(lines) + "\n"


def loads_with(extension: Extension, *, adapter: bool = False) -> str:
    """What loads a model with this extension, in words."""
    if adapter:
        return "`lengthwise.load(BASE, adapter=FOLDER)`, which extends the base model first"
    if extension.to_hf_config() is None:
        return "`lengthwise.load` (transformers does not have its rope type)"
    return "`AutoModelForCausalLM.from_pretrained` of transformers 5, and `lengthwise.load`"


def read_tensors(resolved: ResolvedModel, names: list[str]) -> Mapping[str, Tensor]:
    """The tensors of these names that a safetensors checkpoint has."""
    from safetensors import safe_open

    index = _file(resolved.location, "model.safetensors.index.json", **resolved.where)
    if index is None:
        homes = dict.fromkeys(names, "model.safetensors")
    else:
        weight_map = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        homes = {name: weight_map[name] for name in names if name in weight_map}
    found: dict[str, Tensor] = {}
    for home in sorted(set(homes.values())):
        file = _file(resolved.location, home, **resolved.where)
        if file is None:
            continue
        with safe_open(file, framework="pt") as tensors:
            held = set(tensors.keys())
            found |= {
                name: tensors.get_tensor(name) for name in homes if homes[name] == home and name in held
            }
    return found


def adapter_extension(adapter: str) -> Extension | None:
    """The extension that an adapter was trained with, from the file of `write_extension_files`; None without one.

    Raises:
        UsageError: the file is damaged.
    """
    file = _file(adapter, f"{RECORD}.json")
    if file is None:
        return None
    return Extension.from_dict(read_json(file, expected="the record of an extension"), source=str(file))


def _file(location: str, name: str, **where: Any) -> Path | None:
    folder = Path(location).expanduser()
    if folder.exists():
        return folder / name if (folder / name).is_file() else None
    if looks_like_path(location):
        return None
    from transformers.utils.hub import cached_file

    found = cached_file(
        location,
        name,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_gated_repo=False,
        _raise_exceptions_for_connection_errors=False,
        **where,
    )
    return None if found is None else Path(found)
