"""How far a run of `limit` found predictions sound and context used, and whether that has an end."""

from __future__ import annotations

from typing import NamedTuple

from lengthwise.results import Results, Row

REACHES = {"sound_up_to": "sound_again", "used_up_to": "used_again"}
"""Metric -> the metric of its stretch behind a gap."""


class Reach(NamedTuple):
    """One of the two limits."""

    row: Row | None
    """None where there is no number."""
    end: int
    """Where measuring ended."""
    open: bool
    """Whether measuring ended before the interval did."""
    again: Row | None
    """The stretch behind a gap where it is so once more."""

    @property
    def interval(self) -> str:
        """`[low, high]`, or `[low, open]`; empty where there is none."""
        if self.row is None or self.row.ci_low is None or self.row.ci_high is None:
            return ""
        return f"[{self.row.ci_low:,.0f}, {'open' if self.open else f'{self.row.ci_high:,.0f}'}]"

    @property
    def text(self) -> str:
        """The number of tokens with its interval."""
        if self.row is None:
            return ""
        least = "at least " if self.row.at_least else ""
        return " ".join(filter(None, (f"{least}{self.row.value:,.0f}", self.interval, "tokens")))


def reaches(run: Results) -> dict[str, Reach]:
    """Metric -> how far it is so."""
    rows = {row.metric: row for row in run.rows if row.task == "limit" and row.value is not None}
    length, table = (
        max(row.length or 0 for row in run.rows),
        run.provenance.get("model", {}).get("max_positions"),
    )
    # Where a table of positions ends there is no more to find.
    whole = table is not None and length > table - 4 * bin_of(run)
    found = {}
    for metric, again in REACHES.items():
        row, end = rows.get(metric), length if metric == "sound_up_to" else length - passage_of(run)
        high = None if row is None else row.ci_high
        unended = row is not None and (bool(row.at_least) or (high is not None and high >= end and not whole))
        found[metric] = Reach(row, end, unended, rows.get(again))
    return found


def bin_of(run: Results) -> int:
    """Tokens in a bin of the excess, an eighth of the reference; no interval is narrower."""
    return int(run.provenance.get("measurement", {}).get("reference") or 0) // 8


def passage_of(run: Results) -> int:
    """Tokens of a repeated passage."""
    return int(run.config.get("passage", 64))


def stretch(row: Row) -> str:
    """Where a stretch begins and ends."""
    if row.position == row.position_end:
        return f"{row.position:,}"
    return f"from {row.position:,} to {row.position_end:,}"
