"""A statement about two arms of an experiment, as data: the number, the direction, the paper's own values.

A claim is judged by `lengthwise_studies.verdicts`. What would confirm it and what would contradict it follow from its
direction, so no sentence about it is written by hand.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from lengthwise.results import Row

Direction = Literal["lower", "higher", "same", "not higher", "not lower"]
"""The last three have a margin."""


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """One number of every arm. Lengths are multiples of L, the training length, which depends on the scale.

    Args:
        heading: in tables, such as "loss at 2L".
        task: of the rows.
        metric: of the rows.
        times: length / L; None for a number without a length.
        distance: distance / L, for recall.
        depth: of the answer, in per cent of the context; None averages over depths.
        unit: of the number.
    """

    heading: str
    task: str
    metric: str
    times: float | None = None
    distance: float | None = None
    depth: float | None = None
    unit: str = "nats"

    def is_in(self, row: Row, length: int) -> bool:
        """Whether `row` is this number of some arm (and not a bin of it) where L is `length` tokens."""
        return (
            (row.task, row.metric, row.depth) == (self.task, self.metric, self.depth)
            and row.position is None
            and row.context_other is None
            and row.bucket is None
            and (self.times is None or row.length == round(self.times * length))
            and row.distance == (None if self.distance is None else round(self.distance * length))
        )


@dataclass(frozen=True, kw_only=True)
class PairedClaim:
    """One statement about two arms of an experiment, a paper's or our own, without a rule of its own.

    The paired differences of its `quantity` decide on it, by the one rule of `verdicts` (seeds, documents,
    Holm's correction over the table). A statement about anything else is a `skeleton.Claim`.

    Args:
        place: the table or the answer of the rebuttal that makes it.
        source: section, page and line of the paper's text; None for a claim of our own.
        says: the statement, in short.
        quantity: what is compared.
        arm: the arm that the statement is about.
        against: the arm that it is compared with.
        direction: what the statement says of the arm's number against the other's.
        margin: in the quantity's unit. For "same": differences up to this are the same. For "not higher" and "not
            lower": how much higher or lower is still allowed.
        paper: the paper's values of both arms, in the unit of `paper_metric`; None where it prints none.
        paper_metric: the paper's number.
        steps: training steps after which it is compared, in the paper's count; None: at the end.
    """

    place: str
    source: str | None
    says: str
    quantity: Quantity
    arm: str
    against: str
    direction: Direction
    margin: float | None = None
    paper: tuple[float, float] | None = None
    paper_metric: Literal["perplexity", "LongBench-E", "accuracy"] | None = None
    steps: int | None = None

    def __post_init__(self) -> None:
        assert (self.margin is None) == (self.direction in ("lower", "higher")), self.says
        assert self.margin is None or self.margin > 0, self.says

    @property
    def difference(self) -> str:
        """The tested difference in words."""
        after = "" if self.steps is None else f" after {self.steps} of the paper's steps"
        return f"{self.quantity.heading}, {self.arm} minus {self.against}{after}"

    @property
    def confirms(self) -> str:
        """What would confirm the claim."""
        if self.direction == "same":
            return f"within ±{self.margin:g} {self.quantity.unit} beyond noise"
        return f"{'below' if self.below else 'above'} {self._bound} beyond noise"

    @property
    def contradicts(self) -> str:
        """What would contradict the claim."""
        if self.direction == "same":
            return f"outside ±{self.margin:g} {self.quantity.unit} beyond noise"
        return f"{'above' if self.below else 'below'} {self._bound} beyond noise"

    @property
    def below(self) -> bool:
        """Whether a difference below `bound` confirms the claim; not for "same"."""
        return self.direction in ("lower", "not higher")

    @property
    def bound(self) -> float:
        """The difference that separates what confirms the claim from what contradicts it; not for "same"."""
        margin = self.margin or 0.0
        return margin if self.below else -margin

    @property
    def _bound(self) -> str:
        return f"{self.bound:+g} {self.quantity.unit}" if self.bound else "0"

    @property
    def paper_difference(self) -> float | None:
        """The paper's difference: of logarithms for perplexity (nats), of shares for a score of 0 to 100."""
        if self.paper is None:
            return None
        arm, against = self.paper
        if self.paper_metric == "perplexity":
            return math.log(arm / against)
        return (arm - against) / 100

    @property
    def paper_text(self) -> str:
        """The paper's values in words."""
        if self.paper is None:
            return "no number in the text"
        assert self.paper_difference is not None
        arm, against = self.paper
        return f"{self.paper_metric} {arm:g} against {against:g} ({self.paper_difference:+.3f})"
