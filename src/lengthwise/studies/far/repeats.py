"""Do planted repeats, which moved the beginning most in the screen, keep the middle on longer windows? Three seeds.

On windows of 256 tokens with one skip the source of a repeat is always far, so distance itself was rewarded. On 2,048
tokens repeats come from anywhere, near and far, and take a small share of the window. Recall is what they train, so
questions decide. A finished `far-windows` has the arms without repeats: `--arms-from`.
"""

from __future__ import annotations

from dataclasses import replace

from lengthwise.results import Results
from lengthwise.studies.arms import Arm, Scale
from lengthwise.studies.far.form_claims import claims_on, question_claims
from lengthwise.studies.far.longer_windows import SCALES
from lengthwise.studies.far.screen import CONTROL, HALF, START, screen_arms
from lengthwise.studies.far.screen import EXPERIMENT as SCREEN
from lengthwise.studies.far.study_page import far_study
from lengthwise.studies.paired_claims import PairedClaim

REPEATS = Arm(
    name="skip + long repeats, CE",
    changes=(
        "views=repeat",
        "view_options={share: 1.0, source: anywhere, place: anywhere}",
        "view_options.passage=128",
        "positions.options={shifted: 0.5}",
    ),
    question="every window skips and repeats 128 tokens",
)
EXPERIMENT = replace(
    SCREEN,
    kind="far-repeats",
    arms=(*screen_arms(START, CONTROL, HALF), REPEATS),
    contrasts=((REPEATS.name, HALF),),
)


def claims_of(results: Results) -> list[PairedClaim]:
    """What the form has to do against cross entropy, and that it answers more than skips alone."""
    return [
        *question_claims(REPEATS.name, CONTROL, results),
        replace(claims_on(REPEATS.name, HALF, results)[0], place="beyond skips"),
    ]


def _without_recall(scale: Scale) -> Scale:
    return replace(scale, measures={name: of for name, of in scale.measures.items() if name != "recall"})


QUESTIONS = {name: _without_recall(scale) for name, scale in SCALES.items()}
"""The same questions and losses without recall, which the arms with repeats are trained on."""
ONE_SEED = {name: replace(scale, seeds=1) for name, scale in QUESTIONS.items()}
"""A screen on them."""


FAR_REPEATS = far_study(
    EXPERIMENT,
    SCALES,
    title="Do planted repeats keep the middle of the context on longer windows?",
    heading="Repeats on longer windows",
    claims=claims_of,
)
