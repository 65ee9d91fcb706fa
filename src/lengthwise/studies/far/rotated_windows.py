"""Rotated windows gained most in the screen and cost most. Do they keep their loss on longer windows? One seed.

On windows of 256 tokens skips cost loss too, and on windows of 2,048 they do not. A rotated view is a second reading
of each window, so the form is measured after as many tokens and after as much time as cross entropy alone. A finished
`far-windows` has the other arms: `--arms-from`.
"""

from __future__ import annotations

from dataclasses import replace

from lengthwise.studies.far.longer_windows import one_seed
from lengthwise.studies.far.screen import CONTROL, CYCLIC, HALF, START, screen_arms
from lengthwise.studies.far.screen import EXPERIMENT as SCREEN
from lengthwise.studies.far.study_page import far_study

(_CYCLIC,) = screen_arms(CYCLIC)
FEWER = replace(
    _CYCLIC,
    name=f"{CYCLIC}, half the steps",
    changes=(*(_CYCLIC.changes or ()), "steps=30"),
    question="as much time as cross entropy on one view",
)
EXPERIMENT = replace(
    SCREEN,
    kind="far-cyclic",
    arms=(*screen_arms(START, CONTROL, HALF), _CYCLIC, FEWER),
    notes=(
        "Every trained arm: LoRA, {recipe.steps} steps of {recipe.length} tokens of books, or half as many where its "
        "name says so. A rotated window is read twice. {seeds}.",
        *SCREEN.notes[1:],
    ),
)


FAR_CYCLIC = far_study(
    EXPERIMENT,
    one_seed(60),
    title="Do rotated windows keep their loss when they are long?",
    heading="Rotated windows",
    takes=("seeds",),
)
