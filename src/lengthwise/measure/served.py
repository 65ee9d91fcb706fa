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
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from annotated_types import Ge, MinLen
from cyclopts import Parameter

from lengthwise.errors import UsageError
from lengthwise.files import is_url
from lengthwise.measure.measurement import Display, Item, Record, WindowMeasurement, grouped
from lengthwise.measure.statistics import Statistic
from lengthwise.results import Row
from lengthwise.settings import Count, Positive, Subject, Whole
from lengthwise.text import view

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lengthwise.models import Predictor, Reader

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
    fail_above = "difference"
    examples = (
        "lengthwise compare ./my-model http://127.0.0.1:8000/v1",
        "lengthwise compare ./my-model http://127.0.0.1:8000/v1 --length 4096 --length 16384 --out runs/served",
        "lengthwise compare ./my-model http://127.0.0.1:8000/v1 --fail-above 0.05",
    )
    not_of_the_run = ("tokenizer",)

    endpoint: str
    """URL of the server's API, mostly ending in /v1. Its key: LENGTHWISE_API_KEY, else OPENAI_API_KEY."""
    lengths: Annotated[
        tuple[Annotated[Whole, Ge(2)], ...], MinLen(1), Parameter("--length", metavar="TOKENS")
    ] = (1024, 4096)
    """Tokens of the windows; repeat it for several. Differences are found up to the greatest."""
    windows: Annotated[Count, Parameter("--limit")] = 4
    """Windows of text, from as many documents; each is read at every length."""
    tolerance: Positive = 0.05
    """Mean absolute difference, in nats per token, up to which a bin of positions counts as equal."""

    def check_subject(self, run: Subject) -> Subject:
        """A checkpoint comes first, an endpoint second; the served name is the endpoint's, not the checkpoint's."""
        if is_url(run.model) or not is_url(self.endpoint):
            raise UsageError(
                f"{run.model} and {self.endpoint} are not a checkpoint and an endpoint",
                expected="lengthwise compare CHECKPOINT http://HOST:PORT/v1",
                fix="measure two endpoints each with `lengthwise ppl --out`, and compare the run folders",
            )
        if run.tokenizer is not None:
            raise UsageError("tokenizer is given, and the checkpoint has its own", fix="leave tokenizer out")
        return run.model_copy(update={"served_model": None, "tokenizer": None})

    def open_other(self, model: Predictor, run: Subject | None) -> Predictor:
        """The endpoint, with the checkpoint's tokenizer."""
        from lengthwise.models import Endpoint

        served_model = None if run is None else run.served_model
        return Endpoint(self.endpoint, served_model=served_model, tokenizer=model.tokenizer)

    def items(self, model: Reader, text: Any, other: Reader) -> list[Item]:
        """Every window at every length."""
        windows = self.sampled(text, max(self.lengths) + 1)
        return [
            self.item(f"L{length}/w{index:04d}", window, length, tokens=length, length=length)
            for length, index, window in self.by_size(windows, self.lengths)
        ]

    def score(self, model: Predictor, items: Sequence[Item], other: Predictor) -> Iterator[Record]:
        """The sums of the differences by position."""
        length, bos_id = items[0].longest, self.bos_id(model)
        windows = [item.content.ids for item in items]
        views = [view(ids, 0, length, bos_id) for ids in windows]
        labels = [ids[1 : length + 1] for ids in windows]
        here, there = (self.losses(each, items, views, labels) for each in (model, other))
        for own, served in zip(here, there, strict=True):
            shift = (served - own).numpy()
            columns = {"difference": abs(shift), "shift": shift, "checkpoint": own.numpy()}
            edges = position_edges(length)[:-1]
            sums = {name: np.add.reduceat(column, edges).tolist() for name, column in columns.items()}
            yield {"targets": length, "largest": float(abs(shift).max()), **sums}

    def statistics(self, records: Sequence[Record]) -> list[Statistic]:
        """The numbers of each length that have intervals; `difference` and `shift` also by position.

        `equal_up_to` is where the first bin of positions begins whose difference is above the tolerance.
        """
        found: list[Statistic] = []
        # Each is the sum of these parts.
        means = {
            "difference": ("difference",),
            "shift": ("shift",),
            "loss_served": ("checkpoint", "shift"),
            "loss_checkpoint": ("checkpoint",),
        }
        for length, some in grouped(records, "length"):
            edges, size = position_edges(length), {"length": length, "n": len(some) * length}
            first_unequal = partial(_equal_up_to, edges=edges, tolerance=self.tolerance)
            found.append(
                self.statistic(
                    some,
                    lambda r: [*r["difference"], 1],
                    estimator=first_unequal,
                    metric="equal_up_to",
                    unit="tokens",
                    **size,
                )
            )
            for metric, parts in means.items():
                sums = partial(_summed, parts=parts)
                found.append(self.statistic(some, sums, metric=metric, **size))
            for metric in ("difference", "shift"):
                found += self.curve(some, metric, edges, metric=metric, length=length)
        return found

    def rows(self, statistics: Sequence[Statistic], records: Sequence[Record]) -> list[Row]:
        """The numbers, whether an end was found, and those that have no interval."""
        found = [
            replace(row, at_least=True) if row.metric == "equal_up_to" and row.value == row.length else row
            for row in super().rows(statistics, records)
        ]
        for length, some in grouped(records, "length"):
            row = Row(model="", task=self.task, metric="tolerance", value=self.tolerance, length=length)
            largest = max(record["largest"] for record in some)
            found += [replace(row, metric="largest", value=largest, n=length * len(some)), row]
        return found


def position_edges(length: int) -> list[int]:
    """Edges of the bins of positions: 0, 16, 24, 32, 48, ..., two to each doubling, and `length`."""
    edges = [0]
    step = _FIRST_EDGE
    while step < length:
        edges += [edge for edge in (step, step + step // 2) if edge < length]
        step *= 2
    return [*edges, length]


def _summed(record: Record, parts: Sequence[str]) -> list[float]:
    return [sum(sum(record[part]) for part in parts), record["targets"]]


def _equal_up_to(
    totals: NDArray[np.float64], *, edges: Sequence[int], tolerance: float
) -> NDArray[np.float64]:
    """Where the first bin begins whose mean is above the tolerance, or the length: [R, bins + 1] -> [R]."""
    means = totals[:, :-1] / (totals[:, -1:] * np.diff(edges))
    above = np.concatenate([means > tolerance, np.ones((len(means), 1), dtype=bool)], axis=1)
    return np.asarray(edges, dtype=np.float64)[above.argmax(axis=1)]
