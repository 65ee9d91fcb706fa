"""A second model: the forms of `far-repeats` on Gemma 3 270M, which was trained for 32,768 tokens.

It finds what lies at the beginning of 16,000 tokens already and misses some of what lies in the middle. One seed: a
screen; `far-gemma-repeats` has three of the form that gained.
"""

from __future__ import annotations

from dataclasses import replace

from lengthwise.studies.arms import Scale
from lengthwise.studies.far.repeats import REPEATS
from lengthwise.studies.far.screen import CONTROL, HALF, START, asking, screen_arms
from lengthwise.studies.far.screen import EXPERIMENT as SCREEN
from lengthwise.studies.far.screen import SCALES as SCREEN_SCALES
from lengthwise.studies.far.study_page import far_study

EXPERIMENT = replace(SCREEN, kind="far-gemma", arms=(*screen_arms(START, CONTROL, HALF), REPEATS))


def _scale(name: str) -> Scale:
    """Skips up to Gemma's trained length."""
    scale = SCREEN_SCALES[name]
    if name == "smoke":
        return scale
    scale = asking(scale, lengths=[7000])
    return replace(scale, model="gemma3-270m", changes=("positions.target_length=32768",))


SCALES = {name: _scale(name) for name in SCREEN_SCALES}
FAR_GEMMA = far_study(
    EXPERIMENT,
    SCALES,
    title="Does a second model use far context after training with skips, or with repeats too?",
    heading="A second model",
)
