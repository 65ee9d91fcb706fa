"""Does an extension help the form of `far-repeats` within the trained length? One seed: a screen.

NTK by two costs next to nothing at short lengths. With it, skips and repeats reach twice the trained length. Against
cross entropy on the same tokens and the form, both with the model's own rope, which a finished `far-repeats` has:
`--arms-from`.
"""

from __future__ import annotations

from dataclasses import replace

from lengthwise.studies.far.repeats import ONE_SEED, REPEATS
from lengthwise.studies.far.screen import CONTROL, START, screen_arms
from lengthwise.studies.far.screen import EXPERIMENT as SCREEN
from lengthwise.studies.far.study_page import far_study

EXTENDED = "NTK x2"
EXTENDED_REPEATS = replace(
    REPEATS,
    name=f"{EXTENDED}, {REPEATS.name}",
    changes=(
        *(REPEATS.changes or ()),
        "extend.method=ntk",
        "extend.factor=2",
        "positions.target_length=16384",
    ),
)
EXPERIMENT = replace(
    SCREEN,
    kind="far-ntk",
    arms=(*screen_arms(START, CONTROL), REPEATS, EXTENDED_REPEATS),
)


FAR_NTK = far_study(
    EXPERIMENT,
    ONE_SEED,
    title="Does an extension add to skips and repeats?",
    heading=f"Repeats with {EXTENDED}",
)
