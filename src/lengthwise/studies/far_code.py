"""Does what `far_repeats` found on books hold on other text? The same trained models, measured on source code.

All arms train on books. Questions are hidden in code, and losses are of code. A finished `far_repeats` has the
trainings: `--arms-from`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lengthwise.report.html import Section
from lengthwise.report.tables import Table
from lengthwise.results import Results
from lengthwise.studies.far_context import verdicts as judged
from lengthwise.studies.far_repeats import REPEATS, without_recall
from lengthwise.studies.far_windows import SCALES, question_claims
from lengthwise.studies.skeleton import Study
from lengthwise.studies.training_forms import CONTROL, START, question_section, screen_arms
from lengthwise.studies.training_forms import EXPERIMENT as SCREEN

EXPERIMENT = replace(SCREEN, kind="far-code", arms=(*screen_arms(START, CONTROL), REPEATS))


def verdicts(results: Results) -> Table:
    """Each claim with its mean difference over seeds and documents, and the verdict."""
    return judged(results, question_claims(REPEATS.name, CONTROL, results))


def sections(results: Results, folder: Path) -> list[Section]:
    """The study as one section of a page."""
    return [question_section(results, "On source code", reference=CONTROL, verdicts=[verdicts(results)])]


FAR_CODE = Study(
    title="Do skips and repeats help on source code, after training on books?",
    parts=(
        EXPERIMENT.part(
            sections, {name: replace(without_recall(SCALES[name]), text="code") for name in SCALES}
        ),
    ),
    takes=("seeds", "steps"),
)
