"""The studies of far context, each with parts that train the same arms and ask something else of them.

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
from lengthwise_studies.far.claims import ANSWERS, BEYOND_SKIPS, COST, FAR, GOLD, LONG_TEXTS, MIDDLE
from lengthwise_studies.far.page import FarPart
from lengthwise_studies.skeleton import Study

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


ON_BOOKS = (CONTROL, REPEATS)
ON_CODE = tuple(changed(arm, "data.corpus=code", name="on code: {}") for arm in ON_BOOKS)


_LONG = {
    "perplexity": {"lengths": [1024, 4096, 8192], "segments": 6},
    "longppl": {"length": 8192, "short": 1024, "stride": 1024, "texts": 4},
    # Half as long again as the trained length, so that a limit at its end can be seen.
    "limit": {"length": 12288, "windows": 3},
}
_SMOKE_LONG = {
    "perplexity": {"lengths": [64, 128], "segments": 2},
    "longppl": {"length": 128, "short": 32, "texts": 2},
    "limit": {"length": 256, "reference": 32, "windows": 2, "passage": 16, "scored": 12},
}
_GEMMA = {"model": "gemma3-270m", "changes": ("positions.target_length=32768",)}
_CODE_NOTE = (
    "Every trained arm: LoRA, {recipe.steps} steps of {recipe.length} tokens of books, or of code where its name "
    "says so. {seeds}."
)
_LONG_NOTE = (
    "Held-out text: {documents} whole documents. All arms predict the same tokens. The key tokens of LongPPL "
    "are those of the model before training. Computed in {precision}."
)


def _with_yarn(kind: str, factor: int, *arms: Arm) -> Experiment:
    """YaRN alone, and each of these arms with it. The first arm is the reference."""
    extend = ("extend.method=yarn", f"extend.factor={factor}")
    extended = [
        replace(arm, name=f"YaRN x{factor}, {arm.name}", changes=(*extend, *(arm.changes or ())))
        for arm in arms
    ]
    alone = Arm(name=f"YaRN x{factor}", method="yarn", factor=float(factor), question="the extension alone")
    return far_experiment(kind, alone, *extended, reference=extended[0].name)


def _beyond(factor: int, length: int, losses: dict[str, Any] = LOSSES) -> dict[str, Scale]:
    """Skips up to the extended length, and prompts within and beyond the trained one: 7,000 and `length` tokens."""
    return far_scales(
        {"eval": questions(lengths=[7000, length], samples=12), "perplexity": losses},
        changes=(f"positions.target_length={factor * TRAINED}",),
    )


PARTS = {
    part.experiment.kind: part
    for part in (
        FarPart(
            "Repeats on longer windows",
            far_experiment(
                "far-repeats", START, CONTROL, HALF, REPEATS, contrasts=((REPEATS.name, HALF.name),)
            ),
            far_scales(
                {
                    "eval": questions(),
                    "perplexity": LOSSES,
                    "recall": {"distances": [2048, 7500], "pairs": 8},
                },
                seeds=3,
            ),
            ((REPEATS, CONTROL, (*ANSWERS, MIDDLE)), (REPEATS, HALF, (BEYOND_SKIPS,))),
        ),
        FarPart(
            "Where someone is",
            far_experiment("far-tracking", START, CONTROL, REPEATS),
            far_scales(tasks=TRACKING, seeds=3),
            ((REPEATS, CONTROL, ANSWERS),),
        ),
        FarPart(
            "Long texts",
            far_experiment("far-long-texts", START, CONTROL, HALF, REPEATS, notes=(NOTES[0], _LONG_NOTE)),
            far_scales(_LONG, smoke=_SMOKE_LONG, seeds=3),
            ((HALF, CONTROL, LONG_TEXTS), (REPEATS, CONTROL, LONG_TEXTS)),
        ),
        FarPart(
            "On source code",
            far_experiment(
                "far-code",
                START,
                *ON_BOOKS,
                *ON_CODE,
                contrasts=((ON_CODE[1].name, ON_CODE[0].name),),
                notes=(_CODE_NOTE, *NOTES[1:]),
            ),
            far_scales(text="code", seeds=3),
            (
                (REPEATS, CONTROL, (*ANSWERS, MIDDLE)),
                (ON_CODE[1], ON_CODE[0], (*ANSWERS, MIDDLE)),
            ),
        ),
        FarPart(
            "A second model",
            far_experiment("far-gemma-repeats", START, CONTROL, REPEATS),
            far_scales(
                {"eval": questions(lengths=[7000], samples=12), "perplexity": LOSSES}, seeds=3, **_GEMMA
            ),
            # Twelve contexts hold few answers, so the probability of the right answer is judged too.
            ((REPEATS, CONTROL, (FAR, COST, GOLD)),),
        ),
        FarPart(
            "Where someone is, on a second model",
            far_experiment("far-gemma-tracking", START, CONTROL, REPEATS),
            far_scales(
                {"eval": questions(*TRACKING, lengths=[7000]), "perplexity": LOSSES}, tasks=TRACKING, **_GEMMA
            ),
        ),
        FarPart(
            "Skips, repeats, and both",
            far_experiment("far-parts", START, CONTROL, HALF, REPEATS, FEWER, NO_SKIP),
            far_scales(),
        ),
        FarPart(
            "Loss, LongPPL and the useful context",
            far_experiment(
                "far-reach", START, CONTROL, HALF, REPEATS, FEWER, NO_SKIP, notes=(NOTES[0], _LONG_NOTE)
            ),
            far_scales(_LONG, smoke=_SMOKE_LONG),
        ),
        FarPart(
            "Beyond the trained length, with YaRN x2",
            _with_yarn("far-extension", 2, CONTROL, HALF),
            _beyond(2, 12_000),
        ),
        FarPart(
            "Beyond the trained length, with YaRN x4",
            _with_yarn("far-yarn-4", 4, CONTROL, REPEATS),
            _beyond(4, 20_000, {"lengths": [1024, 8192, 16384], "segments": 4}),
        ),
    )
}
"""By the kind of their results."""


def _study(title: str, *kinds: str) -> Study:
    return Study(title=title, parts=tuple(PARTS[kind].part() for kind in kinds), takes=("seeds", "steps"))


FAR = _study(
    "Which training makes a model use far context?",
    "far-repeats",
    "far-tracking",
    "far-long-texts",
    "far-code",
)
FAR_PARTS = _study("What does it: the skips or the repeats?", "far-parts", "far-reach")
FAR_GEMMA = _study(
    "Does a second model use far context after training with skips and repeats?",
    "far-gemma-repeats",
    "far-gemma-tracking",
)
