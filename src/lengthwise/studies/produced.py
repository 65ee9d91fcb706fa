"""What a study leaves behind. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lengthwise.report.tables import Table


@dataclass(frozen=True)
class Produced:
    """What a study leaves: its page, and the tables to print."""

    page: Path
    tables: list[Table]
