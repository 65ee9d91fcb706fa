"""Nested settings as a table of two columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lengthwise.report.tables import Table


def settings_table(settings: Mapping[str, Any], *, caption: str = "") -> Table:
    """One line for each setting; nested keys are joined by dots, lists by commas."""
    return Table(columns=("setting", "value"), rows=_flat(settings), caption=caption)


def _flat(settings: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for key, value in settings.items():
        if isinstance(value, Mapping):
            rows += _flat(value, f"{prefix}{key}.")
        elif isinstance(value, (list, tuple)):
            rows.append((f"{prefix}{key}", ", ".join(map(str, value))))
        else:
            rows.append((f"{prefix}{key}", "none" if value is None else str(value)))
    return rows
