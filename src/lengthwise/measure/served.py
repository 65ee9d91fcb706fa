"""A served model against its checkpoint: log-probabilities of the same tokens, by position and by length.

Both read the same views of the same text. For a token t with context x,

    d = log p_served(t | x) - log p_checkpoint(t | x)      (nats)

`difference` is the mean of |d|, `shift` the mean of -d: how much higher the served model's loss is. Rounding gives
differences too (16-bit weights about 0.01 nats, fp32 about 0.00001), so a bin of positions counts as equal while its
`difference` is at most a tolerance.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from annotated_types import Ge, MinLen

from lengthwise.errors import UsageError
from lengthwise.files import is_url
from lengthwise.measure.display import Display
from lengthwise.measure.measurement import (
    Item,
    Reader,
    Record,
    WindowMeasurement,
    bos_note,
    by_size,
    window_facts,
    window_words,
)
from lengthwise.measure.statistics import Statistic
from lengthwise.results import Results, Row
from lengthwise.settings import Count, Option, Positive, Subject, Whole, ascending
from lengthwise.text import sample_windows, view

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from lengthwise.models import Predictor
    from lengthwise.text import Window

_FIRST_EDGE = 16


class Served(WindowMeasurement):
    """Does the served model predict as its checkpoint does, at every length?

    Reads the same tokens with the checkpoint here and with the endpoint, and compares the log-probability of every
    token. The tokenizer is the checkpoint's. --fail-above checks the mean absolute difference (nats per token).
    """

    kind = "served"
    task = "served"
    display = Display(
        title="Served model against its checkpoint",
        metrics={
            "equal_up_to": "tokens of context up to which the difference stays within the tolerance",
            "difference": "mean |log p served - log p checkpoint| of the same tokens",
            "largest": "the largest difference of one token",
            "tolerance": "the difference up to which a bin of positions counts as equal",
            "shift": "loss of the served model - loss of the checkpoint: above 0 it predicts worse",
            "loss_served": "cross entropy of the next token, served",
            "loss_checkpoint": "cross entropy of the next token, from the checkpoint",
        },
    )
    other_is = "served"
    fail_above = "difference"
    examples = (
        "lengthwise compare ./my-model http://127.0.0.1:8000/v1",
        "lengthwise compare ./my-model http://127.0.0.1:8000/v1 --length 4096 --length 16384 --out runs/served",
        "lengthwise compare ./my-model http://127.0.0.1:8000/v1 --fail-above 0.05",
    )
    not_of_the_run = ("tokenizer",)

    endpoint: Annotated[str, Option(on="argument", metavar="ENDPOINT")]
    """URL of the server's API, mostly ending in /v1. Its key: LENGTHWISE_API_KEY, else OPENAI_API_KEY."""
    lengths: Annotated[
        tuple[Annotated[Whole, Ge(2)], ...], MinLen(1), Option("--length", metavar="TOKENS")
    ] = (1024, 4096)
    """Tokens of the windows; repeat it for several. Differences are found up to the greatest."""
    windows: Annotated[Count, Option("--limit")] = 4
    """Windows of text, from as many documents; each is read at every length."""
    tolerance: Positive = 0.05
    """Mean absolute difference, in nats per token, up to which a bin of positions counts as equal."""

    def check_subject(self, run: Subject) -> Subject:
        """A checkpoint comes first and an endpoint second; the served name is the endpoint's, not the checkpoint's.

        Raises:
            UsageError: the sides are others, or the checkpoint gets another tokenizer.
        """
        if is_url(run.model) or not is_url(self.endpoint):
            raise UsageError(
                f"{run.model} and {self.endpoint} are not a checkpoint and an endpoint",
                expected="lengthwise compare CHECKPOINT http://HOST:PORT/v1",
                fix="measure two endpoints each with `lengthwise ppl --out`, and compare the run folders",
            )
        if run.tokenizer is not None:
            raise UsageError("tokenizer is given, and the checkpoint has its own", fix="leave tokenizer out")
        return run.of(run, served_model=None, tokenizer=None)

    def open_other(self, model: Predictor, run: Subject | None) -> Predictor:
        """The endpoint, with the checkpoint's tokenizer."""
        from lengthwise.models import Endpoint

        served_model = None if run is None else run.served_model
        return Endpoint(self.endpoint, served_model=served_model, tokenizer=model.tokenizer)

    def items(self, model: Reader, text: Any, other: Reader) -> list[Item]:
        """Every window at every length."""
        windows = sample_windows(
            text, max(self.lengths) + 1, count=self.windows, seed=self.seed, allow_fewer=True
        )
        return [
            Item(
                key=f"served/L{length}/w{index:04d}",
                facts={**window_facts(window), "length": length},
                content=window,
                tokens=length,
                longest=length,
                stretch=len(window.ids),
            )
            for length, index, window in by_size(windows, ascending(self.lengths), at_once=self.at_once)
        ]

    def score(self, model: Predictor, items: Sequence[Item], other: Predictor) -> Iterator[Record]:
        """The sums of the differences by position."""
        length, bos_id = items[0].longest, self.bos_id(model)
        windows = [item.content for item in items]
        here, there = (_losses(each, windows, length, bos_id) for each in (model, other))
        for own, served in zip(here, there, strict=True):
            yield _sums(own, served, length)

    def statistics(self, records: Sequence[Record]) -> list[Statistic]:
        """The numbers of each length that have intervals.

        Rows of task "served" for each length: `equal_up_to` (tokens: where the first bin of positions begins
        whose difference is above the tolerance; `at_least` where none is), `difference`, `shift`,
        `loss_served`, `loss_checkpoint` (means, nats a token), `largest` (of one token) and `tolerance`,
        without intervals; by position (`position` .. `position_end` - 1) `difference` and `shift`.
        """
        found: list[Statistic] = []
        for length, some in self._by_length(records):
            blank = Row(model="", task="served", metric="", value=None, length=length)
            found += _statistics(some, self.tolerance, blank)
        return found

    def rows(self, statistics: Sequence[Statistic], records: Sequence[Record]) -> list[Row]:
        """The numbers, whether an end was found, and those that have no interval."""
        found = [
            replace(row, at_least=True) if row.metric == "equal_up_to" and row.value == row.length else row
            for row in super().rows(statistics, records)
        ]
        for length, some in self._by_length(records):
            blank = Row(model="", task="served", metric="", value=None, length=length)
            largest = max(record["largest"] for record in some)
            found += [
                replace(blank, metric="largest", value=largest, n=length * len(some)),
                replace(blank, metric="tolerance", value=self.tolerance),
            ]
        return found

    def notes(self, model: Reader, other: Reader, items: Sequence[Item], results: Results) -> list[str]:
        """The BOS, and missing windows."""
        return [bos_note(self.bos_id(model)), *self.few_samples_notes(items)]

    def _by_length(self, records: Sequence[Record]) -> list[tuple[int, list[Record]]]:
        """(length, its records) of each length that has any."""
        found = [
            (n, [record for record in records if record["length"] == n]) for n in ascending(self.lengths)
        ]
        return [(length, some) for length, some in found if some]


