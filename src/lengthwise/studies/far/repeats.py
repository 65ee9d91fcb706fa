"""Do planted repeats, which moved the beginning most in the screen, keep the middle on longer windows? Three seeds.

On windows of 256 tokens with one skip the source of a repeat is always far, so distance itself was rewarded. On 2,048
tokens repeats come from anywhere, near and far, and take a small share of the window. Recall is what they train, so
questions decide. A finished `far-windows` has the arms without repeats: `--arms-from`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lengthwise.report.html import Section
from lengthwise.report.tables import Table
from lengthwise.results import Results
from lengthwise.studies.arms import Arm, Scale
from lengthwise.studies.far.context import claims_on
from lengthwise.studies.far.context import verdicts as judged
from lengthwise.studies.far.screen import CONTROL, HALF, START, question_section, screen_arms
from lengthwise.studies.far.screen import EXPERIMENT as SCREEN
from lengthwise.studies.far.windows import SCALES, question_claims
from lengthwise.studies.paired_claims import PairedClaim
from lengthwise.studies.skeleton import Study

_ANYWHERE = "views=repeat", "view_options={share: 1.0, source: anywhere, place: anywhere}"
REPEATS = Arm(
    name="skip + long repeats, CE",
    changes=(
        "views=repeat",
        "view_options={share: 1.0, source: anywhere, place: anywhere}",
        "view_options.passage=128",
        "positions.options={shifted: 0.5}",
    ),
    question="every window skips and repeats 128 tokens",
)
EXPERIMENT = replace(
    SCREEN,
    kind="far-repeats",
    arms=(*screen_arms(START, CONTROL, HALF), REPEATS),
    contrasts=((REPEATS.name, HALF),),
)


def claims_of(results: Results) -> list[PairedClaim]:
    """What the form has to do against cross entropy, and that it answers more than skips alone."""
    return [
        *question_claims(REPEATS.name, CONTROL, results),
        replace(claims_on(REPEATS.name, HALF, results)[0], place="beyond skips"),
    ]


def verdicts(results: Results) -> Table:
    """Each claim with its mean difference over seeds and documents, and the verdict."""
    return judged(results, claims_of(results))


def sections(results: Results, folder: Path) -> list[Section]:
    """The study as one section of a page."""
    title = "Repeats on longer windows"
    return [question_section(results, title, reference=CONTROL, verdicts=[verdicts(results)])]


def without_recall(scale: Scale) -> Scale:
    """The same questions and losses. Recall says little where arms train on repeats, and takes time."""
    return replace(scale, measures={name: of for name, of in scale.measures.items() if name != "recall"})


FAR_REPEATS = Study(
    title="Do planted repeats keep the middle of the context on longer windows?",
    parts=(EXPERIMENT.part(sections, SCALES),),
    takes=("seeds", "steps"),
)
