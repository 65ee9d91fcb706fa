"""Context extension of transformers models: applied, recorded in the configuration, saved and loaded again."""

from __future__ import annotations

from lengthwise.models.extension.apply import extend, restore_extension
from lengthwise.models.extension.clex import clex_modules, fixed_time
from lengthwise.models.extension.configure import plan_extension, write_extension
from lengthwise.models.extension.record import Extension, read_extension

__all__ = [
    "Extension",
    "clex_modules",
    "extend",
    "fixed_time",
    "plan_extension",
    "read_extension",
    "restore_extension",
    "write_extension",
]
