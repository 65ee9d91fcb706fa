"""`far-tracking` on Gemma 3 270M, which tells where someone is far better than SmolLM2-135M. One seed: a screen.

It reads twice the contexts of `far-gemma`, so that twelve do not decide. A finished `far-gemma` has the trainings:
`--arms-from`.
"""

from __future__ import annotations

from dataclasses import replace

from lengthwise.studies.arms import Scale
from lengthwise.studies.far.gemma import SCALES
from lengthwise.studies.far.question_page import question_study
from lengthwise.studies.far.repeats import REPEATS
from lengthwise.studies.far.screen import CONTROL, START, screen_arms
from lengthwise.studies.far.screen import EXPERIMENT as SCREEN
from lengthwise.studies.far.tracking import on_tracking

EXPERIMENT = replace(SCREEN, kind="far-gemma-tracking", arms=(*screen_arms(START, CONTROL), REPEATS))


def _scale(name: str) -> Scale:
    """Both tasks, and twice the contexts."""
    scale = on_tracking(SCALES[name])
    if name == "smoke":
        return scale
    return replace(scale, measures={**scale.measures, "eval": {**scale.measures["eval"], "samples": 24}})


FAR_GEMMA_TRACKING = question_study(
    EXPERIMENT,
    {name: _scale(name) for name in SCALES},
    title="Do skips and repeats help a second model where copying does not answer?",
    heading="Where someone is, on a second model",
)
