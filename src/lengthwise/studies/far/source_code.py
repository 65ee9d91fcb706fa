"""Does what `far-repeats` found on books hold on other text? Measured on code, after training on books and on code.

Questions are hidden in code, and losses are of code. A finished `far-repeats` has the trainings on books:
`--arms-from`. One seed: a screen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from lengthwise.report.html import Section
from lengthwise.report.tables import Table
from lengthwise.results import Results
from lengthwise.studies.arms import Arm
from lengthwise.studies.far.context import verdicts as judged
from lengthwise.studies.far.repeats import REPEATS, without_recall
from lengthwise.studies.far.screen import CONTROL, START, question_section, screen_arms
from lengthwise.studies.far.screen import EXPERIMENT as SCREEN
from lengthwise.studies.far.windows import SCALES, question_claims
from lengthwise.studies.skeleton import Study


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


def verdicts(results: Results) -> Table:
    """Each claim, after training on books and on code, with its mean difference and the verdict."""
    found = [
        *question_claims(REPEATS.name, CONTROL, results),
        *question_claims(CODE_REPEATS.name, CODE_CONTROL.name, results),
    ]
    return judged(results, found)


def sections(results: Results, folder: Path) -> list[Section]:
    """The study as one section of a page."""
    return [question_section(results, "On source code", reference=CONTROL, verdicts=[verdicts(results)])]


FAR_CODE = Study(
    title="Do skips and repeats help on source code?",
    parts=(
        EXPERIMENT.part(
            sections,
            {name: replace(without_recall(SCALES[name]), text="code", seeds=1) for name in SCALES},
        ),
    ),
    takes=("seeds", "steps"),
)
