"""Beyond the trained length: does training with skips add to an extension that needs no training?

YaRN by a factor of two doubles what SmolLM2-135M reads. It is measured without training, after cross entropy on
windows of 2,048 tokens, and after the same windows with skips up to the extended length. One seed: a screen.
"""

from __future__ import annotations

from dataclasses import replace

from lengthwise.studies.arms import Arm, Scale
from lengthwise.studies.experiments import Experiment
from lengthwise.studies.far.screen import CONTROL, HALF, SCALES, asking, screen_arms
from lengthwise.studies.far.screen import EXPERIMENT as SCREEN
from lengthwise.studies.far.study_page import far_study
from lengthwise.studies.skeleton import Study

TRAINED = 8192
"""Tokens that SmolLM2-135M was trained for."""


def with_yarn(kind: str, factor: int, *arms: Arm) -> Experiment:
    """The extension alone, and each of these arms with it. The first arm is the reference."""
    extended = f"YaRN x{factor}"
    extend = ("extend.method=yarn", f"extend.factor={factor}")
    return replace(
        SCREEN,
        kind=kind,
        arms=(
            Arm(name=extended, method="yarn", factor=float(factor), question="the extension alone"),
            *(
                replace(arm, name=f"{extended}, {arm.name}", changes=(*extend, *(arm.changes or ())))
                for arm in arms
            ),
        ),
        reference=f"{extended}, {arms[0].name}",
    )


def yarn_study(
    experiment: Experiment, factor: int, *, length: int, losses: dict[str, object] | None = None
) -> Study:
    """Skips up to the extended length, and prompts within and beyond the trained one: 7,000 and `length` tokens."""

    def scale(name: str) -> Scale:
        found = SCALES[name]
        if name == "smoke":
            return found
        found = asking(found, lengths=[7000, length])
        measures = {**found.measures, "perplexity": losses or found.measures["perplexity"]}
        return replace(found, measures=measures, changes=(f"positions.target_length={factor * TRAINED}",))

    return far_study(
        experiment,
        {name: scale(name) for name in SCALES},
        title=f"Does training with skips add to YaRN x{factor}?",
        heading=f"Beyond the trained length, with YaRN x{factor}",
    )


EXPERIMENT = with_yarn("far-extension", 2, *screen_arms(CONTROL, HALF))
FAR_EXTENSION = yarn_study(EXPERIMENT, 2, length=12_000)
