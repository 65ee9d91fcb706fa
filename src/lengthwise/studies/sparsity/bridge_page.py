"""Does disagreement between more and less context fall where predictions are sparse and local? In neither paper.

Planted tasks have exact answers (`lengthwise.studies.sparsity.bridge`), and models are trained on them. A needle
is k = 1 at a known distance. On books, tokens are compared one by one, and what training forgets is told by what a
token needs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lengthwise.studies import gap_views
from lengthwise.studies.experiments import Arm, Experiment, Scale
from lengthwise.studies.far import screen
from lengthwise.studies.skeleton import Study
from lengthwise.studies.sparsity.bridge_needle import NEEDLE
from lengthwise.studies.sparsity.bridge_planted import PLANTED
from lengthwise.studies.sparsity.bridge_text import TextBridge

_SCE = Arm(
    name="truncation, SCE 0.1",
    changes=(
        "views=truncation",
        "positions=null",
        "objective.detach=none",
        "objective.divergence=sce",
        "objective.alpha=0.1",
    ),
    question="the paper's objective",
)
SMALL = TextBridge(
    experiment=Experiment(
        kind="sparsity-bridge",
        recipe="tiny-books-gap",
        reference=gap_views.BASELINE,
        seeded=True,
        arms=(*gap_views.EXPERIMENT.arms, _SCE),
        notes=(
            "Held-out text: {documents} whole books. {seeds} of one pretrained checkpoint; every arm examines the "
            "same tokens, grouped by what the model before fine-tuning needs.",
            "All arms have YaRN x4. Intervals over documents.",
        ),
    ),
    aligned=("truncation, Jeffreys 10", _SCE.name),
    others=("gap, CE", "gap, teacher 1"),
)
_FORMS = (
    screen.START,
    screen.CONTROL,
    "truncation, Jeffreys",
    "truncation, SCE",
    screen.HALF,
    "skip, CE",
)
REAL = TextBridge(
    # Arms, recipe and seeds are those of training-forms.
    experiment=replace(
        screen.EXPERIMENT,
        kind="sparsity-bridge-real",
        arms=tuple(arm for name in _FORMS for arm in screen.EXPERIMENT.arms if arm.name == name),
        notes=(
            "Every trained arm: LoRA, {recipe.steps} steps of {recipe.batch.size} windows of {recipe.length} tokens "
            "of {recipe.data.corpus}. {seeds}, so nothing is said of the spread over seeds.",
            "Held-out text: {documents} whole documents. Every arm examines the same tokens, grouped by what the "
            "model before training needs. Intervals over documents. Computed in {precision}.",
        ),
    ),
    aligned=("truncation, Jeffreys", "truncation, SCE"),
    others=(screen.HALF, screen.EVERY),
)


def _scale(
    model: str, windows: int, *, seeds: int, length: int = 384, targets: int = 3, **settings: Any
) -> Scale:
    influence = {
        "length": length,
        "short": 32,
        "kept": [1, 2, 4, 8],
        "windows": windows,
        "examined": 32,
        "targets": targets,
        "candidates": 10,
        "gain": 0.5,
        "batch_size": 64,
    }
    return Scale(
        model=model,
        measures={"influence": influence},
        # What a token needs is told by the model before training; of the others its losses are enough.
        trained_measures={"influence": {**influence, "targets": 0}},
        seeds=seeds,
        **settings,
    )


SCALES = {
    "default": _scale("tiny-books", 60, seeds=3),
    "laptop": _scale("tiny-books", 24, seeds=3),
    "smoke": _scale("tiny-books", 2, seeds=1, length=128, steps=2),
}


def _real_scales(text: str, windows: int) -> dict[str, Scale]:
    here: dict[str, Any] = {"seeds": 1, "text": text}
    corpus = f"data.corpus={text}"
    smoke = ("length=64", "positions.target_length=256", corpus)
    return {
        "default": _scale("smollm2-135m", windows, changes=(corpus,), **here),
        "laptop": _scale("smollm2-135m", 8, targets=2, steps=30, changes=(corpus,), **here),
        "smoke": _scale("tiny-books", 3, steps=2, changes=smoke, **here),
    }


# Seven held-out books decide nothing by the rule; 33 files of code do.
REAL_SCALES = {"books": _real_scales("books", 24), "code": _real_scales("code", 40)}
_LEAD = (
    "Alignment of more and less context, from one paper, against sparsity and locality, from the other.",
)
BRIDGE = Study(
    title="Does disagreement fall where predictions are sparse and local?",
    parts=(PLANTED, NEEDLE, SMALL.part(SCALES)),
    lead=_LEAD,
)
BRIDGE_REAL = Study(
    title="What does alignment forget in a real model?",
    parts=(
        REAL.part(REAL_SCALES["books"], heading="Books"),
        REAL.part(REAL_SCALES["code"], folder="code", heading="Code"),
    ),
    lead=_LEAD,
    takes=("seeds", "steps"),
)
