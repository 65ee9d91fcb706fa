"""Do more steps, and a skip in each of them, bring more than `far_windows` found? One seed: a screen.

On windows of 2,048 tokens skips cost no loss in 60 steps, so this study trains three times as long, with a skip in
half of the steps and with one in every step.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lengthwise.report.html import Section
from lengthwise.results import Results
from lengthwise.studies.arms import Scale
from lengthwise.studies.far_windows import FAR_WINDOWS
from lengthwise.studies.skeleton import Study
from lengthwise.studies.training_forms import CONTROL, EVERY, HALF, START, question_section
from lengthwise.studies.training_forms import EXPERIMENT as SCREEN

EXPERIMENT = replace(
    SCREEN,
    kind="far-steps",
    arms=tuple(arm for arm in SCREEN.arms if arm.name in (START, CONTROL, HALF, EVERY)),
)


def sections(results: Results, folder: Path) -> list[Section]:
    """The study as one section of a page."""
    says = (
        f"after {results.config['steps']} steps on windows of 2,048 tokens, on questions that it was not trained on. "
        "One seed: a screen."
    )
    return [question_section(results, "More steps, and more skips", says, reference=CONTROL)]


def _scale(name: str, scale: Scale) -> Scale:
    """The windows and the questions of `far_windows`, three times the steps."""
    return replace(scale, seeds=1) if name == "smoke" else replace(scale, seeds=1, steps=180)


FAR_STEPS = Study(
    title="Do more steps and more skips bring more?",
    parts=(
        EXPERIMENT.part(
            sections, {name: _scale(name, scale) for name, scale in FAR_WINDOWS.parts[0].scales.items()}
        ),
    ),
    takes=("seeds", "steps"),
)
