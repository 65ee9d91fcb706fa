"""What a report shows of a measurement, as plain facts. Imports no torch and no report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Display:
    """How tables and pages present the rows of one task."""

    title: str
    question: str = ""
    """Default: the first line of the measurement's docstring."""
    metrics: Mapping[str, str] = field(default_factory=dict)
    """The metrics in the order to show them, each with what it is."""
    better: Mapping[str, str] = field(default_factory=dict)
    """The metrics whose paired differences are drawn, each with the better direction: lower or higher."""
