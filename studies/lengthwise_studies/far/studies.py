"""The studies of far context, each with parts that train the same arms and ask something else of them.

Which training makes a real model use far context that it reads soundly and ignores? SmolLM2-135M was trained for
8,192 tokens. Every arm trains the same LoRA and then answers questions at three depths of a long prompt. No arm
trains on such questions. Arms with planted repeats train something close: the answer follows words that come again.

Sources: the skip is PoSE's. KL(student || teacher) on skipped or rotated views is RoPE-perturbed self-distillation
(arXiv 2604.14339).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from lengthwise_studies.arms import Arm, Measures, Scale
from lengthwise_studies.contrasts import Contrast
from lengthwise_studies.experiments import Experiment
from lengthwise_studies.far.claims import (
    ANSWERS,
    BEYOND_SKIPS,
    COST,
    GOLD,
    LONG_TEXTS,
    MIDDLE,
    MORE,
    Comparison,
)
from lengthwise_studies.far.page import FarPart
from lengthwise_studies.skeleton import Study

TRAINED = 8192
"""Tokens that SmolLM2-135M was trained for."""
_ALWAYS = ("positions.options={shifted: 0.5}",)
_ANYWHERE = ("views=repeat", "view_options={share: 1.0, source: anywhere, place: anywhere}")
_TRUNCATION = ("views=truncation", "positions=null", "objective.ce_on=both")

START = Arm(name="before", question="the model as it is")
CONTROL = Arm("no skip, CE", "the same windows and steps, CE", (*_ALWAYS, "objective.ce_on=long"))
HALF = Arm(name="skip in half of the steps, CE", changes=(), question="every other step skips, on average")
EVERY = Arm(name="skip, CE", changes=_ALWAYS, question="PoSE within the trained length")
_LONG_REPEATS = (*_ANYWHERE, "view_options.passage=128", *_ALWAYS)
REPEATS = Arm("skip + long repeats, CE", "every window skips and repeats 128 tokens", _LONG_REPEATS)
_SHORT = "every window with a skip repeats 64 tokens"
FEWER = Arm("skip in half of the steps + repeats, CE", _SHORT, _ANYWHERE)
# The contiguous view of the same windows.
_CONTIGUOUS = (*_LONG_REPEATS, "objective.ce_on=long")
NO_SKIP = Arm("long repeats, no skip, CE", "the same text, with its own positions", _CONTIGUOUS)
_SCE = (*_TRUNCATION, "objective.divergence=sce", "objective.alpha=0.1")
TRUNCATION_SCE = Arm("truncation, SCE", "the paper's form", _SCE)
_JEFFREYS = (*_TRUNCATION, "objective.divergence=jeffreys", "objective.alpha=10")
TRUNCATION_JEFFREYS = Arm("truncation, Jeffreys", "the paper's views, disagreement alone", _JEFFREYS)


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


LOSSES = {"lengths": [1024, 2048], "windows": 8}


ON_BOOKS = (CONTROL, REPEATS)
ON_CODE = tuple(
    replace(arm, name=f"on code: {arm.name}", changes=(*(arm.changes or ()), "data.corpus=code"))
    for arm in ON_BOOKS
)
_GEMMA: dict[str, Any] = {"model": "gemma3-270m", "changes": ("positions.target_length=32768",)}
_CODE_NOTE = (
    "Every trained arm: LoRA, {recipe.steps} steps of {recipe.length} tokens of books, or of code where its name "
    "says so. {seeds}."
)
_LONG_TEXTS: dict[str, Any] = {
    "measures": {
        "perplexity": {"lengths": [1024, 4096, 8192], "windows": 6},
        "longppl": {"max_length": 8192, "short": 1024, "stride": 1024, "windows": 4},
        # Half as long again as the trained length, so that a limit at its end can be seen.
        "limit": {"max_length": 12288, "windows": 3},
    },
    "smoke": {
        "perplexity": {"lengths": [64, 128], "windows": 2},
        "longppl": {"max_length": 128, "short": 32, "windows": 2},
        "limit": {"max_length": 256, "reference": 32, "windows": 2, "passage": 16, "scored": 12},
    },
    "notes": (
        NOTES[0],
        "Held-out text: {documents} whole documents. All arms predict the same tokens. The key tokens of LongPPL "
        "are those of the model before training. Computed in {precision}.",
    ),
}


def _part(
    kind: str,
    heading: str,
    arms: Sequence[Arm],
    *claims: Comparison,
    measures: Measures | None = None,
    smoke: Measures | None = None,
    tasks: tuple[str, ...] = (),
    reference: Arm = CONTROL,
    notes: tuple[str, ...] = NOTES,
    **settings: Any,
) -> FarPart:
    """These arms and what is measured of them: questions of `tasks` and short losses unless `measures` has others.

    Claims have three seeds. `settings` are those of the scale.
    """
    pairs = [(form.name, control.name) for form, control, _ in claims if control is not reference]
    # A dry run counts the words of a small tokenizer, of which the longest prompt has 441.
    asked = questions(*tasks, lengths=[448], depths=[0.0, 50.0], samples=2)
    scale = Scale(
        measures=measures or {"eval": questions(*tasks), "perplexity": LOSSES},
        seeds=3 if claims else 1,
        **{"model": "smollm2-135m", **settings},
    )
    small = replace(
        scale,
        model="tiny-books",
        measures=smoke or {"eval": asked, "perplexity": {"lengths": [64, 128], "windows": 2}},
        steps=2,
        changes=("length=64", "positions.target_length=256"),
    )
    contrasts = tuple(Contrast(arm=arm, against=against) for arm, against in pairs)
    compared = {"reference": reference.name, "contrasts": contrasts}
    experiment = far_experiment(kind, *arms, notes=notes, **compared)
    return FarPart(heading, experiment, {"default": scale, "smoke": small}, claims)


def _beyond(kind: str, factor: int, length: int, *arms: Arm, losses: Mapping[str, Any] = LOSSES) -> FarPart:
    """YaRN alone, and each of these arms with it; the first of them is the reference.

    Skips reach the extended length. Prompts lie within and beyond the trained one: 7,000 and `length` tokens.
    """
    yarn, changes = f"YaRN x{factor}", ("extend.method=yarn", f"extend.factor={factor}")
    alone = Arm(name=yarn, method="yarn", factor=float(factor), question="the extension alone")
    extended = [
        replace(arm, name=f"{yarn}, {arm.name}", changes=(*changes, *(arm.changes or ()))) for arm in arms
    ]
    return _part(
        kind,
        f"Beyond the trained length, with {yarn}",
        [alone, *extended],
        reference=extended[0],
        measures={"eval": questions(lengths=[7000, length], samples=12), "perplexity": losses},
        changes=(f"positions.target_length={factor * TRAINED}",),
    )


_THREE, _FOUR = (START, CONTROL, REPEATS), (START, CONTROL, HALF, REPEATS)
_SIX = (*_FOUR, FEWER, NO_SKIP)
_PARTS = (
    _part(
        "far-repeats",
        "Repeats on longer windows",
        _FOUR,
        (REPEATS, CONTROL, (*ANSWERS, MIDDLE)),
        (REPEATS, HALF, (BEYOND_SKIPS,)),
        measures={
            "eval": questions(),
            "perplexity": LOSSES,
            "recall": {"distances": [2048, 7500], "windows": 8},
        },
    ),
    _part("far-tracking", "Where someone is", _THREE, (REPEATS, CONTROL, ANSWERS), tasks=TRACKING),
    _part(
        "far-long-texts",
        "Long texts",
        _FOUR,
        *((form, CONTROL, LONG_TEXTS) for form in (HALF, REPEATS)),
        **_LONG_TEXTS,
    ),
    _part(
        "far-code",
        "On source code",
        (START, *ON_BOOKS, *ON_CODE),
        *((form, control, (*ANSWERS, MIDDLE)) for control, form in (ON_BOOKS, ON_CODE)),
        notes=(_CODE_NOTE, *NOTES[1:]),
        text="code",
    ),
    _part(
        "far-gemma-repeats",
        "A second model",
        _THREE,
        # Twelve contexts hold few answers, so the probability of the right answer is judged too.
        (REPEATS, CONTROL, (MORE, COST, GOLD)),
        measures={"eval": questions(lengths=[7000], samples=12), "perplexity": LOSSES},
        **_GEMMA,
    ),
    _part(
        "far-gemma-tracking",
        "Where someone is, on a second model",
        _THREE,
        measures={"eval": questions(*TRACKING, lengths=[7000]), "perplexity": LOSSES},
        tasks=TRACKING,
        **_GEMMA,
    ),
    _part("far-parts", "Skips, repeats, and both", _SIX),
    _part("far-reach", "Loss, LongPPL and the useful context", _SIX, **_LONG_TEXTS),
    _beyond("far-extension", 2, 12_000, CONTROL, HALF),
    _beyond("far-yarn-4", 4, 20_000, CONTROL, REPEATS, losses={"lengths": [1024, 8192, 16384], "windows": 4}),
)
PARTS = {part.experiment.kind: part for part in _PARTS}
"""By the kind of their results."""


def _study(title: str, *kinds: str) -> Study:
    return Study(title=title, parts=tuple(PARTS[kind].part() for kind in kinds), takes=("seeds", "steps"))


_FORMS = ("far-repeats", "far-tracking", "far-long-texts", "far-code")
FAR = _study("Which training makes a model use far context?", *_FORMS)
FAR_PARTS = _study("What does it: the skips or the repeats?", "far-parts", "far-reach")
_SECOND = "Does a second model use far context after training with skips and repeats?"
FAR_GEMMA = _study(_SECOND, "far-gemma-repeats", "far-gemma-tracking")
