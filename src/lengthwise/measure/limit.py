"""The effective context length of a model on a text, without labels: where it stops being sound, and used.

Each window of text is read once from its beginning, up to `length` tokens, and compared with the same model
that reads only the last R/4 + 1 .. R tokens before each target, R = `reference`, a length it was trained for:

    excess(n) = loss(token | all n tokens before it) - loss(the same token | the last R/4 + 1 .. R of them)

After d tokens of the window, for d on a grid, its first passage is repeated; so is one inside the window. Every
second window is read again with other passages in both places, and the repetitions are read after that too:

    benefit(d) = loss(passage | a different passage d tokens back) - loss(passage | the same one)

docs/definitions/measuring.md defines the two limits that follow from these, with what they assume and cannot see.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np
from annotated_types import Ge, MultipleOf
from cyclopts import Parameter
from numpy.typing import NDArray
from pydantic import model_validator

from lengthwise.errors import UsageError
from lengthwise.measure.limit_headlines import LEAST_DOCUMENTS
from lengthwise.measure.limit_rows import limit_notes, limit_rows, limit_statistics
from lengthwise.measure.measurement import About, Item, Record, WindowMeasurement, check_passage, in_groups
from lengthwise.measure.statistics import Statistic
from lengthwise.results import Results, Row
from lengthwise.settings import PYTHON_ONLY, Count, Positive, Share, Whole
from lengthwise.subjects.reading import Branch, Predictor, Reader, Reading
from lengthwise.text import view

if TYPE_CHECKING:
    from torch import Tensor


_BINS_PER_REFERENCE = 8
_STEPS_PER_DOUBLING = 3
_LONGEST, _TIMES_TRAINED = 16384, 8
_MOST_REFERENCE = 1024
_INSIDE = 1 / 8
"""Where the passage inside a window begins, as a share of it: a model may keep more tokens from the beginning than
the first passage has."""
_GRAM = 4
_MOST_ELSEWHERE = 0.5
"""The share of a passage that may occur elsewhere in its window."""


class Limit(WindowMeasurement):
    """Where does the useful context end, on this text?

    Two numbers, without labels. Sound: up to this length all context predicts no worse than its most recent tokens
    alone. Used: up to this distance a repeated passage is still recognised.
    """

    about = About(
        kind="limit",
        task="limit",
        title="Effective context length",
        metrics={
            "sound_up_to": "longest context whose loss is within the tolerance of the loss with recent tokens only",
            "not_sound": "where this is not so, though it is again behind",
            "sound_again": "where it is so again",
            "used_up_to": "distance up to which a repeated passage helps, at the beginning and inside",
            "not_used": "distances at which it does not, though it does again farther back",
            "used_again": "distances at which it does again",
            "beginning_up_to": "distance up to which a passage at the beginning helps, if one inside does less far",
            "excess": "loss with all context - loss of the same tokens with the most recent context only",
            "loss": "cross entropy of the next token with all context",
            "tolerance": "the excess up to which predictions count as sound",
            "used_level": "the benefit from which context counts as used",
            "benefit_nearby": "mean benefit at distances up to the reference",
            "benefit": "what a repeated passage is worth; 0 if the model does not use it",
            "benefit_inside": "the same of a passage that is not at the beginning",
            "recent_loss": "cross entropy with the most recent context only",
            "unigram_loss": "entropy of the token frequencies of a window",
            "trained_length": "the length that the model was trained for, where it is known",
        },
        levels=("tolerance", "used_level", "benefit_nearby", "unigram_loss", "trained_length"),
        examples=(
            "lengthwise limit smollm2-135m --out runs/limit",
            "lengthwise limit ./my-model --text notes/ --split all --max-length 32768",
            "lengthwise limit smollm2-135m --dry-run",
        ),
        one_by_one=True,
        caches=2,
    )

    max_length: Annotated[Count | None, Parameter(metavar="TOKENS")] = None
    """The longest context measured. Default: 16384, or eight times the trained length if that is less."""
    reference: Annotated[
        Annotated[Whole, Ge(2 * _BINS_PER_REFERENCE), MultipleOf(_BINS_PER_REFERENCE)] | None,
        Parameter(metavar="TOKENS"),
    ] = None
    """A length that the model was trained for, to compare with. Default: a quarter of the trained length, at most
    1024."""
    windows: Count = 8
    """Windows of text, from as many documents. Every second one shows how far context is used. Both numbers need
    several documents."""
    tolerance: Positive = 0.1
    """The model counts as sound up to the longest context whose mean loss is at most this many nats per token worse
    than with only the most recent tokens."""
    share: Share = 0.1
    """The model counts as using context up to the distance where the benefit of a repeated passage falls below this
    share of the benefit nearby."""
    passage: Annotated[Whole, Ge(2), PYTHON_ONLY] = 64
    """Tokens in the repeated passage."""
    scored: Annotated[Count, PYTHON_ONLY] = 48
    """Tokens at its end whose loss counts."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_passage(passage=self.passage, scored=self.scored)
        return self

    def resolved(self, model: Reader, other: Reader) -> Self:
        """With `reference`, and `length` in whole blocks of R/2 as far as a table of positions allows."""
        trained, reference = model.trained_length, self.reference
        if reference is None:
            # A quarter of the trained length, as a power of 2.
            reference = 1 << (max(1, min(_MOST_REFERENCE, (trained or 0) // 4)).bit_length() - 1)
        if reference < 2 * _BINS_PER_REFERENCE:
            raise UsageError(
                f"the length that {model.name} was trained for is {trained or 'not known'}",
                expected=f"a reference within it, of at least {2 * _BINS_PER_REFERENCE} tokens, to compare with",
                fix="give --reference",
            )
        if trained is not None and reference > trained:
            raise UsageError(
                f"the reference of {reference} tokens is longer than the {trained} that {model.name} was trained for",
                expected="a length at which its predictions are known to be sound",
                fix=f"give --reference {trained - trained % _BINS_PER_REFERENCE} or less, or leave it out",
            )
        least = max(2 * reference, 4 * self.passage)
        length = self.max_length or max(least, min(_LONGEST, _TIMES_TRAINED * (trained or _LONGEST)))
        allowed = min(length, model.max_positions or length)
        length = allowed - allowed % (reference // 2)
        if length < least:
            raise UsageError(
                f"a longest context of {allowed} tokens is too short to look for a limit",
                expected=f"at least {least}: twice the reference, and four passages",
                fix="give a greater --max-length or a smaller --reference",
            )
        return self.model_copy(update={"reference": reference, "max_length": length})

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Of resolved settings: the longest context, R, and the rows in a bin of the excess, in tokens."""
        assert self.max_length is not None
        assert self.reference is not None
        return self.max_length, self.reference, self.reference // _BINS_PER_REFERENCE

    @property
    def distances(self) -> list[int]:
        """Distances of the repeated passage: three to a doubling from two passages on, and the longest."""
        first, last = 2 * self.passage, self.sizes[0] - self.passage
        steps = int(_STEPS_PER_DOUBLING * np.log2(last / first))
        grid = {round(first * 2 ** (step / _STEPS_PER_DOUBLING)) for step in range(steps + 1)}
        return [*sorted(distance for distance in grid if distance < 0.95 * last), last]

    @property
    def inside(self) -> tuple[int, list[int]]:
        """Where the passage inside the window begins, and its distances: every second one that has room."""
        end = self.sizes[0] - self.passage
        least = max(_INSIDE * self.sizes[0], 4 * self.passage)
        start = next((distance for distance in self.distances if distance >= least), end)
        return start, [distance for distance in self.distances[::2] if start + distance <= end]

    @property
    def asked(self) -> list[tuple[int, int]]:
        """(tokens before a repetition, where its passage begins), ascending."""
        start, inside = self.inside
        found = [(distance, 0) for distance in self.distances]
        return sorted([*found, *((start + distance, start) for distance in inside)])

    def items(self, model: Reader, text: Any, other: Reader) -> list[Item]:
        """Every window; every second one whose passages are nowhere else in it is read `twice`."""
        length, reference, _ = self.sizes
        # The longest context, its targets, and two other passages. First, so that a length without text ends here.
        windows = self.sampled(text, length + 1 + 2 * self.passage)
        branches = len(self.asked) * (self.passage - 1)
        short = len(self._short_views) * reference
        repetitive = [self._is_repetitive(window.ids[: length + 1]) for window in windows]
        fresh = [index for index, known in enumerate(repetitive) if not known]
        # Of so few windows that half of them give no number: as many as a number needs.
        wanted = (len(windows) + 1) // 2
        wanted = max(wanted, LEAST_DOCUMENTS) if len(windows) >= LEAST_DOCUMENTS else wanted
        asked = sorted(fresh, key=lambda index: (index % 2, index))[:wanted]
        found = []
        for index, window in enumerate(windows):
            twice = index in asked
            key = f"L{length}/R{reference}/P{self.passage}/w{index:04d}"
            tokens = length + short + twice * (length + 2 * branches)
            facts: dict[str, Any] = {"twice": twice, "repetitive": repetitive[index]}
            facts |= {"table": model.max_positions, "trained": model.trained_length}
            found.append(self.item(key, window, length, tokens=tokens, **facts))
        return found

    def _is_repetitive(self, ids: NDArray[Any]) -> bool:
        start, inside = self.inside
        starts = [0, start] if inside else [0]
        shares = [told_elsewhere(ids, begin, self.passage, self.scored) for begin in starts]
        return max(shares) > _MOST_ELSEWHERE

    @property
    def _short_views(self) -> list[tuple[int, int]]:
        """(the first token, the first row that is scored) of each short context; it has R tokens."""
        length, reference, _ = self.sizes
        scored = reference * 3 // 4
        return [
            (min(first - reference // 4, length - reference), first)
            for first in range(reference, length, scored)
        ]

    def score(self, model: Predictor, items: Sequence[Item], other: Predictor) -> Iterator[Record]:
        """Sums by bin of `excess` and `loss`, the entropy of the window's tokens; of windows read `twice` the losses
        of the passages by distance, after the `same` ones and after `different` ones, those behind the window's end.
        """
        tokens = partial(view, start=0, length=self.sizes[0], bos_id=self.bos_id(model))
        start, inside = self.inside
        for item in items:
            ids = item.content.ids
            asked = self.asked if item.facts["twice"] else []
            whole, same = self._losses(model, ids, tokens(ids), asked)
            excess = whole - self._short_losses(model, ids)
            record: Record = {
                name: each.unflatten(0, (-1, self.sizes[2])).sum(dim=1).tolist()
                for name, each in (("excess", excess), ("loss", whole))
            }
            record["unigram"] = unigram_loss(ids[: self.sizes[0] + 1])
            if asked:
                other_ids = ids.copy()
                other_ids[: self.passage] = ids[-self.passage :]
                if inside:
                    other_ids[start : start + self.passage] = ids[-2 * self.passage : -self.passage]
                _, different = self._losses(model, ids, tokens(other_ids), asked, scored=False)
                record |= {"same": same, "different": different}
            yield record

    def _short_losses(self, model: Predictor, ids: NDArray[Any]) -> Tensor:
        """The loss of each target beyond R, after the end of its context."""
        import torch

        reference, found = self.sizes[1], []
        for group in in_groups(self._short_views, self.batch_size):
            readings = [
                Reading(
                    tokens=view(ids, start, reference, self.bos_id(model)),
                    labels=ids[first + 1 : start + reference + 1],
                )
                for start, first in group
            ]
            found += [read.losses for read in model.read(readings)]
        return torch.cat(found)

    def _losses(
        self,
        model: Predictor,
        ids: NDArray[Any],
        tokens: NDArray[Any],
        asked: Sequence[tuple[int, int]],
        *,
        scored: bool = True,
    ) -> tuple[Tensor, list[float]]:
        """The losses of the targets beyond R, if `scored`, and those of the passages, summed: of the beginning at
        each distance, then of the one inside.

        `tokens` are read once; by an endpoint, once for each repetition too.
        """
        length, reference, _ = self.sizes
        passages = [(place, ids[start : start + self.passage]) for place, start in asked]
        branches = [
            Branch(place=place, tokens=passage[:-1], labels=passage[-self.scored :])
            for place, passage in passages
        ]
        labels = ids[reference + 1 : length + 1] if scored else ids[:0]
        [read] = model.read([Reading(tokens=tokens, labels=labels, branches=branches)])
        whole, repeated = read.losses, read.branches
        by_start = sorted(zip(asked, repeated, strict=True), key=lambda each: (each[0][1], each[0][0]))
        return whole, [each.sum().item() for _, each in by_start]

    def statistics(self, records: Sequence[Record]) -> list[Statistic]:
        """The two limits, their levels and their curves."""
        return limit_statistics(self, records)

    def rows(self, statistics: Sequence[Statistic], records: Sequence[Record]) -> list[Row]:
        """The numbers; both limits have a value only where the documents support it."""
        return limit_rows(self, super().rows(statistics, records), statistics, records)

    def notes(self, model: Reader, other: Reader, items: Sequence[Item], results: Results) -> list[str]:
        """What the two numbers mean, and what every measurement says."""
        own = limit_notes(self, model.max_positions, items, results)
        return own + super().notes(model, other, items, results)


def told_elsewhere(ids: NDArray[Any], start: int, size: int, scored: int) -> float:
    """The share of a passage's last tokens that also follow the same three tokens elsewhere in the window."""
    tokens = ids.astype(np.int64)
    keys = np.zeros(len(tokens) - _GRAM + 1, dtype=np.int64)
    for offset in range(_GRAM):
        keys = keys * 1_000_003 + tokens[offset : offset + len(keys)]
    first, end = start + size - scored - _GRAM + 1, start + size - _GRAM + 1
    others = np.concatenate([keys[: max(0, start - _GRAM + 1)], keys[start + size :]])
    return float(np.isin(keys[max(0, first) : end], others).mean())


def unigram_loss(ids: NDArray[Any]) -> float:
    """Entropy of a window's token frequencies, in nats, corrected for their small counts (Miller and Madow)."""
    _, counts = np.unique(ids, return_counts=True)
    shares = counts / len(ids)
    return float(-(shares * np.log(shares)).sum() + (len(counts) - 1) / (2 * len(ids)))
