"""Do more steps, and a skip in each of them, bring more than `far-windows` found? One seed: a screen.

On windows of 2,048 tokens skips cost no loss in 60 steps, so this study trains three times as long, with a skip in
half of the steps and with one in every step.
"""

from __future__ import annotations

from dataclasses import replace

from lengthwise.studies.arms import Scale
from lengthwise.studies.far.longer_windows import SCALES
from lengthwise.studies.far.screen import CONTROL, EVERY, HALF, START, screen_arms
from lengthwise.studies.far.screen import EXPERIMENT as SCREEN
from lengthwise.studies.far.study_page import far_study

EXPERIMENT = replace(SCREEN, kind="far-steps", arms=screen_arms(START, CONTROL, HALF, EVERY))


def _scale(name: str, scale: Scale) -> Scale:
    """The windows and the measures of `far-windows`, in 180 steps in place of 60."""
    return replace(scale, seeds=1) if name == "smoke" else replace(scale, seeds=1, steps=180)


FAR_STEPS = far_study(
    EXPERIMENT,
    {name: _scale(name, scale) for name, scale in SCALES.items()},
    title="Do more steps and more skips bring more?",
    heading="More steps, and more skips",
)
