"""What claims are measured with: the paper's effect of the term, and the margin of each claim that has one.

These two tables are our only choices. A margin is below the effect that the paper has in the same table, or it is the
size of what the paper itself calls slight, or none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


def change(one: float, other: float) -> float:
    """The difference of the losses of two perplexities."""
    return math.log(one / other)


@dataclass(frozen=True)
class Effect:
    """What the paper has of the term at weight 0.1: in nats, as a share of LongBench-E, and where."""

    nats: float
    share: float
    where: str

    def of(self, unit: str) -> float:
        """In the unit of a quantity."""
        return {"nats": self.nats, "share": self.share}[unit]


@dataclass(frozen=True)
class Margin:
    """How large a difference is still what a claim says; None is the difference that the claim itself prints."""

    value: float | None
    because: str


_AT_T = Effect(change(5.88, 6.12), 0.019, "Table 4")
_AT_2T = Effect(change(5.77, 5.82), 0.024, "the rebuttal of Table 3")
EFFECTS: Mapping[str, Effect] = {
    "Table 2": _AT_T,
    "Table 4": _AT_T,
    "Table 9": _AT_T,
    "Table 3": _AT_2T,
    "Table 5": _AT_2T,
    "Table 10": _AT_2T,
    "Table 11": _AT_2T,
    "Rebuttal, ranges": _AT_2T,
    "Sec. 4.2 and App. D": _AT_2T,
}
"""Place of a claim -> the effect of the term there. A claim that the term helps has this size if it prints none."""

_SHARE = "between the 2 points that the paper calls comparable and the 5 that it counts as a gain"
MARGINS: Mapping[str, Margin] = {
    "Table 2": Margin(-_AT_T.nats / 4, "a quarter of the term's effect in Table 4"),
    "Table 9": Margin(-_AT_T.nats / 4, "a quarter of the term's effect in Table 4"),
    "Table 5": Margin(-_AT_2T.nats / 4, "a quarter of the term's effect in this table"),
    "Sec. 4.2 and App. D": Margin(-_AT_2T.nats / 4, "a quarter of the term's effect with LongQLoRA"),
    "Table 7": Margin(0.035, _SHARE),
    "Where it can help": Margin(0.035, _SHARE),
    "Rebuttal, 50 steps": Margin(None, 'the difference that the rebuttal calls "slight"'),
    "Rebuttal, within T": Margin(change(5.81, 5.74), "what the rebuttal has at T and calls no degradation"),
}
"""Place of a claim that two arms do the same, or that one is no worse -> its margin."""

_OTHER_TEXTS = {"code": "PG19 is books; the second text at this scale is Python source"}
"""A text that is no books -> why it says nothing about a corpus of books."""


def no_second_books(size: Any) -> str:
    """Why claims about PG19 are not judged at a size; "" where its second text is books."""
    return _OTHER_TEXTS.get(size.text_of("pg19"), "")
