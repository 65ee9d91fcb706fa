"""Misalignment (Eq. 2): do the predictions depend on how much context is cut off, at which lengths?

For a text x and context lengths l1, l2, independent and uniform over L//2 + 1 .. L (tokens, the current one
included), the mean of SCE(p, q) = [H(p) + H(q)] + [KL(p||q) + KL(q||p)] = entropy + jeffreys, p and q the
next-token distributions after the last l1 and the last l2 tokens of x. In nats. Most of SCE is entropy, so
sharpness; `jeffreys` is what depends on the context.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Ge, MinLen
from cyclopts import Parameter
from numpy.typing import NDArray

from lengthwise.measure.measurement import LENGTHS, About, Item, Record, WindowMeasurement, grouped, in_groups
from lengthwise.measure.statistics import Statistic
from lengthwise.results import Results
from lengthwise.settings import PYTHON_ONLY, Count, Whole
from lengthwise.subjects.reading import Predictor, Reader, Reading, Want, check_wants
from lengthwise.text import view

ESTIMATORS = {
    "lattice": "Eq. 2 from several views of each window, every shared position compared (default)",
    "paper": "Eq. 2 as it is written: sample x, l1 and l2, compare the last tokens; wider intervals",
}


class Misalignment(WindowMeasurement):
    """Does cutting off early context change the predictions?

    Measures long-short misalignment. The paper's number is SCE = entropy (how sharp the predictions are) +
    jeffreys (how far they disagree). --fail-above checks jeffreys.
    """

    about = About(
        kind="measure",
        task="misalignment",
        title="Misalignment",
        metrics={
            "sce": "the paper's number, the symmetric cross entropy of the two predictions: entropy + jeffreys",
            "entropy": "H(p) + H(q): how uncertain the two predictions are; says nothing about agreement",
            "jeffreys": "KL(p||q) + KL(q||p): how much the two predictions disagree; 0 when they are equal",
            "js": "Jensen-Shannon divergence: disagreement, at most log 2 = 0.693",
            "top1_agreement": "share of positions at which both rank the same token first",
        },
        fail_above="jeffreys",
        examples=(
            "lengthwise measure smollm2-135m",
            "lengthwise measure ./my-model --lengths 512 1024 --out runs/mine",
            "lengthwise measure ./my-model --text notes/ --split all --json > results.json",
            "lengthwise measure ./my-model --fail-above 0.05",
        ),
    )

    lengths: Annotated[tuple[Annotated[Whole, Ge(4)], ...], MinLen(1), Parameter(metavar="TOKENS")] = LENGTHS
    """Context lengths in tokens, the L of Eq. 2."""
    windows: Count = 16
    """Windows of text at each length."""
    estimator: Literal["lattice", "paper"] = "lattice"
    """paper samples Eq. 2 as it is written; lattice estimates the same with narrower intervals in equal time."""
    views: Annotated[Whole, Ge(2), PYTHON_ONLY] = 3
    """Views of each window that the lattice compares with each other."""

    @property
    def at_once(self) -> int:
        """Windows whose views are read together. Suffixes differ in length, so they are read one by one."""
        return 1 if self.estimator == "paper" else max(1, self.batch_size // self.views)

    def facts(self, model: Reader, other: Reader) -> dict[str, Any]:
        """The paper's estimator has two views, whatever `views` is."""
        views = self.views if self.estimator == "lattice" else 2
        return super().facts(model, other) | {"views": views}

    def check_models(self, model: Predictor, other: Predictor, items: Sequence[Item]) -> None:
        """Refuse a model that does not give what the lattice compares."""
        if self.estimator == "lattice":
            needs = "the lattice compares them at every position of every view"
            fix = "--estimator paper, which needs them at one position a view"
            check_wants(model, Want.ROWS, needs=needs, fix=fix)

    def items(self, model: Reader, text: Any, other: Reader) -> list[Item]:
        """The windows of each length."""
        from lengthwise.measure.lattice import window_length

        how = self.estimator if self.estimator == "paper" else f"lattice{self.views}"
        # The paper's two suffixes are three quarters of L long on average.
        share = self.views if self.estimator == "lattice" else 1.5
        return [
            self.item(
                f"{how}/L{length}/w{index:04d}",
                window,
                length,
                tokens=int(share * length),
                content=(index, window.ids),
                length=length,
            )
            for length in sorted(set(self.lengths))
            for index, window in enumerate(self.sampled(text, window_length(length)))
        ]

    def score(self, model: Predictor, items: Sequence[Item], other: Predictor) -> Iterator[Record]:
        """The sums of each window's comparisons."""
        from lengthwise.measure import lattice

        length, bos_id = items[0].longest, self.bos_id(model)
        windows = [item.content[1] for item in items]
        rngs = [np.random.default_rng([self.seed, length, item.content[0]]) for item in items]
        if self.estimator == "paper":
            for ids, rng in zip(windows, rngs, strict=True):
                found = lattice.score_suffixes(model, ids, *lattice.draw_suffixes(rng, length), bos_id)
                yield lattice.window_sums(found, length)
            return
        starts = [lattice.draw_starts(rng, length, self.views) for rng in rngs]
        each = zip(windows, starts, strict=True)
        readings = [
            Reading(tokens=view(ids, start, length, bos_id), want=Want.ROWS)
            for ids, drawn in each
            for start in dict.fromkeys(drawn)
        ]
        reads = [read for some in in_groups(readings, self.batch_size) for read in model.read(some)]
        views = iter([read.rows for read in reads if read.rows is not None])
        for drawn in starts:
            found = lattice.score_lattice([next(views) for _ in set(drawn)], drawn)
            yield lattice.window_sums(found, length)

    def statistics(self, records: Sequence[Record]) -> list[Statistic]:
        """The numbers of each L, whole and in bins.

        `jeffreys` and `sce` by two bins of context lengths (`context` >= `context_other`, each the upper end of its
        bin); `jeffreys` also by the row of the shorter context.
        """
        return [one for length, some in grouped(records, "length") for one in self._numbers(some, length)]

    def _numbers(self, some: Sequence[Record], length: int) -> Iterator[Statistic]:
        from lengthwise.measure.lattice import bin_pairs, context_edges, position_edges

        def number(metric: str, totals: Callable[[Record], list[float]], n: int, **row: Any) -> Statistic:
            return self.statistic(some, totals, metric=metric, length=length, n=n, **row)

        def binned(which: str, metric: str, index: int, **where: Any) -> Statistic:
            n = round(sum(record[which]["cells"][index] for record in some))
            return number(
                metric, lambda r: [r[which][name][index] for name in (metric, "weight")], n, **where
            )

        cells, rows = (sum(record[name] for record in some) for name in ("cells", "rows"))
        parts = ("entropy", "rows", "jeffreys", "pairs")
        yield number("sce", lambda r: [r[name] for name in parts], cells, estimator=_sce)
        yield number("entropy", lambda r: [2 * r["entropy"], r["rows"]], rows)
        yield number("jeffreys", lambda r: [r["jeffreys"], r["pairs"]], cells)
        yield number("js", lambda r: [r["js"], r["pairs"]], cells)
        yield number("top1_agreement", lambda r: [r["agreement"], r["pairs"]], cells, unit="share")
        edges = context_edges(length)
        for metric in ("jeffreys", "sce"):
            for index, (one, other) in enumerate(bin_pairs(edges)):
                yield binned("matrix", metric, index, context=edges[one + 1], context_other=edges[other + 1])
        for index, (begin, end) in enumerate(pairwise(position_edges(length))):
            yield binned("position", "jeffreys", index, position=begin, position_end=end)

    def notes(self, model: Reader, other: Reader, items: Sequence[Item], results: Results) -> list[str]:
        """The estimator, what every measurement says, and a rope whose frequencies depend on the input's length."""
        how, method = "one pair of suffixes a window, compared at the last token (the definition)", None
        if self.estimator == "lattice":
            where = "every shared token where both have a context in (L/2, L]"
            how = f"{self.views} views of each window, compared at {where}"
            method = model.rope_by_length
        notes = [f"Misalignment: {how}.", *super().notes(model, other, items, results)]
        if method is not None:
            notes.append(
                f"The frequencies of the model's rope method ({method}) depend on the length of the whole input, "
                "so a row inside L tokens is not the prediction after fewer tokens alone; the estimator 'paper' "
                "is exact here."
            )
        return notes


def _sce(totals: NDArray[np.float64]) -> NDArray[np.float64]:
    """2 * mean entropy of a row + mean over pairs of their mean Jeffreys divergence."""
    entropy, rows, jeffreys, pairs = totals.T
    return 2 * entropy / rows + jeffreys / pairs
