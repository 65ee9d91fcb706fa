"""Frequencies that rotary embeddings keep from one pass to the next, where they follow the length of the input.

transformers (5.23: `dynamic_rope_update`) keeps those of the longest text so far, dynamic NTK's even where the next
text is exactly as long as the original length. A number would depend on what was read before.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from lengthwise.checkpoints.hidden import unwrap

Kept = list[dict[str, Any]]
"""By rotary embedding: its frequencies, and up to which length they hold."""


class Frequencies:
    """The rotary embeddings of a model whose frequencies follow the length of the input; most models have none."""

    def __init__(self, model: nn.Module) -> None:
        self._modules = [module for module in unwrap(model).modules() if _follows(module)]

    @property
    def fresh(self) -> Kept:
        """Before the first text."""
        return [_as_built(module) for module in self._modules]

    @property
    def kept(self) -> Kept:
        """As the last pass left them."""
        return [
            {name: _copied(getattr(module, name)) for name in _as_built(module)} for module in self._modules
        ]

    def set(self, kept: Kept) -> None:
        """Let the next pass begin with these."""
        for module, values in zip(self._modules, kept, strict=True):
            for name, value in values.items():
                setattr(module, name, _copied(value))


def _follows(module: Any) -> bool:
    kinds = getattr(module, "rope_type", None)
    kinds = kinds.values() if isinstance(kinds, dict) else [kinds]
    # The substring is transformers' own test.
    return any(isinstance(kind, str) and ("dynamic" in kind or kind == "longrope") for kind in kinds)


def _as_built(module: Any) -> dict[str, Any]:
    """The attributes that `dynamic_rope_update` changes, with the values that it begins with."""
    found: dict[str, Any] = {}
    for name, value in [*module.named_buffers(recurse=False), *vars(module).items()]:
        if not name.endswith("original_inv_freq") or not isinstance(value, Tensor):
            continue
        prefix = name.removesuffix("original_inv_freq")
        found[f"{prefix}inv_freq"] = _copied(value)
        if hasattr(module, "original_max_seq_len"):
            found[f"{prefix}max_seq_len_cached"] = module.original_max_seq_len
    return found


def _copied(value: Any) -> Any:
    # LongRoPE writes into its tensor.
    return value.clone() if isinstance(value, Tensor) else value
