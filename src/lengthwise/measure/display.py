"""What a report shows of a measurement, as plain facts. Imports no torch and no report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Display:
    """How tables, pages and the terminal present the rows of one task.

    Figures and answer are named, not imported: `name` is a function of `lengthwise.report.figures` or
    `lengthwise.report.terminal`, `package.module:name` one of any module.
    """

    title: str
    question: str = ""
    metrics: Mapping[str, str] = field(default_factory=dict)
    """The metrics in the order to show them, each with what it is."""
    better: Mapping[str, str] = field(default_factory=dict)
    """The metrics whose paired differences are drawn, each with the better direction: lower or higher."""
    figures: Sequence[str] = ()
    """Functions that take rows and return a `Picture`, or None where there is nothing to draw."""
    answer: str = ""
    """The function that takes rows and settings and returns the lines of the answer in the terminal. Without one the
    terminal shows the table."""
    passages: str = ""
    """The function that takes the samples of a run and returns the `Passage`s of its page."""
