"""Does the form of `far-repeats` help where copying does not answer? Three seeds against cross entropy.

The question about a needle ends with the words before its answer, so a model that repeats what came before answers
it. `tracking` asks where a person is, in other words than the text has, and the text of `tracking_two_moves` holds an
earlier place of the same person. A finished `far-repeats` has the trainings: `--arms-from`.
"""

from __future__ import annotations

from dataclasses import replace

from lengthwise.results import Results
from lengthwise.studies.arms import Scale
from lengthwise.studies.far.form_claims import claims_on
from lengthwise.studies.far.repeats import QUESTIONS, REPEATS
from lengthwise.studies.far.screen import CONTROL, START, asking, screen_arms
from lengthwise.studies.far.screen import EXPERIMENT as SCREEN
from lengthwise.studies.far.study_page import far_study
from lengthwise.studies.paired_claims import PairedClaim

EXPERIMENT = replace(SCREEN, kind="far-tracking", arms=(*screen_arms(START, CONTROL), REPEATS))


def claims_of(results: Results) -> list[PairedClaim]:
    """What the form has to do, on each of the two tasks."""
    return claims_on(REPEATS.name, CONTROL, results)


def on_tracking(scale: Scale) -> Scale:
    """The scale with the two tasks of `tracking` in place of needles."""
    return asking(scale, tasks=["tracking_one_move", "tracking_two_moves"])


FAR_TRACKING = far_study(
    EXPERIMENT,
    {name: on_tracking(scale) for name, scale in QUESTIONS.items()},
    title="Do skips and repeats help where copying does not answer?",
    heading="Where someone is",
    claims=claims_of,
)
