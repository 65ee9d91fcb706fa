"""Do the two forms that gained most in the screen make a real model use far context? Three seeds against a control.

What a form has to do, as claims that `studies.verdicts` judges: answer more questions at the far end of the trained
length than cross entropy on the same tokens, cost at most 0.01 nats at short lengths, and lose no questions there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lengthwise.report.html import Section
from lengthwise.report.tables import Table
from lengthwise.results import Results
from lengthwise.studies.experiments import Experiment, Scale
from lengthwise.studies.far.screen import (
    CONTROL,
    CYCLIC,
    HALF,
    SCALES,
    START,
    question_section,
    screen_arms,
)
from lengthwise.studies.far.screen import EXPERIMENT as SCREEN
from lengthwise.studies.paired_claims import PairedClaim, Quantity
from lengthwise.studies.skeleton import Study
from lengthwise.studies.verdicts import judge, verdict_table

FORMS = (HALF, CYCLIC)
"""The recommended form, and the one that gained most and costs more."""
EXPERIMENT = Experiment(
    kind="far-context",
    recipe=SCREEN.recipe,
    reference=CONTROL,
    seeded=True,
    dtype="fast",
    fast_training=True,
    arms=screen_arms(START, CONTROL, *FORMS),
    notes=SCREEN.notes,
)
COST = 0.01
"""Nats a token that a form may cost at the shortest length."""
SHORT_LOSS = 0.05
"""Share of the short questions that it may lose."""


def claims_of(results: Results) -> list[PairedClaim]:
    """What each form of the run has to do."""
    return [
        claim
        for form in FORMS
        if form in results.config["arms"]
        for claim in claims_on(form, CONTROL, results)
    ]


def claims_on(form: str, control: str, results: Results) -> list[PairedClaim]:
    """At the lengths that were measured; lengths are multiples of the shortest."""
    measures = results.config["measures"]
    asked, read = measures["eval"]["lengths"], measures["perplexity"]["lengths"]
    unit = min(read)

    def accuracy(length: int) -> Quantity:
        return Quantity(
            heading=f"accuracy at {length:,}",
            task="needle_multi_key",
            metric="accuracy",
            times=length / unit,
            unit="share",
        )

    loss = Quantity(heading=f"loss at {unit:,}", task="perplexity", metric="loss", times=1)
    either: dict[str, Any] = {"source": None, "arm": form, "against": control}
    found = [
        PairedClaim(
            place="far", says="it answers more", quantity=accuracy(max(asked)), direction="higher", **either
        ),
        PairedClaim(
            place="cost",
            says=f"it costs at most {COST:g} nats",
            quantity=loss,
            direction="not higher",
            margin=COST,
            **either,
        ),
    ]
    if min(asked) < max(asked):
        found.append(
            PairedClaim(
                place="near",
                says=f"it loses at most {100 * SHORT_LOSS:g} points",
                quantity=accuracy(min(asked)),
                direction="not lower",
                margin=SHORT_LOSS,
                **either,
            )
        )
    return found


def verdicts(results: Results, claims: Sequence[PairedClaim] | None = None) -> Table:
    """Each claim with its mean difference over seeds and documents, and the verdict."""
    unit = min(results.config["measures"]["perplexity"]["lengths"])
    judged = judge(claims_of(results) if claims is None else claims, results.rows, length=unit)
    return verdict_table(judged, caption="What a form has to do")


def sections(results: Results, folder: Path) -> list[Section]:
    """The study as one section of a page."""
    title = "The forms that gained most"
    return [question_section(results, title, reference=CONTROL, verdicts=[verdicts(results)])]


def _scale(name: str) -> Scale:
    """Three seeds, and three times the contexts of the screen: twelve can only see a difference of 0.39."""
    scale = SCALES[name]
    asked = dict(scale.measures["eval"])
    if name == "default":
        asked["samples"] = 36
    return replace(scale, seeds=3, measures={**scale.measures, "eval": asked})


FAR_CONTEXT = Study(
    title="Which forms make a model use far context?",
    parts=(EXPERIMENT.part(sections, {name: _scale(name) for name in SCALES}),),
    takes=("seeds", "steps"),
)
