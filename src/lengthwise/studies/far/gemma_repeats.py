"""The recommended form on the second model, three seeds against its control.

The screen `far-gemma` found that Gemma 3 270M gains where it misses answers, in the middle. A finished one has the
arms of the first seed: `--arms-from`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lengthwise.results import Results
from lengthwise.studies.far.form_claims import claims_on
from lengthwise.studies.far.gemma import SCALES
from lengthwise.studies.far.repeats import REPEATS
from lengthwise.studies.far.screen import CONTROL, START, screen_arms
from lengthwise.studies.far.screen import EXPERIMENT as SCREEN
from lengthwise.studies.far.study_page import far_study
from lengthwise.studies.paired_claims import PairedClaim

EXPERIMENT = replace(SCREEN, kind="far-gemma-repeats", arms=(*screen_arms(START, CONTROL), REPEATS))


def claims_of(results: Results) -> Sequence[PairedClaim]:
    """What the form has to do, and that it makes the right answer more probable: twelve contexts hold few answers."""
    found = claims_on(REPEATS.name, CONTROL, results)
    far = found[0]
    heading = far.quantity.heading.replace("accuracy", "gold")
    gold = replace(
        far,
        place="gold",
        says="it makes the right answer more probable",
        quantity=replace(far.quantity, heading=heading, metric="gold_probability"),
    )
    return [*found, gold]


FAR_GEMMA_REPEATS = far_study(
    EXPERIMENT,
    {name: replace(SCALES[name], seeds=3) for name in SCALES},
    title="Does a second model use far context after training with skips and repeats?",
    heading="A second model",
    claims=claims_of,
)
