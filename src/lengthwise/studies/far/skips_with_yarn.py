"""Beyond the trained length: does training with skips add to an extension that needs no training?

YaRN by a factor of two doubles what SmolLM2-135M reads. It is measured without training, after cross entropy on
windows of 2,048 tokens, and after the same windows with skips up to the extended length. One seed: a screen.
"""

from __future__ import annotations

from dataclasses import replace

from lengthwise.studies.arms import Arm, Scale
from lengthwise.studies.far.screen import CONTROL, HALF, SCALES, asking, screen_arms
from lengthwise.studies.far.screen import EXPERIMENT as SCREEN
from lengthwise.studies.far.study_page import far_study

EXTENDED = "YaRN x2"
REFERENCE = f"{EXTENDED}, {CONTROL}"
_EXTEND = ("extend.method=yarn", "extend.factor=2")

EXPERIMENT = replace(
    SCREEN,
    kind="far-extension",
    arms=(
        Arm(name=EXTENDED, method="yarn", factor=2.0, question="the extension alone"),
        *(
            replace(arm, name=f"{EXTENDED}, {arm.name}", changes=(*_EXTEND, *(arm.changes or ())))
            for arm in screen_arms(CONTROL, HALF)
        ),
    ),
    reference=REFERENCE,
)


def _scale(name: str) -> Scale:
    """Skips up to twice the trained length, and prompts within and beyond it."""
    scale = SCALES[name]
    if name == "smoke":
        return scale
    return replace(asking(scale, lengths=[7000, 12000]), changes=("positions.target_length=16384",))


FAR_EXTENSION = far_study(
    EXPERIMENT,
    {name: _scale(name) for name in SCALES},
    title="Does training with skips add to an extension?",
    heading=f"Beyond the trained length, with {EXTENDED}",
)
