"""Misalignment (Eq. 2): do the predictions depend on how much context is cut off, at which lengths?

For a text x and context lengths l1, l2, independent and uniform over L//2 + 1 .. L (tokens, the current one
included), the mean of SCE(p, q) = [H(p) + H(q)] + [KL(p||q) + KL(q||p)] = entropy + jeffreys, p and q the
next-token distributions after the last l1 and the last l2 tokens of x. In nats. Most of SCE is entropy, so
sharpness; `jeffreys` is what depends on the context.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from annotated_types import Ge, MinLen

from lengthwise.measure.display import Display
from lengthwise.measure.measurement import (
    Item,
    Reader,
    Record,
    WindowMeasurement,
    bos_note,
    window_facts,
    window_words,
)
from lengthwise.measure.statistics import Statistic
from lengthwise.results import Results
from lengthwise.settings import PYTHON_ONLY, Count, Option, Whole, ascending
from lengthwise.text import sample_windows, view

if TYPE_CHECKING:
    from lengthwise.measure.lattice import Lattice
    from lengthwise.models import LoadedModel, Predictor

ESTIMATORS = {
    "lattice": "Eq. 2 from several views of each window, every shared position compared (default)",
    "paper": "Eq. 2 as it is written: sample x, l1 and l2, compare the last tokens; wider intervals",
}

_LATTICE = {
    "needs": "the lattice compares the whole distributions at every position of every view, which no endpoint gives",
    "fix": "--estimator paper, which needs them at one position a view",
}


class Misalignment(WindowMeasurement):
    """Does cutting off early context change the predictions?

    Measures long-short misalignment. The paper's number is SCE = entropy (how sharp the predictions are) +
    jeffreys (how far they disagree). --fail-above checks jeffreys.
    """

    kind = "measure"
    task = "misalignment"
    display = Display(
        title="Misalignment",
        metrics={
            "sce": "the paper's number, the symmetric cross entropy of the two predictions: entropy + jeffreys",
            "entropy": "H(p) + H(q): how uncertain the two predictions are; says nothing about agreement",
            "jeffreys": "KL(p||q) + KL(q||p): how much the two predictions disagree; 0 when they are equal",
            "js": "Jensen-Shannon divergence: disagreement, at most log 2 = 0.693",
            "top1_agreement": "share of positions at which both rank the same token first",
        },
        better={"jeffreys": "lower"},
    )
    fail_above = "jeffreys"
    examples = (
        "lengthwise measure smollm2-135m",
        "lengthwise measure ./my-model --length 512 --length 1024 --out runs/mine",
        "lengthwise measure ./my-model --text notes/ --split all --json > results.json",
        "lengthwise measure ./my-model --fail-above 0.05",
    )

    lengths: Annotated[
        tuple[Annotated[Whole, Ge(4)], ...], MinLen(1), Option("--length", metavar="TOKENS")
    ] = (256, 512, 1024)
    """Context length in tokens, the L of Eq. 2; repeat it for several."""
    windows: Annotated[Count, Option("--limit")] = 16
    """Windows of text at each length."""
    estimator: Literal["lattice", "paper"] = "lattice"
    """paper samples Eq. 2 as it is written; lattice estimates the same with narrower intervals in equal time."""
    views: Annotated[Whole, Ge(2), PYTHON_ONLY] = 3
    """Views of each window that the lattice compares with each other."""

    @property
    def at_once(self) -> int:
        """Windows whose views are read together. Suffixes differ in length, so they are read one by one."""
        return 1 if self.estimator == "paper" else max(1, self.batch_size // self.views)

    def identity(self) -> dict[str, Any]:
        """The paper's estimator has two views, whatever `views` is."""
        return super().identity() | {"views": self.views if self.estimator == "lattice" else 2}

    def check_models(self, model: Predictor, other: Predictor, items: Sequence[Item]) -> None:
        """Refuse an endpoint for the lattice."""
        from lengthwise.models import weights_of

        if self.estimator == "lattice":
            weights_of(model, **_LATTICE)

    def label(self, item: Item) -> str:
        """Windows of one L."""
        return f"windows, L = {item.longest}"

    def items(self, model: Reader, text: Any, other: Reader) -> list[Item]:
        """The windows of each length."""
        from lengthwise.measure.lattice import window_length

        how = self.estimator if self.estimator == "paper" else f"lattice{self.views}"
        # The paper's two suffixes are three quarters of L long on average.
        share = self.views if self.estimator == "lattice" else 1.5
        found: list[Item] = []
        for length in ascending(self.lengths):
            windows = sample_windows(
                text, window_length(length), count=self.windows, seed=self.seed, allow_fewer=True
            )
            found += [
                Item(
                    key=f"misalignment/{how}/L{length}/w{index:04d}",
                    facts={**window_facts(window), "length": length},
                    content=(index, window),
                    tokens=int(share * length),
                    longest=length,
                    stretch=window_length(length),
                )
                for index, window in enumerate(windows)
            ]
        return found

    def score(self, model: Predictor, items: Sequence[Item], other: Predictor) -> Iterator[Record]:
        """The sums of each window's comparisons."""
        from lengthwise.measure.lattice import window_sums
        from lengthwise.models import weights_of

        length = items[0].longest
        if self.estimator == "paper":
            scored = self._paper(model, items, length)
        else:
            scored = self._lattice(weights_of(model, **_LATTICE), items, length)
        for found in scored:
            yield window_sums(found, length)

    def _lattice(self, model: LoadedModel, items: Sequence[Item], length: int) -> Iterator[Lattice]:
        import torch

        from lengthwise.measure.lattice import draw_starts, score_lattice
        from lengthwise.models import naming_bad_logits

        bos_id = self.bos_id(model)
        starts = [draw_starts(self._rng(item), length, self.views) for item in items]
        views = [
            view(item.content[1].ids, start, length, bos_id)
            for item, drawn in zip(items, starts, strict=True)
            for start in sorted(set(drawn))
        ]
        batches = torch.from_numpy(np.stack(views)).split(self.batch_size)
        hidden = torch.cat([model.hidden_states(batch) for batch in batches])
        parts = hidden.split([len(set(drawn)) for drawn in starts])
        for item, drawn, part in zip(items, starts, parts, strict=True):
            with naming_bad_logits(model, window_words(item.content[1])):
                yield score_lattice(part, model.head, drawn, model.vocab_size)

    def _paper(self, model: Predictor, items: Sequence[Item], length: int) -> Iterator[Lattice]:
        from lengthwise.measure.lattice import draw_suffixes, score_suffixes
        from lengthwise.models import naming_bad_logits

        for item in items:
            _, window = item.content
            suffixes = draw_suffixes(self._rng(item), length)
            with naming_bad_logits(model, window_words(window)):
                yield score_suffixes(model, window.ids, suffixes, self.bos_id(model))

    def _rng(self, item: Item) -> np.random.Generator:
        return np.random.default_rng([self.seed, item.longest, item.content[0]])

    def statistics(self, records: Sequence[Record]) -> list[Statistic]:
        """The numbers of each L.

        Rows of task "misalignment", metrics `sce` = `entropy` + `jeffreys`, `js` (nats) and `top1_agreement`
        (share): one row for each L; `jeffreys` and `sce` by two bins of context lengths (`length` and
        `context_other`, each the upper end of its bin, `length` >= `context_other`); `jeffreys` by the row of
        the shorter context (`position` .. `position_end` - 1).
        """
        from lengthwise.measure.lattice import window_statistics

        found: list[Statistic] = []
        for length in ascending(self.lengths):
            some = [record for record in records if record["length"] == length]
            found += window_statistics(some, length) if some else []
        return found

    def notes(self, model: Reader, other: Reader, items: Sequence[Item], results: Results) -> list[str]:
        """The estimator, the BOS, missing windows, and a rope whose frequencies depend on the input's length."""
        from lengthwise.models import LoadedModel
        from lengthwise.models.position_limits import rope_by_input_length

        notes = [
            self._estimator_note(),
            bos_note(self.bos_id(model)),
            *self.few_samples_notes(items),
        ]
        lattice = self.estimator == "lattice" and isinstance(model, LoadedModel)
        if lattice and (method := rope_by_input_length(model.config)) is not None:
            notes.append(
                f"The frequencies of the model's rope method ({method}) depend on the length of the whole input, "
                "so a row inside L tokens is not the prediction after fewer tokens alone; the estimator 'paper' "
                "is exact here."
            )
        return notes

    def _estimator_note(self) -> str:
        if self.estimator == "paper":
            return "Misalignment: one pair of suffixes a window, compared at the last token (the definition)."
        return (
            f"Misalignment: {self.views} views of each window, compared at every shared token where both have "
            "a context in (L/2, L]."
        )