def position_edges(length: int) -> list[int]:
    """Edges of the bins of positions: 0, 16, 24, 32, 48, ..., two to each doubling, and `length`."""
    edges = [0]
    step = _FIRST_EDGE
    while step < length:
        edges += [edge for edge in (step, step + step // 2) if edge < length]
        step *= 2
    return [*edges, length]


def _losses(model: Predictor, windows: Sequence[Window], length: int, bos_id: int | None) -> list[Tensor]:
    from lengthwise.models import naming_bad_logits

    views = [view(window.ids, 0, length, bos_id) for window in windows]
    with naming_bad_logits(model, lambda index: window_words(windows[index])):
        return model.token_losses(views, [window.ids[1 : length + 1] for window in windows])


def _sums(checkpoint: Tensor, served: Tensor, length: int) -> dict[str, Any]:
    shift = (served - checkpoint).numpy()
    edges = position_edges(length)
    columns = {"difference": abs(shift), "shift": shift, "checkpoint": checkpoint.numpy()}
    sums = {name: np.add.reduceat(column, edges[:-1]).tolist() for name, column in columns.items()}
    return {"targets": length, "largest": float(abs(shift).max()), **sums}


def _statistics(records: Sequence[Record], tolerance: float, blank: Row) -> list[Statistic]:
    assert blank.length is not None
    length, edges = blank.length, position_edges(blank.length)

    def mean(metric: str, names: Sequence[str], some: slice, **where: int) -> Statistic:
        begin, end = edges[some][0], edges[some.stop if some.stop is not None else -1]
        totals = [(r["document"], [sum(sum(r[name][some]) for name in names), end - begin]) for r in records]
        return Statistic.of(replace(blank, metric=metric, n=len(records) * (end - begin), **where), totals)

    every = slice(0, len(edges) - 1)
    widths = np.diff(edges)
    first_unequal = partial(_equal_up_to, edges=edges, widths=widths, tolerance=tolerance)
    row = replace(blank, metric="equal_up_to", unit="tokens", n=len(records) * length)
    totals = [(r["document"], [*r["difference"], 1]) for r in records]
    found = [
        Statistic.of(row, totals, estimator=first_unequal),
        mean("difference", ["difference"], every),
        mean("shift", ["shift"], every),
        mean("loss_served", ["checkpoint", "shift"], every),
        mean("loss_checkpoint", ["checkpoint"], every),
    ]
    for metric in ("difference", "shift"):
        for index, (begin, end) in enumerate(pairwise(edges)):
            where = {"position": begin, "position_end": end}
            found.append(mean(metric, [metric], slice(index, index + 1), **where))
    return found


def _equal_up_to(
    totals: NDArray[np.float64], *, edges: Sequence[int], widths: NDArray[np.int64], tolerance: float
) -> NDArray[np.float64]:
    """Where the first bin begins whose mean is above the tolerance, or the length: [R, bins + 1] -> [R]."""
    means = totals[:, :-1] / (totals[:, -1:] * widths)
    above = np.concatenate([means > tolerance, np.ones((len(means), 1), dtype=bool)], axis=1)
    return np.asarray(edges, dtype=np.float64)[above.argmax(axis=1)]
