"""Files of a saved model or adapter that transformers does not read, in a folder or on the hub."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from lengthwise.models.extension.record import RECORD, Extension
from lengthwise.models.extension.saving import read_extension_file
from lengthwise.models.resolve import ResolvedModel, looks_like_path


def read_tensors(resolved: ResolvedModel, names: list[str]) -> Mapping[str, Tensor]:
    """The tensors of these names in a checkpoint of safetensors; those that it has."""
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
    """The extension that an adapter was trained with; None if there was none."""
    file = _file(adapter, f"{RECORD}.json")
    return None if file is None else read_extension_file(file)


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
