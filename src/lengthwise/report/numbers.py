"""Numbers as text: as many digits as the interval justifies."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % interval, where there is one.

    Args:
        value: the number; None where it is undefined.
        low: lower end of the interval.
        high: upper end of the interval.
        signed: write a plus sign too (for differences).
        at_least: the value is a lower bound.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    signed: bool = False
    at_least: bool = False

    @property
    def value_text(self) -> str:
        """The value alone: two significant digits of the half-width decide its decimals."""
        if self.value is None:
            return "n/a"
        bound = "at least " if self.at_least else ""
        return bound + _fixed(self.value, self._decimals(), signed=self.signed)

    @property
    def interval_text(self) -> str:
        """The interval as `[low, high]`, or nothing."""
        if self.value is None or self.low is None or self.high is None:
            return ""
        decimals = self._decimals()
        low, high = (_fixed(end, decimals, signed=self.signed) for end in (self.low, self.high))
        return f"[{low}, {high}]"

    @property
    def text(self) -> str:
        """Value and interval in one line: `6.897 [6.812, 6.983]`."""
        return f"{self.value_text} {self.interval_text}".rstrip()

    def _decimals(self) -> int:
        assert self.value is not None
        if self.low is not None and self.high is not None and self.high > self.low:
            return _decimals_for((self.high - self.low) / 2, digits=2)
        return _decimals_for(abs(self.value), digits=4)


def _decimals_for(size: float, *, digits: int) -> int:
    """Decimals that show `digits` significant digits of a number of this size, within 0 to 6."""
    if size == 0:
        return 0
    # The last bit of 0.1 = (3.3 - 3.1) / 2 must not decide.
    exponent = math.floor(math.log10(size) + 1e-9)
    return min(6, max(0, digits - 1 - exponent))


def _fixed(value: float, decimals: int, *, signed: bool) -> str:
    text = f"{value:+.{decimals}f}" if signed else f"{value:.{decimals}f}"
    # Minus nothing is nothing.
    return text.replace("-", "+" if signed else "") if float(text) == 0 else text
