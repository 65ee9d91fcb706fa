"""What studies of far context train: the model, the recipe, the arms and the questions that they share.

Which training makes a real model use far context that it reads soundly and ignores? SmolLM2-135M was trained for
8,192 tokens. Every arm trains the same LoRA and then answers questions at three depths of a long prompt. No arm
trains on such questions. Arms with planted repeats train something close: the answer follows words that come again.

Sources: the skip is PoSE's. KL(student || teacher) on skipped or rotated views is RoPE-perturbed self-distillation
(arXiv 2604.14339).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lengthwise_studies.arms import Arm, Measures, Scale
from lengthwise_studies.experiments import Experiment

TRAINED = 8192
"""Tokens that SmolLM2-135M was trained for."""
_ALWAYS = ("positions.options={shifted: 0.5}",)
_ANYWHERE = ("views=repeat", "view_options={share: 1.0, source: anywhere, place: anywhere}")
_TRUNCATION = ("views=truncation", "positions=null", "objective.ce_on=both")

START = Arm(name="before", question="the model as it is")
CONTROL = Arm(
    name="no skip, CE", changes=(*_ALWAYS, "objective.ce_on=long"), question="the same windows and steps, CE"
)
HALF = Arm(name="skip in half of the steps, CE", changes=(), question="every other step skips, on average")
EVERY = Arm(name="skip, CE", changes=_ALWAYS, question="PoSE within the trained length")
REPEATS = Arm(
    name="skip + long repeats, CE",
    changes=(*_ANYWHERE, "view_options.passage=128", *_ALWAYS),
    question="every window skips and repeats 128 tokens",
)
FEWER = Arm(
    name="skip in half of the steps + repeats, CE",
    changes=_ANYWHERE,
    question="every window with a skip repeats 64 tokens",
)
NO_SKIP = Arm(
    name="long repeats, no skip, CE",
    # The contiguous view of the same windows.
    changes=(*(REPEATS.changes or ()), "objective.ce_on=long"),
    question="the same text, with its own positions",
)
TRUNCATION_SCE = Arm(
    name="truncation, SCE",
    changes=(*_TRUNCATION, "objective.divergence=sce", "objective.alpha=0.1"),
    question="the paper's form",
)
TRUNCATION_JEFFREYS = Arm(
    name="truncation, Jeffreys",
    changes=(*_TRUNCATION, "objective.divergence=jeffreys", "objective.alpha=10"),
    question="the paper's views, disagreement alone",
)


def changed(arm: Arm, *changes: str, name: str) -> Arm:
    """The arm with further changes of its recipe."""
    return replace(arm, name=name.format(arm.name), changes=(*(arm.changes or ()), *changes))


def far_experiment(kind: str, *arms: Arm, **more: Any) -> Experiment:
    """These arms on one recipe, against the control."""
    return Experiment(
        kind=kind,
        recipe="smollm2-skip",
        seeded=True,
        dtype="fast",
        fast_training=True,
        arms=arms,
        **{"reference": CONTROL.name, "notes": NOTES, **more},
    )


NOTES = (
    "Every trained arm: LoRA, {recipe.steps} steps, each with {recipe.batch.size} x {recipe.length} tokens of books. "
    "A divergence and CE on both views read each window twice. {seeds}.",
    "Held-out text: {documents} whole documents, the background of the questions too. All arms answer the same "
    "questions and predict the same tokens. Computed in {precision}.",
)
NEEDLE = "needle_multi_key"
TRACKING = ("tracking_one_move", "tracking_two_moves")


def questions(*tasks: str, **settings: Any) -> dict[str, Any]:
    """What is asked of every arm: `tasks` with other settings where given."""
    usual = {"lengths": [2048, 7000], "depths": [0.0, 25.0, 50.0], "samples": 24}
    return {"tasks": list(tasks or (NEEDLE,)), "mode": "likelihood", **usual, **settings}


LOSSES = {"lengths": [1024, 2048], "segments": 8}


def far_scales(
    measures: Measures | None = None,
    *,
    smoke: Measures | None = None,
    tasks: tuple[str, ...] = (),
    **settings: Any,
) -> dict[str, Scale]:
    """The scales of a study: `measures`, or questions of `tasks` and short losses; settings of the scale."""
    short = questions(*tasks, lengths=[384], depths=[0.0, 50.0], samples=2)
    changes = ("length=64", "positions.target_length=256")
    return {
        "default": Scale(
            measures=measures or {"eval": questions(*tasks), "perplexity": LOSSES},
            **{"model": "smollm2-135m", **settings},
        ),
        "smoke": Scale(
            measures=smoke or {"eval": short, "perplexity": {"lengths": [64, 128], "segments": 2}},
            **{**settings, "model": "tiny-books", "steps": 2, "changes": changes},
        ),
    }
