"""Context extension of transformers models: applied, recorded in the configuration, saved and loaded again."""

from __future__ import annotations

from lengthwise.models.extension.clex_model import clex_modules, fixed_time
from lengthwise.models.extension.extended_config import plan_extension, write_extension
from lengthwise.models.extension.extending import (
    extend,
    extend_as_recorded,
    restore_extension,
)
from lengthwise.models.extension.extension_record import Extension, read_extension, write_extension_files

__all__ = [
    "Extension",
    "clex_modules",
    "extend",
    "extend_as_recorded",
    "fixed_time",
    "plan_extension",
    "read_extension",
    "restore_extension",
    "write_extension",
    "write_extension_files",
]
