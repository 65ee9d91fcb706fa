"""Does a weighting of the cross entropy add to skips and repeats? One seed: a screen.

A weighting compares the losses of both views, so it reads each window twice. Weights by position, the control,
changed nothing in the screen; they are needed only where another weighting gains. A finished `far-repeats` has the
arms without weights: `--arms-from`.

Sources: LongCE (ICLR 2025); dense and sparse weights are those of Helm et al. (Findings of NAACL 2025).
"""

from __future__ import annotations

from dataclasses import replace

from lengthwise.studies.far.repeats import ONE_SEED, REPEATS
from lengthwise.studies.far.screen import CONTROL, START, screen_arms
from lengthwise.studies.far.screen import EXPERIMENT as SCREEN
from lengthwise.studies.far.study_page import far_study

_WHAT = {
    "longce": "CE weighted by how much the skip hurts a token",
    "dense": "by how much the skip changes its loss",
    "sparse": "only the fifth of the tokens that it changes most",
}
WEIGHTED = tuple(
    replace(
        REPEATS,
        name=f"{REPEATS.name}, {weighting}",
        changes=(*(REPEATS.changes or ()), f"objective.weighting={weighting}"),
        question=what,
    )
    for weighting, what in _WHAT.items()
)
EXPERIMENT = replace(
    SCREEN,
    kind="far-weightings",
    arms=(*screen_arms(START, CONTROL), REPEATS, *WEIGHTED),
    contrasts=tuple((arm.name, REPEATS.name) for arm in WEIGHTED),
)


FAR_WEIGHTINGS = far_study(
    EXPERIMENT,
    ONE_SEED,
    title="Does a weighting of the cross entropy add to skips and repeats?",
    heading="Weightings of the cross entropy",
)
