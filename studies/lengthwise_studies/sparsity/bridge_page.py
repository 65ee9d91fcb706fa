"""Does disagreement between more and less context fall where predictions are sparse and local? In neither paper.

Tokens of real text are compared one by one, and what training forgets is told by what a token needs.
"""

from __future__ import annotations

from typing import Any

from lengthwise_studies.arms import Scale
from lengthwise_studies.far.arms import (
    CONTROL,
    EVERY,
    HALF,
    START,
    TRUNCATION_JEFFREYS,
    TRUNCATION_SCE,
    far_experiment,
)
from lengthwise_studies.skeleton import Study
from lengthwise_studies.sparsity.bridge_text import TextBridge

REAL = TextBridge(
    experiment=far_experiment(
        "sparsity-bridge-real",
        START,
        CONTROL,
        TRUNCATION_JEFFREYS,
        TRUNCATION_SCE,
        HALF,
        EVERY,
        notes=(
            "Every trained arm: LoRA, {recipe.steps} steps of {recipe.batch.size} windows of {recipe.length} tokens "
            "of {recipe.data.corpus}. {seeds}, so nothing is said of the spread over seeds.",
            "Held-out text: {documents} whole documents. Every arm examines the same tokens, grouped by what the "
            "model before training needs. Intervals over documents. Computed in {precision}.",
        ),
    ),
    aligned=(TRUNCATION_JEFFREYS.name, TRUNCATION_SCE.name),
    others=(HALF.name, EVERY.name),
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
BRIDGE_REAL = Study(
    title="What does alignment forget in a real model?",
    parts=(
        REAL.part(REAL_SCALES["books"], heading="Books"),
        REAL.part(REAL_SCALES["code"], folder="code", heading="Code"),
    ),
    lead=(
        "Alignment of more and less context, from one paper, against sparsity and locality, from the other.",
    ),
    takes=("seeds", "steps"),
)
