"""What is trained and measured, as data. Arms, recipes and the term are those of the paper's tables.

`python -m lengthwise_studies.real` runs it; `table.py` prints what was kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from lengthwise.text import Corpus, load_corpus
from lengthwise.training import read_recipe
from lengthwise.training.recipe import Recipe
from lengthwise_studies.arms import Arm
from lengthwise_studies.paper.methods import (
    CLEX,
    EABF,
    ENTROPY,
    JEFFREYS,
    PLAIN,
    SCE,
    UNTRAINED,
    Adjustment,
    controlled_arms,
    term,
)
from lengthwise_studies.paper.sizes import DEPTHS, SIZES, Size
from lengthwise_studies.real.reading import LongPerplexity, SameQuestions

STUDY = "real-geometry"
YARN = Adjustment(name="YaRN", recipe="smollm2-lora", method="yarn")
METHODS = {each.name: each for each in (YARN, CLEX, EABF)}
LIGHTER = term("Jeffreys 1", "jeffreys", 1.0)
AGREEMENT = {YARN.name: JEFFREYS, CLEX.name: LIGHTER.name, EABF.name: LIGHTER.name}
"""The agreement alone, weighted by extension so that it begins at 0.5 to 0.9 nats: CLEX's windows disagree most."""

ASKED = ("needle_multi_key", "chains_0")
"""The tasks that are asked."""
_TEMPERED = (1.0, 2.0)
"""Multiples of T at which the best temperature is fitted too."""
HELD_OUT_TOO = "bible/Jeremiah"
"""Beside the twenty documents of books-20, of which eleven hold 4T + 1 tokens: with it twelve do."""


@dataclass(frozen=True, kw_only=True)
class Design:
    """The whole experiment at one scale; `Size` is that of the paper's tables."""

    size: Size
    segments: int
    """Windows of 4T tokens, each of another held-out document."""
    contexts: int
    """Contexts of each task that each seed's arms are asked about; each holds a question at every depth."""
    asked_at: float = 1.0
    """Tokens of a context as a multiple of T."""

    def recipe(self, method: str, arm: str, seed: int) -> Recipe:
        """The training run of an arm."""
        adjustment = METHODS[method]
        [found] = [each for each in (*controlled_arms(adjustment, self.size), LIGHTER) if each.name == arm]
        assert found.changes is not None
        changes = (
            f"model={self.size.model}",
            *adjustment.changes(self.size, "books-20"),
            "parallel=null",
            *found.changes,
            f"seed={seed}",
        )
        return read_recipe(adjustment.recipe, changes)

    def untrained(self, method: str) -> Arm:
        """The extension alone."""
        return controlled_arms(METHODS[method], self.size)[0]

    def setting(self, method: str) -> str:
        """What rows call the extension: its name and how far it reaches."""
        return f"{method} x{METHODS[method].factor(self.size):g}"

    def tokens(self, multiples: Sequence[float]) -> tuple[int, ...]:
        """Lengths that are given as multiples of T."""
        return tuple(round(times * self.size.trained) for times in multiples)

    @property
    def perplexity(self) -> LongPerplexity:
        """The same targets at every length."""
        return LongPerplexity(
            lengths=self.tokens(self.size.lengths),
            windows=self.segments,
            tempered=self.tokens(_TEMPERED),
        )

    def questions(self, task: str, seed: int) -> SameQuestions:
        """The questions that the arms of a seed share."""
        # Table 7's. Chains come in quarters.
        depths: dict[str, Any] = {"depths": DEPTHS} if task.startswith("needle") else {}
        return SameQuestions(
            tasks=(task,),
            mode="likelihood",
            lengths=self.tokens((self.asked_at,)),
            samples=self.contexts,
            seed=seed,
            **depths,
        )

    @cached_property
    def texts(self) -> tuple[Corpus, Corpus]:
        """The documents that are trained on, and those that are read."""
        train, test = (load_corpus("books-20", split=split) for split in ("train", "test"))
        rule = f"{test.split_rule}, and {HELD_OUT_TOO}"
        held_out = {**test.documents, HELD_OUT_TOO: train.documents[HELD_OUT_TOO]}
        kept = {name: text for name, text in train.documents.items() if name != HELD_OUT_TOO}
        return (
            Corpus.of("books-21", kept, split="train", split_rule=rule),
            Corpus.of("books-21", held_out, split="test", split_rule=rule),
        )


@dataclass(frozen=True)
class Job:
    """One thing that a worker does for its seed: train and read an arm, or ask one that it has trained."""

    what: str
    """train, untrained or ask."""
    method: str
    arm: str
    task: str = ""


def jobs(seed: int, methods: Sequence[str]) -> list[Job]:
    """All jobs of a seed. What is left out when the time is up is at the end.

    First the perplexities of the first extension, then its answers, then the second extension, then the agreement
    alone, which is no claim of the paper. The extensions alone are read once: by seed 0.
    """
    first, *others = methods
    untrained = [Job("untrained", method, UNTRAINED) for method in methods] if seed == 0 else []
    three = (PLAIN, SCE, ENTROPY)
    return [
        *(Job("train", first, arm) for arm in three),
        *(Job("ask", first, arm, task) for task in ASKED for arm in (PLAIN, SCE)),
        *untrained[:1],
        *(Job("train", method, arm) for method in others for arm in three),
        *untrained[1:],
        *(Job("ask", first, ENTROPY, task) for task in ASKED),
        *(Job("train", method, AGREEMENT[method]) for method in methods),
        *(Job("ask", first, AGREEMENT[first], task) for task in ASKED),
    ]


_LENGTHS = (0.25, 0.5, 1.0, 2.0, 4.0)
FULL = Design(
    size=replace(
        SIZES["laptop-smollm2"], window=8192, factor=4, steps=60, batch=1, followed=(), lengths=_LENGTHS
    ),
    segments=12,
    contexts=84,
)
TINY = replace(
    FULL,
    # As if the model had been trained for 128 tokens.
    size=replace(FULL.size, model="tiny-books", trained=128, window=128, steps=1),
    segments=2,
    asked_at=4.0,
    contexts=2,
)
DESIGNS = {"full": FULL, "tiny": TINY}
