"""Do windows of the whole trained length bring what skips bring? The same tokens as `far-steps`. One seed: a screen.

A skip stands in for far tokens, which a window of 2,048 does not hold. Windows of 8,192 tokens hold them, in a
quarter of the steps and at the price of longer attention. A finished `far-steps` has the other arms: `--arms-from`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lengthwise.report.html import Section
from lengthwise.results import Results
from lengthwise.studies.arms import Arm
from lengthwise.studies.far.screen import CONTROL, HALF, START, question_section, screen_arms
from lengthwise.studies.far.screen import EXPERIMENT as SCREEN
from lengthwise.studies.far.windows import one_seed
from lengthwise.studies.skeleton import Study

FULL = Arm(
    name="windows of 8,192, CE",
    changes=("length=8192", "steps=45", "views=truncation", "positions=null", "objective.ce_on=long"),
    question="every distance is in the window",
)
EXPERIMENT = replace(
    SCREEN,
    kind="far-full-windows",
    arms=(*screen_arms(START, CONTROL, HALF), FULL),
    notes=(
        "Every trained arm: LoRA on as many tokens of books, {recipe.steps} steps of {recipe.length} tokens or a "
        "quarter as many of 8192. {seeds}.",
        *SCREEN.notes[1:],
    ),
)


def sections(results: Results, folder: Path) -> list[Section]:
    """The study as one section of a page."""
    return [question_section(results, "Windows of the whole trained length", reference=CONTROL)]


FAR_FULL_WINDOWS = Study(
    title="Do windows of the whole trained length bring what skips bring?",
    parts=(EXPERIMENT.part(sections, one_seed(180)),),
    takes=("seeds",),
)
