"""Which form of training makes a real model use far context that it reads soundly and ignores?

SmolLM2-135M was trained for 8,192 tokens. Every arm trains the same LoRA on the same windows of 256 tokens and then
answers questions: a number asked for by its key, at three depths of a long prompt. No arm trains on such questions.
Arms with planted repeats train something close to them: the answer follows words that come again. `far-tracking` asks
questions that copying does not answer. Losses at short lengths show what a form costs.

Sources: the skip is PoSE's. KL(student || teacher) on skipped or rotated views is RoPE-perturbed self-distillation
(arXiv 2604.14339).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lengthwise.report.html import Section
from lengthwise.results import Results, Row
from lengthwise.studies.experiments import Arm, Experiment, Scale
from lengthwise.studies.far.study_page import arm_and_seed, arms_and_seeds, far_section, shortest_read
from lengthwise.studies.skeleton import Study

START, CONTROL = "before", "no skip, CE"
HALF, EVERY = "skip in half of the steps, CE", "skip, CE"
CYCLIC = "cyclic, reverse KL, CE long"
_ALWAYS = ("positions.options={shifted: 0.5}",)
_REPEAT = (*_ALWAYS, "views=repeat", "view_options={share: 0.5, passage: 64, place: end}")
_TRUNCATION = ("views=truncation", "positions=null", "objective.ce_on=both")
_REVERSE_KL = ("objective.divergence=reverse_kl", "objective.detach=long", "objective.alpha=1")

EXPERIMENT = Experiment(
    kind="training-forms",
    recipe="smollm2-skip",
    reference=CONTROL,
    seeded=True,
    dtype="fast",
    fast_training=True,
    arms=(
        Arm(name=START, question="the model as it is"),
        Arm(
            name=CONTROL,
            changes=(*_ALWAYS, "objective.ce_on=long"),
            question="the same windows and steps, CE",
        ),
        Arm(name=HALF, changes=(), question="every other step skips, on average"),
        Arm(name=EVERY, changes=_ALWAYS, question="PoSE within the trained length"),
        Arm(
            name="log skip, CE",
            changes=("positions.options={shifted: 0.5, spread: log}",),
            question="small gaps as often as large ones",
        ),
        Arm(
            name="4 skips, CE",
            changes=("positions.options={shifted: 0.5, skips: 4}",),
            question="four skips in each window",
        ),
        Arm(
            name="skip + repeats, CE",
            changes=_REPEAT,
            question="and a passage that comes again behind the skip",
        ),
        Arm(
            name="log skip + repeats, CE",
            changes=(*_REPEAT, "positions.options.spread=log", "view_options.place=anywhere"),
            question="small gaps as often as large ones, repeats anywhere behind the skip",
        ),
        Arm(
            name="2 skips + repeats from anywhere, CE",
            changes=(
                *_REPEAT,
                "positions.options.skips=2",
                "view_options.source=anywhere",
                "view_options.place=anywhere",
            ),
            question="repeats of near, middle and far passages, so that distance does not tell",
        ),
        Arm(
            name="skip, reverse KL, CE long",
            changes=(*_ALWAYS, *_REVERSE_KL, "objective.ce_on=long"),
            question="the published form, with skips up to the trained length",
        ),
        Arm(
            name=CYCLIC,
            changes=(
                "views=cyclic",
                "positions=null",
                *_REVERSE_KL,
                "objective.ce_on=long",
            ),
            question="the published form with rotated windows",
        ),
        Arm(
            name="truncation, SCE",
            changes=(*_TRUNCATION, "objective.divergence=sce", "objective.alpha=0.1"),
            question="the paper's form",
        ),
        Arm(
            name="truncation, Jeffreys",
            changes=(*_TRUNCATION, "objective.divergence=jeffreys", "objective.alpha=10"),
            question="the paper's views, disagreement alone",
        ),
    ),
    notes=(
        "Every trained arm: LoRA, {recipe.steps} steps, each with {recipe.batch.size} x {recipe.length} tokens of "
        "books. A divergence and CE on both views read each window twice. {seeds}.",
        "Held-out text: {documents} whole documents, the background of the questions too. All arms answer the same "
        "questions and predict the same tokens. Computed in {precision}.",
    ),
)

SCALES = {
    "default": Scale(
        model="smollm2-135m",
        changes=("length=256", "batch.size=2"),
        measures={
            "eval": {
                "tasks": ["needle_multi_key"],
                "mode": "likelihood",
                "lengths": [2048, 7000],
                "depths": [0.0, 25.0, 50.0],
                "samples": 12,
            },
            "perplexity": {"lengths": [1024, 2048], "segments": 8},
        },
    ),
    "smoke": Scale(
        model="tiny-books",
        measures={
            "eval": {
                "tasks": ["needle_multi_key"],
                "mode": "likelihood",
                "lengths": [384],
                "depths": [0.0, 50.0],
                "samples": 2,
            },
            "perplexity": {"lengths": [64, 128], "segments": 2},
        },
        steps=2,
        changes=("length=64", "positions.target_length=256"),
    ),
}


def sections(results: Results, folder: Path) -> list[Section]:
    """The study as one section of a page."""
    section = far_section(results, "Training forms", reference=CONTROL)
    return [replace(section, paragraphs=[*section.paragraphs, *reading(results)])]


def screen_arms(*names: str) -> tuple[Arm, ...]:
    """Arms of the screen, in its order."""
    return tuple(arm for arm in EXPERIMENT.arms if arm.name in names)


def asking(scale: Scale, **settings: Any) -> Scale:
    """The scale with these settings of its questions."""
    asked = {**scale.measures["eval"], **settings}
    return replace(scale, measures={**scale.measures, "eval": asked})


def reading(results: Results) -> list[str]:
    """Which arms answer more questions than the control, and what that costs; made from the numbers."""
    longest = max(results.config["measures"]["eval"]["lengths"])
    shortest = shortest_read(results)
    said = []
    for arm, seed in arms_and_seeds(results, CONTROL):
        own = [row for row in results.rows if (row.arm, row.seed, row.reference) == (arm, seed, CONTROL)]
        answered = _one(own, "accuracy", longest)
        cost = _one(own, "loss", shortest)
        if answered is None or cost is None or answered.value is None or cost.value is None:
            continue
        low, high = answered.ci_low, answered.ci_high
        clear = low is not None and high is not None and (low > 0 or high < 0)
        said.append(
            f"{arm_and_seed(arm, seed)}: accuracy at {longest:,} tokens {answered.value:+.2f}"
            f"{'' if clear else ' (not more than noise)'}, loss at {shortest:,} tokens {cost.value:+.3f}."
        )
    return said


def _one(rows: Sequence[Row], metric: str, length: int) -> Row | None:
    return next(
        (
            row
            for row in rows
            if (row.metric, row.length, row.depth, row.position) == (metric, length, None, None)
        ),
        None,
    )


TRAINING_FORMS = Study(
    title="Which form of training makes a model use far context?",
    parts=(EXPERIMENT.part(sections, SCALES),),
    takes=("seeds", "steps"),
)
