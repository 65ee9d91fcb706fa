"""Does what `far_windows` found on books hold on other text? The same trained models, measured on source code.

All arms train on books. Questions are hidden in code, repeated passages are code, and losses are of code. A finished
`far_windows` has the trainings: `--arms-from`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lengthwise.report.html import Section
from lengthwise.results import Results
from lengthwise.studies.far_windows import EXPERIMENT as WINDOWS
from lengthwise.studies.far_windows import SCALES, verdicts
from lengthwise.studies.skeleton import Study
from lengthwise.studies.training_forms import CONTROL, question_section

EXPERIMENT = replace(WINDOWS, kind="far-code")


def sections(results: Results, folder: Path) -> list[Section]:
    """The study as one section of a page."""
    return [question_section(results, "On source code", reference=CONTROL, verdicts=[verdicts(results)])]


FAR_CODE = Study(
    title="Do skips help on source code, after training on books?",
    parts=(EXPERIMENT.part(sections, {name: replace(SCALES[name], text="code") for name in SCALES}),),
    takes=("seeds", "steps"),
)
