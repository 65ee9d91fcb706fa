"""What in the form of `far-repeats` does it: the skips, the repeats, or how many repeats? One seed: a screen.

A finished `far-repeats` has the arms that both studies share: `--arms-from`.
"""

from __future__ import annotations

from dataclasses import replace

from lengthwise.studies.far.repeats import ONE_SEED, REPEATS
from lengthwise.studies.far.screen import CONTROL, HALF, START, screen_arms
from lengthwise.studies.far.screen import EXPERIMENT as SCREEN
from lengthwise.studies.far.study_page import far_study

FEWER = replace(
    REPEATS,
    name="skip in half of the steps + repeats, CE",
    changes=("views=repeat", "view_options={share: 1.0, source: anywhere, place: anywhere}"),
    question="every window with a skip repeats 64 tokens",
)
NO_SKIP = replace(
    REPEATS,
    name="long repeats, no skip, CE",
    # The contiguous view of the same windows.
    changes=(*(REPEATS.changes or ()), "objective.ce_on=long"),
    question="the same text, with its own positions",
)
EXPERIMENT = replace(
    SCREEN, kind="far-parts", arms=(*screen_arms(START, CONTROL, HALF), REPEATS, FEWER, NO_SKIP)
)


FAR_PARTS = far_study(
    EXPERIMENT,
    ONE_SEED,
    title="What does it: the skips or the repeats?",
    heading="Skips, repeats, and both",
)
