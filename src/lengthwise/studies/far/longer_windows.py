"""Do longer windows keep the middle of the context when their positions skip? Three seeds against a control.

A window of 256 tokens with one skip holds near tokens and far ones and nothing between: after it a model prefers the
farther of two facts, whichever was asked for. A longer window holds the middle too. Every arm reads the same tokens;
they are more than those of `training-forms`, so the control is trained on them as well.
"""

from __future__ import annotations

from dataclasses import replace

from lengthwise.results import Results
from lengthwise.studies.arms import Scale
from lengthwise.studies.far.form_claims import question_claims
from lengthwise.studies.far.screen import CONTROL, HALF, START, asking, screen_arms
from lengthwise.studies.far.screen import EXPERIMENT as SCREEN
from lengthwise.studies.far.screen import SCALES as SCREEN_SCALES
from lengthwise.studies.far.study_page import far_study, shortest_read
from lengthwise.studies.paired_claims import PairedClaim, Quantity

EXPERIMENT = replace(SCREEN, kind="far-windows", arms=screen_arms(START, CONTROL, HALF))
FARTHEST = 7500
"""Tokens back to the farthest repeated passage. No arm is trained on repeats."""


def claims_of(results: Results) -> list[PairedClaim]:
    """What the form has to do, and that it copies from farther, which no arm is trained to do."""
    found = question_claims(HALF, CONTROL, results)
    repeat = replace(
        found[0],
        place="repeat",
        says=f"a passage repeated after {FARTHEST:,} tokens is worth more",
        quantity=Quantity(
            heading=f"recall at {FARTHEST:,}",
            task="recall",
            metric="benefit",
            distance=FARTHEST / shortest_read(results),
        ),
    )
    return [*found, repeat]


def _scale(name: str) -> Scale:
    """Three seeds, the recipe's own windows, and twice the contexts of the screen, whose twelve decide too little."""
    scale = replace(SCREEN_SCALES[name], seeds=3)
    if name == "smoke":
        return scale
    recall = {"distances": [2048, FARTHEST], "pairs": 8}
    scale = asking(scale, samples=24)
    return replace(scale, measures={**scale.measures, "recall": recall}, changes=())


SCALES = {name: _scale(name) for name in SCREEN_SCALES}


def one_seed(steps: int) -> dict[str, Scale]:
    """A screen on the same windows and measures. Steps are a change, so that an arm can take fewer."""
    return {
        name: replace(scale, seeds=1, changes=(*scale.changes, f"steps={steps}"))
        for name, scale in SCALES.items()
    }


FAR_WINDOWS = far_study(
    EXPERIMENT,
    SCALES,
    title="Do longer windows keep the middle of the context?",
    heading="Longer windows",
    claims=claims_of,
)
