"""What the paper claims, judged on a real model at the paper's geometry: the kept run of this package.

Each extension is a setting. All lengths predict the same tokens, so one arm's long text is compared with another's
short one, as the rebuttal's question on truncation asks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lengthwise.measure.statistics import estimate_difference
from lengthwise.results import Row
from lengthwise_studies.claims import OTHER, Claim, Judged, judge
from lengthwise_studies.paired_claims import Measured, Paired
from lengthwise_studies.paper.methods import CLEX, PLAIN, SCE
from lengthwise_studies.paper.rebuttal import TRUNCATION, within
from lengthwise_studies.paper.sizes import loss, loss_against
from lengthwise_studies.paper.statements import Setting, claim
from lengthwise_studies.real.design import FULL, YARN
from lengthwise_studies.real.table import Kept, Line, Place

SETTINGS = {
    method.name: Setting(adjustment=method, name=FULL.setting(method.name)) for method in (CLEX, YARN)
}
"""CLEX is the paper's, at T; YaRN is ours, and its training is settled in the few steps of this run."""


def _claims(setting: Setting) -> Iterator[Claim[Paired]]:
    says = f"{SCE} lowers the loss at {{:g}}T"
    paper = (5.88, 6.12) if setting.adjustment is CLEX else None
    yield claim("Table 4", says.format(2), loss(2), "lower", of=setting, paper=paper)
    yield claim("Table 4", says.format(4), loss(4), "lower", of=setting)
    for times in (0.25, 0.5, 1.0):
        yield within(times, of=setting)
    truncated = "cross entropy reading the last T"
    yield claim(
        TRUNCATION,
        f"reading 4T with the term has a lower loss than {truncated}",
        loss_against(4, 1),
        "lower",
        of=setting,
    )
    yield claim(
        TRUNCATION,
        f"{truncated} has a lower loss than reading 4T",
        loss_against(1, 4),
        "lower",
        PLAIN,
        PLAIN,
        of=setting,
        term=OTHER,
    )


CLAIMS = tuple(one for setting in SETTINGS.values() for one in _claims(setting))


def rows(kept: Kept) -> list[Row]:
    """The paired differences in the loss that the claims are about."""
    found: list[Row] = []
    for setting in SETTINGS.values():
        lines = {arm: (setting.name, arm) for arm in (PLAIN, SCE)}
        for place in kept.places("perplexity", "loss"):
            found += _differences(kept, lines[SCE], place, lines[PLAIN], place)
        at = {place[2] / kept.trained: place for place in kept.places("perplexity", "loss")}
        for arm, times, other in ((SCE, 4, 1), (PLAIN, 1, 4)):
            found += _differences(kept, lines[arm], at[times], lines[PLAIN], at[other])
    return found


def _differences(kept: Kept, line: Line, place: Place, other: Line, other_place: Place) -> Iterator[Row]:
    ours, theirs = kept.of(line, place), kept.of(other, other_place)
    for seed in ours.keys() & theirs.keys():
        yield replace(
            estimate_difference(ours[seed], theirs[seed]),
            arm=": ".join(line),
            reference=": ".join(other),
            seed=seed,
            context_other=None if place == other_place else other_place[2],
        )


def judged(kept: Kept) -> list[Judged]:
    """The verdicts; Holm's correction is over all of them."""
    return judge(CLAIMS, Measured(rows=rows(kept), length=kept.trained))
