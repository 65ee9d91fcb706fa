"""`far-tracking` on Gemma 3 270M, which tells where someone is far better than SmolLM2-135M. One seed: a screen.

It reads twice the contexts of `far-gemma`, so that twelve do not decide. A finished `far-gemma` has the trainings:
`--arms-from`.
"""

from __future__ import annotations

from dataclasses import replace

from lengthwise.studies.arms import Scale
from lengthwise.studies.far.gemma import SCALES
from lengthwise.studies.far.repeats import REPEATS
from lengthwise.studies.far.repeats_on_tracking import on_tracking
from lengthwise.studies.far.screen import CONTROL, START, asking, screen_arms
from lengthwise.studies.far.screen import EXPERIMENT as SCREEN
from lengthwise.studies.far.study_page import far_study

EXPERIMENT = replace(SCREEN, kind="far-gemma-tracking", arms=(*screen_arms(START, CONTROL), REPEATS))


def _scale(name: str) -> Scale:
    """Both tasks, and twice the contexts."""
    scale = on_tracking(SCALES[name])
    return scale if name == "smoke" else asking(scale, samples=24)


FAR_GEMMA_TRACKING = far_study(
    EXPERIMENT,
    {name: _scale(name) for name in SCALES},
    title="Do skips and repeats help a second model where copying does not answer?",
    heading="Where someone is, on a second model",
)
