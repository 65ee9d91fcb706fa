"""Do windows of the whole trained length bring what skips bring? The same tokens as `far-steps`. One seed: a screen.

A window of 2,048 tokens holds no far tokens; a skip imitates them. A window of 8,192 tokens holds them, in a
quarter of the steps and with longer attention. A finished `far-steps` has the other arms: `--arms-from`.
"""

from __future__ import annotations

from dataclasses import replace

from lengthwise.studies.arms import Arm
from lengthwise.studies.far.longer_windows import one_seed
from lengthwise.studies.far.screen import CONTROL, HALF, START, screen_arms
from lengthwise.studies.far.screen import EXPERIMENT as SCREEN
from lengthwise.studies.far.study_page import far_study

FULL = Arm(
    name="windows of 8,192, CE",
    changes=("length=8192", "steps=45", "views=truncation", "positions=null", "objective.ce_on=long"),
    question="every distance is in the window",
)
EXPERIMENT = replace(
    SCREEN,
    kind="far-full-windows",
    arms=(*screen_arms(START, CONTROL, HALF), FULL),
    notes=(
        "Every trained arm: LoRA on as many tokens of books, {recipe.steps} steps of {recipe.length} tokens or a "
        "quarter as many of 8192. {seeds}.",
        *SCREEN.notes[1:],
    ),
)


FAR_FULL_WINDOWS = far_study(
    EXPERIMENT,
    one_seed(180),
    title="Do windows of the whole trained length bring what skips bring?",
    heading="Windows of the whole trained length",
    takes=("seeds",),
)
