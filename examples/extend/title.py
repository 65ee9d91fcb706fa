"""Title task: a text says its title in its first sentence, and the question asks for it. Nothing is downloaded."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from lengthwise.evaluation.haystack import MADE_UP, Context, background_text, made_up
from lengthwise.evaluation.scoring import contained_share
from lengthwise.evaluation.task import Family, Question

if TYPE_CHECKING:
    from lengthwise.text import Corpus

_TITLES = ("Ashes", "Embers", "Harvest", "Orchids", "Tides", "Voyages")
_TAIL = "\n\nQuestion: What is the title of this text?\nAnswer: Its title is"


def _contexts(settings: Any, corpus: Corpus, length: int, sample: int) -> Iterator[Context]:
    """One question. Ranked are all titles."""
    rng = random.Random(f"{settings.seed}/title/{sample}")
    title = rng.choice(_TITLES)
    facts = [(f"The title of this text is {title}.", 0.0)]
    question = Question(prompt=_TAIL, golds=[title], candidates=list(_TITLES), new_tokens=8, fact=0)
    yield background_text(corpus, rng, tokens=length), facts, [question]


TITLE = Family(
    "title",
    (
        made_up(
            "title_first_sentence",
            _contexts,
            what="the title that the first sentence gives",
            version=1,
            metric="accuracy",
            score=contained_share,
            takes=MADE_UP,
            ranks=True,
        ),
    ),
)
