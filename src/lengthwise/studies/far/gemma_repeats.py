"""The recommended form on the second model, three seeds against its control.

The screen `far-gemma` found that Gemma 3 270M gains where it misses answers, in the middle. A finished one has the
arms of the first seed: `--arms-from`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from lengthwise.report.html import Section
from lengthwise.report.tables import Table
from lengthwise.results import Results
from lengthwise.studies.far.context import claims_on
from lengthwise.studies.far.context import verdicts as judged
from lengthwise.studies.far.gemma import SCALES
from lengthwise.studies.far.repeats import REPEATS
from lengthwise.studies.far.screen import CONTROL, START, question_section, screen_arms
from lengthwise.studies.far.screen import EXPERIMENT as SCREEN
from lengthwise.studies.paired_claims import PairedClaim
from lengthwise.studies.skeleton import Study

EXPERIMENT = replace(SCREEN, kind="far-gemma-repeats", arms=(*screen_arms(START, CONTROL), REPEATS))


def claims_of(results: Results) -> Sequence[PairedClaim]:
    """What the form has to do, and that it makes the right answer more probable: twelve contexts hold few answers."""
    found = claims_on(REPEATS.name, CONTROL, results)
    far = found[0]
    heading = far.quantity.heading.replace("accuracy", "gold")
    gold = replace(
        far,
        place="gold",
        says="it makes the right answer more probable",
        quantity=replace(far.quantity, heading=heading, metric="gold_probability"),
    )
    return [*found, gold]


def verdicts(results: Results) -> Table:
    """Each claim with its mean difference over seeds and documents, and the verdict."""
    return judged(results, claims_of(results))


def sections(results: Results, folder: Path) -> list[Section]:
    """The study as one section of a page."""
    return [question_section(results, "A second model", reference=CONTROL, verdicts=[verdicts(results)])]


FAR_GEMMA_REPEATS = Study(
    title="Does a second model use far context after training with skips and repeats?",
    parts=(EXPERIMENT.part(sections, {name: replace(SCALES[name], seeds=3) for name in SCALES}),),
    takes=("seeds", "steps"),
)
