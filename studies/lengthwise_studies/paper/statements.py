"""What a table of the paper says: its settings, and its claims with their source and the paper's numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from lengthwise_studies.arms import Arm
from lengthwise_studies.claims import HELPS, OTHER, Claim
from lengthwise_studies.paired_claims import Direction, Paired, Quantity
from lengthwise_studies.paper.methods import CONTROLLED, PLAIN, SCE, UNTRAINED, Adjustment
from lengthwise_studies.paper.sizes import Size
from lengthwise_studies.paper.yardsticks import EFFECTS, MARGINS, change
from lengthwise_studies.tiny_models import TinyModel

OURS = "Where it can help"
"""The place of statements of our own."""
SOURCES = {
    "Table 2": "Sec. 5.1, Table 2, page 7, lines 324 and 361",
    "Table 3": "Sec. 5.2, Table 3, page 8, lines 378 and 404",
    "Table 4": "Sec. 5.3, Table 4, page 9, line 432",
    "Table 5": "Sec. 5.3, Table 5, page 9, line 457",
    "Table 6": "Sec. 5.4, page 9, line 472",
    "Table 7": "Sec. 5.4, page 9, line 479; rebuttal, answer Q4 to the fourth reviewer",
    "Table 9": "App. E, Table 9, page 20, lines 1026 and 1056",
    "Table 10": "App. E, Table 10, page 21, line 1080",
    "Table 11": "App. G, page 21, line 1124",
    "Sec. 4.2 and App. D": "Sec. 4.2, page 6, line 313; App. D, page 19",
    "Rebuttal, 50 steps": "rebuttal, answer Q2 to the first reviewer",
    "Rebuttal, CREAM": "rebuttal, answers Q3 to the second and Q1 to the third reviewer",
    "Rebuttal, ranges": "rebuttal, answer Q4 to the second reviewer",
    "Rebuttal, depth and alpha": "Sec. 5.4, page 9, line 479; rebuttal, answer Q4 to the fourth reviewer",
    "Rebuttal, truncation": "rebuttal, extra question 1 of the first reviewer",
    OURS: "in neither paper",
    "Rebuttal, within T": "rebuttal, extra question 2 of the first reviewer",
}
"""Place of a claim -> where in the paper's text it is."""
_PRINTED = {"perplexity": "perplexity", "longbench_e": "LongBench-E", "babilong_qa1": "accuracy"}
"""Task of a quantity -> the number that the paper prints of it."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One block of a table: a way to adjust the model, one of the paper's corpora, and what is trained on it.

    In a table of several settings, `name` is before the names of its arms. `start` changes the model that is
    pretrained. Arms are of any size: the untrained one gets the adjustment's method, a change may have `{L/4}` and
    other shares of the window, and the setting of a measure may be "T". `asked` has arms that are trained only where
    a task is asked, each with the task.
    """

    adjustment: Adjustment
    name: str = ""
    corpus: str = "books"
    arms: tuple[Arm, ...] = CONTROLLED
    start: tuple[tuple[str, Any], ...] = ()
    asked: Mapping[str, str] = field(default_factory=dict)

    def arm(self, name: str) -> str:
        """What an arm of this setting, or a statement about it, is called in the table."""
        return f"{self.name}: {name}" if self.name else name

    def at(self, size: Size) -> list[Arm]:
        """The arms at a size, before they are named after the setting."""
        window = self.adjustment.window(size)
        shares = {"L/20": max(1, window // 20), "L/4": window // 4, "L/2": window // 2 - 1, "L": window - 1}
        found: list[Arm] = []
        for arm in self.arms:
            if self.asked.get(arm.name, "") not in ("", *size.asked):
                continue
            if arm.name == UNTRAINED and self.adjustment.method is not None:
                arm = replace(arm, method=self.adjustment.method, factor=self.adjustment.factor(size))
            if arm.changes is not None:
                arm = replace(arm, changes=tuple(each.format_map(shares) for each in arm.changes))
            found.append(arm)
        return found

    def own_start(self, size: Size) -> TinyModel | None:
        """What is pretrained where that is not the size's own model."""
        return replace(size.start, **dict(self.start)) if self.start and size.start else None


def claim(
    place: str,
    says: str,
    quantity: Quantity,
    direction: Direction,
    arm: str = SCE,
    against: str = PLAIN,
    *,
    of: Setting | None = None,
    paper: tuple[float, float] | float | str | None = None,
    like: str = "",
    term: str | None = None,
    steps: int | None = None,
    across: tuple[str, ...] = (),
    unless: Callable[[Size], str] = lambda size: "",
) -> Claim[Paired]:
    """A claim at one of `SOURCES`, on one setting of several; `paper`: its values of both arms, their difference in
    points, or words.

    A claim that the term helps and has no number has the size of the term in its place, or in the place `like`. With
    `paper` and `like` the values are those of another task, by its name.
    `term` is what the claim says of the term, by default that it helps.
    """
    term = (HELPS if direction in ("lower", "higher") else OTHER) if term is None else term
    printed, size = paper if isinstance(paper, str) else "no number in the text", None
    if isinstance(paper, tuple):
        one, other = paper
        # A difference of logarithms for perplexity, of shares for a score.
        size = change(one, other) if quantity.task == "perplexity" else (one - other) / 100
        what = _PRINTED.get(quantity.task, "accuracy")
        both = f"{what} {one:g} against {other:g} ({size:+.3f})"
        printed = f"no number; {like} has {size:+.3f}" if like else both
    elif isinstance(paper, float):
        size, printed = paper / 100, f"{paper:+.1f} points"
    elif term == HELPS and (effect := EFFECTS.get(like or place)) is not None:
        size = effect.of(quantity.unit)
        printed = f"no number; {effect.where} has {size:+.3f}"
    if of is not None:
        says, arm, against = of.arm(says), of.arm(arm), of.arm(against)
    margin = None if direction in ("lower", "higher") else MARGINS[place]
    value = None
    if margin is not None:
        value = margin.value if margin.value is not None else abs(size or 0)
    test = Paired(
        quantity=quantity,
        arm=arm,
        against=against,
        direction=direction,
        margin=value,
        because="" if margin is None else margin.because,
        size=None if direction == "same" else size,
        steps=steps,
        across=across,
    )
    levels = dict(zip((arm, against), paper, strict=True)) if isinstance(paper, tuple) and not like else {}
    return Claim(
        place=place,
        source=SOURCES[place],
        says=says,
        paper=printed,
        levels=levels,
        test=test,
        term=term,
        unless=unless,
    )
