"""The demo: where the context of two models ends, a real model before and after training, the small study."""

from __future__ import annotations

from dataclasses import replace

from lengthwise_studies import limits, real_model, tiny_books
from lengthwise_studies.skeleton import Study

# The seeds of `make seeds` measure more. Here the whole page has to be done in a quarter of an hour.
_SMALL_STUDY = replace(
    tiny_books.SCALES["default"], measures=tiny_books.measures(windows=32, segments=24, pairs=64)
)

DEMO = Study(
    title="Do predictions hold as the context grows?",
    lead=(
        "Up to which length can a language model read, and what happens when it is trained so that its predictions "
        "do not depend on how much context is cut off?",
        "SCE, the paper's number, is the sum of two parts: entropy (how sharp the predictions are) and Jeffreys (how "
        "far the two predictions disagree). They are always shown apart, because only the second is alignment.",
    ),
    parts=(
        *limits.PARTS,
        replace(real_model.PART, folder="real-model", heading="A real model"),
        replace(
            tiny_books.PART,
            scales={**tiny_books.SCALES, "default": _SMALL_STUDY},
            folder="tiny-books",
            heading="The small study",
        ),
    ),
)
