"""Does an extension help the form of `far-repeats` within the trained length? One seed: a screen.

NTK by two costs next to nothing at short lengths. With it, skips and repeats reach twice the trained length. Against
cross entropy on the same tokens and the form, both with the model's own rope, which a finished `far-repeats` has:
`--arms-from`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lengthwise.report.html import Section
from lengthwise.results import Results
from lengthwise.studies.far.repeats import REPEATS, without_recall
from lengthwise.studies.far.screen import CONTROL, START, question_section, screen_arms
from lengthwise.studies.far.screen import EXPERIMENT as SCREEN
from lengthwise.studies.far.windows import SCALES
from lengthwise.studies.skeleton import Study

EXTENDED = "NTK x2"
EXTENDED_REPEATS = replace(
    REPEATS,
    name=f"{EXTENDED}, {REPEATS.name}",
    changes=(
        *(REPEATS.changes or ()),
        "extend.method=ntk",
        "extend.factor=2",
        "positions.target_length=16384",
    ),
)
EXPERIMENT = replace(
    SCREEN,
    kind="far-ntk",
    arms=(*screen_arms(START, CONTROL), REPEATS, EXTENDED_REPEATS),
)


def sections(results: Results, folder: Path) -> list[Section]:
    """The study as one section of a page."""
    return [question_section(results, f"Repeats with {EXTENDED}", reference=CONTROL)]


FAR_NTK = Study(
    title="Does an extension add to skips and repeats?",
    parts=(
        EXPERIMENT.part(sections, {name: replace(without_recall(SCALES[name]), seeds=1) for name in SCALES}),
    ),
    takes=("seeds", "steps"),
)
