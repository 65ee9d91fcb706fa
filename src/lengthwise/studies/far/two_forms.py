"""Do the two forms that gained most in the screen make a real model use far context? Three seeds against a control.

What a form has to do, as claims that `studies.verdicts` judges: answer more questions at the far end of the trained
length than cross entropy on the same tokens, cost at most 0.01 nats at short lengths, and lose no questions there.
"""

from __future__ import annotations

from dataclasses import replace

from lengthwise.results import Results
from lengthwise.studies.experiments import Experiment, Scale
from lengthwise.studies.far.form_claims import claims_on
from lengthwise.studies.far.screen import (
    CONTROL,
    CYCLIC,
    HALF,
    SCALES,
    START,
    asking,
    screen_arms,
)
from lengthwise.studies.far.screen import EXPERIMENT as SCREEN
from lengthwise.studies.far.study_page import far_study
from lengthwise.studies.paired_claims import PairedClaim

FORMS = (HALF, CYCLIC)
"""Skips, and rotated windows, which gained most in the screen and cost most."""
EXPERIMENT = Experiment(
    kind="far-context",
    recipe=SCREEN.recipe,
    reference=CONTROL,
    seeded=True,
    dtype="fast",
    fast_training=True,
    arms=screen_arms(START, CONTROL, *FORMS),
    notes=SCREEN.notes,
)


def claims_of(results: Results) -> list[PairedClaim]:
    """What each form of the run has to do."""
    return [
        claim
        for form in FORMS
        if form in results.config["arms"]
        for claim in claims_on(form, CONTROL, results)
    ]


def _scale(name: str) -> Scale:
    """Three seeds, and three times the contexts of the screen: twelve can only see a difference of 0.39."""
    scale = replace(SCALES[name], seeds=3)
    return scale if name == "smoke" else asking(scale, samples=36)


FAR_CONTEXT = far_study(
    EXPERIMENT,
    {name: _scale(name) for name in SCALES},
    title="Which forms make a model use far context?",
    heading="The forms that gained most",
    claims=claims_of,
)
