"""What the paper claims, judged on the kept rows of a real model at the paper's geometry."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lengthwise.measure.statistics import estimate_difference
from lengthwise.results import Row
from lengthwise_studies.claims import Judged, judge
from lengthwise_studies.paired_claims import Measured
from lengthwise_studies.paper.methods import PLAIN, SCE
from lengthwise_studies.real.study import REAL
from lengthwise_studies.real.table import Kept, Line, Place


def rows(kept: Kept) -> list[Row]:
    """The paired differences in the loss that the claims are about."""
    found: list[Row] = []
    places = kept.places("perplexity", "loss")
    at = {place[2] / kept.trained: place for place in places}
    for setting in REAL.settings:
        sce, plain = (setting.name, SCE), (setting.name, PLAIN)
        for place in places:
            found += _differences(kept, sce, place, plain, place)
        for line, times, other in ((sce, 4, 1), (plain, 1, 4)):
            found += _differences(kept, line, at[times], plain, at[other])
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
    return judge(REAL.claims, Measured(rows=rows(kept), length=kept.trained))
