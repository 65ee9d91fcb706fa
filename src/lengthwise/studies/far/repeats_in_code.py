"""Does what `far-repeats` found on books hold on other text? Measured on code, after training on books and on code.

Questions are hidden in code, and losses are of code. A finished `far-repeats` has the trainings on books:
`--arms-from`. Three seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lengthwise.results import Results
from lengthwise.studies.arms import Arm
from lengthwise.studies.far.form_claims import question_claims
from lengthwise.studies.far.repeats import QUESTIONS, REPEATS
from lengthwise.studies.far.screen import CONTROL, START, screen_arms
from lengthwise.studies.far.screen import EXPERIMENT as SCREEN
from lengthwise.studies.far.study_page import far_study
from lengthwise.studies.paired_claims import PairedClaim


def _on_code(arms: Sequence[Arm]) -> tuple[Arm, ...]:
    """The same arms, trained on code."""
    return tuple(
        replace(arm, name=f"on code: {arm.name}", changes=(*(arm.changes or ()), "data.corpus=code"))
        for arm in arms
    )


ON_BOOKS = (*screen_arms(CONTROL), REPEATS)
CODE_CONTROL, CODE_REPEATS = _on_code(ON_BOOKS)
EXPERIMENT = replace(
    SCREEN,
    kind="far-code",
    arms=(*screen_arms(START), *ON_BOOKS, CODE_CONTROL, CODE_REPEATS),
    contrasts=((CODE_REPEATS.name, CODE_CONTROL.name),),
    notes=(
        "Every trained arm: LoRA, {recipe.steps} steps of {recipe.length} tokens of books, or of code where its name "
        "says so. {seeds}.",
        *SCREEN.notes[1:],
    ),
)


def claims_of(results: Results) -> list[PairedClaim]:
    """What the form has to do after training on books, and after training on code."""
    return [
        *question_claims(REPEATS.name, CONTROL, results),
        *question_claims(CODE_REPEATS.name, CODE_CONTROL.name, results),
    ]


FAR_CODE = far_study(
    EXPERIMENT,
    {name: replace(scale, text="code") for name, scale in QUESTIONS.items()},
    title="Do skips and repeats help on source code?",
    heading="On source code",
    claims=claims_of,
)
