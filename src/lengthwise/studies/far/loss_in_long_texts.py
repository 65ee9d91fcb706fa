"""What does a form cost in long texts? The losses of `far-reach` after skips, and skips with repeats. Three seeds.

A form is trained on windows of 2,048 tokens, and its other studies measure its cost at the same lengths. A finished
`far-repeats` has the trainings, and `far-reach` the losses of the first seed: `--arms-from`.
"""

from __future__ import annotations

from dataclasses import replace

from lengthwise.results import Results
from lengthwise.studies.arms import Scale
from lengthwise.studies.far.beyond_questions import SCALES
from lengthwise.studies.far.form_claims import cost_claim
from lengthwise.studies.far.repeats import EXPERIMENT as TRAINED
from lengthwise.studies.far.repeats import REPEATS
from lengthwise.studies.far.screen import CONTROL, HALF
from lengthwise.studies.far.screen import EXPERIMENT as SCREEN
from lengthwise.studies.far.study_page import far_study
from lengthwise.studies.paired_claims import PairedClaim

EXPERIMENT = replace(SCREEN, kind="far-loss", arms=TRAINED.arms)


def claims_of(results: Results) -> list[PairedClaim]:
    """What each form may cost, at every length."""
    return [
        cost_claim(form, CONTROL, results, length)
        for form in (HALF, REPEATS.name)
        for length in results.config["measures"]["perplexity"]["lengths"]
    ]


def _scale(scale: Scale) -> Scale:
    """The losses alone, and three seeds."""
    return replace(scale, seeds=3, measures={"perplexity": scale.measures["perplexity"]})


FAR_LOSS = far_study(
    EXPERIMENT,
    {name: _scale(scale) for name, scale in SCALES.items()},
    title="What do skips and repeats cost in long texts?",
    heading="Loss in long texts",
    claims=claims_of,
)
