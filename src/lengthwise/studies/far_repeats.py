"""Do planted repeats, which moved the beginning most in the screen, keep the middle on longer windows? Against skips.

On windows of 256 tokens with one skip the source of a repeat is always far, so distance itself was rewarded. On 2,048
tokens repeats come from anywhere, near and far, and take a small share of the window. Recall is what they train, so
questions decide. A finished `far_windows` has the arms without repeats: `--arms-from`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lengthwise.report.html import Section
from lengthwise.results import Results
from lengthwise.studies.arms import Arm, Scale
from lengthwise.studies.far_windows import SCALES
from lengthwise.studies.skeleton import Study
from lengthwise.studies.training_forms import CONTROL, HALF, START, question_section, screen_arms
from lengthwise.studies.training_forms import EXPERIMENT as SCREEN

_ANYWHERE = "views=repeat", "view_options={share: 1.0, source: anywhere, place: anywhere}"
SOME = Arm(
    name="skip in half of the steps + repeats, CE",
    changes=_ANYWHERE,
    question="and every window with a skip repeats 64 tokens",
)
MORE = Arm(
    name="skip + long repeats, CE",
    changes=(*_ANYWHERE, "view_options.passage=128", "positions.options={shifted: 0.5}"),
    question="every window skips and repeats 128 tokens",
)
EXPERIMENT = replace(SCREEN, kind="far-repeats", arms=(*screen_arms(START, CONTROL, HALF), SOME, MORE))


def sections(results: Results, folder: Path) -> list[Section]:
    """The study as one section of a page."""
    return [question_section(results, "Repeats on longer windows", reference=CONTROL)]


def _scale(scale: Scale) -> Scale:
    """The windows and the measures of `far_windows`."""
    return replace(scale, seeds=1)


FAR_REPEATS = Study(
    title="Do planted repeats keep the middle of the context on longer windows?",
    parts=(EXPERIMENT.part(sections, {name: _scale(scale) for name, scale in SCALES.items()}),),
    takes=("seeds", "steps"),
)
