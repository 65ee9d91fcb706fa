"""What does a form change in long texts? The measurements of `far-reach` after skips, and skips with repeats.

A form is trained on windows of 2,048 tokens, and its other studies measure its cost at the same lengths. Here:
losses up to the trained length, the loss of the tokens that far context makes likely (LongPPL), and how much context
is used. Three seeds. A finished `far-repeats` has the trainings, and `far-reach` the measurements of the first seed:
`--arms-from`.
"""

from __future__ import annotations

from dataclasses import replace

from lengthwise.results import Results
from lengthwise.studies.far.beyond_questions import EXPERIMENT as REACH
from lengthwise.studies.far.beyond_questions import SCALES
from lengthwise.studies.far.form_claims import cost_claim
from lengthwise.studies.far.repeats import EXPERIMENT as TRAINED
from lengthwise.studies.far.repeats import REPEATS
from lengthwise.studies.far.screen import CONTROL, HALF
from lengthwise.studies.far.study_page import far_study
from lengthwise.studies.paired_claims import PairedClaim, Quantity

EXPERIMENT = replace(REACH, kind="far-long-texts", arms=TRAINED.arms)


def claims_of(results: Results) -> list[PairedClaim]:
    """Of each form: what it may cost at every length, and what it does if it uses more context."""
    return [claim for form in (HALF, REPEATS.name) for claim in _claims_on(form, results)]


def _claims_on(form: str, results: Results) -> list[PairedClaim]:
    lengths = results.config["measures"]["perplexity"]["lengths"]
    return [
        *[cost_claim(form, CONTROL, results, length) for length in lengths],
        PairedClaim(
            place="key tokens",
            source=None,
            says="what far context makes likely is likelier",
            quantity=Quantity(heading="loss of key tokens", task="longppl", metric="loss_key"),
            arm=form,
            against=CONTROL,
            direction="lower",
        ),
        PairedClaim(
            place="used",
            source=None,
            says="it uses more context",
            quantity=Quantity(heading="used up to", task="limit", metric="used_up_to", unit="tokens"),
            arm=form,
            against=CONTROL,
            direction="higher",
        ),
    ]


FAR_LONG_TEXTS = far_study(
    EXPERIMENT,
    {name: replace(scale, seeds=3) for name, scale in SCALES.items()},
    title="What do skips and repeats change in long texts?",
    heading="Long texts",
    claims=claims_of,
)
