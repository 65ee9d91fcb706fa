"""The numbers of an arm, and what a form has to do in them: answer more far away, at a small cost, and lose nothing.

Lengths and distances are tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lengthwise_studies.arms import Arm, Measures
from lengthwise_studies.claims import Claim
from lengthwise_studies.paired_claims import Direction, Paired, Quantity

_ANSWERS = (
    ("accuracy", "accuracy", "share"),
    ("gold", "gold_probability", "share"),
    ("gold loss", "gold_loss", "nats"),
)
"""What is measured of answers: heading, metric and unit."""


def numbers(measures: Measures) -> list[Quantity]:
    """Those that these measures can give."""
    limits = ("sound", "used")
    return [
        *(
            Quantity(f"{task_prefix(task, measures)}{name} at {length:,}", task, metric, length, unit=unit)
            for task in tasks_of(measures)
            for length in _asked(measures)["lengths"]
            for name, metric, unit in _ANSWERS
        ),
        *(
            Quantity(f"loss at {length:,}", "perplexity", "loss", length)
            for length in measures["perplexity"]["lengths"]
        ),
        Quantity("loss of key tokens", "longppl", "loss_key"),
        *(Quantity(f"{kind} up to", "limit", f"{kind}_up_to", unit="tokens") for kind in limits),
        *(
            Quantity(f"recall at {distance}", "recall", "benefit", distance=distance)
            for distance in measures.get("recall", {}).get("distances", ())
        ),
    ]


def at_depth(number: Quantity, depth: float) -> Quantity:
    """The number at one depth of the answer, in per cent of the prompt."""
    return replace(number, heading=f"{number.heading}, depth {depth:g} %", depth=depth)


def tasks_of(measures: Measures) -> list[str]:
    """The tasks whose questions were asked; none where no questions were."""
    return list(_asked(measures).get("tasks", ()))


def depths_of(measures: Measures) -> list[float]:
    """The depths of their answers."""
    return list(_asked(measures).get("depths", ()))


def task_prefix(task: str, measures: Measures) -> str:
    """What comes before a number of this task, where several were asked."""
    tasks = tasks_of(measures)
    return f"{task}: " if task in tasks and len(tasks) > 1 else ""


def _asked(measures: Measures) -> Mapping[str, Any]:
    return measures.get("eval", {})


@dataclass(frozen=True)
class Demand:
    """What a form has to do in one number.

    Args:
        place, says: of the claim.
        metric: of the number.
        direction, margin: of the paired test.
        at: which of the lengths at which it was measured; None: all.
        deepest: whether only the deepest answers count.
    """

    place: str
    says: str
    metric: str
    direction: Direction
    at: Callable[[Sequence[float]], float] | None = None
    margin: float | None = None
    deepest: bool = False

    def claims(self, form: str, control: str, measures: Measures) -> list[Claim[Paired]]:
        """At the lengths and of the tasks that were measured; the shortest length is one of several."""
        found = [one for one in numbers(measures) if one.metric == self.metric]
        lengths = sorted({one.times for one in found if one.times is not None})
        if self.at is not None:
            lengths = [self.at(lengths)] if self.at is max or len(lengths) > 1 else []
        deepest = max(depths_of(measures)) if self.deepest else None
        return [
            Claim(
                place=self.place,
                says=task_prefix(one.task, measures) + self.says,
                test=Paired(
                    quantity=one if deepest is None else at_depth(one, deepest),
                    arm=form,
                    against=control,
                    direction=self.direction,
                    margin=self.margin,
                ),
            )
            for one in found
            if one.times is None or one.times in lengths
        ]


Comparison = tuple[Arm, Arm, tuple[Demand, ...]]
"""A form, the arm that it is compared with, and what it has to do."""
_FEW = "it loses at most 5 points"
MORE = Demand("far", "it answers more", "accuracy", "higher", max)
COST = Demand("cost", "it costs at most 0.01 nats", "loss", "not higher", min, 0.01)
NEAR = Demand("near", _FEW, "accuracy", "not lower", min, 0.05)
MIDDLE = replace(NEAR, place="middle", says=f"{_FEW} in the middle", at=max, deepest=True)
BEYOND_SKIPS = replace(MORE, place="beyond skips")
GOLD = replace(MORE, place="gold", says="it makes the right answer more probable", metric="gold_probability")
COST_ANYWHERE = replace(COST, at=None)
KEY_TOKENS = Demand("key tokens", "what far context makes likely is likelier", "loss_key", "lower")
USED = Demand("used", "it uses more context", "used_up_to", "higher")
ANSWERS = (MORE, COST, NEAR)
"""What every form has to do with questions."""
LONG_TEXTS = (COST_ANYWHERE, KEY_TOKENS, USED)
"""And with long texts, where no question is asked."""
