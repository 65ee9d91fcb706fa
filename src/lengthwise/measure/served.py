"""A served model against its checkpoint: log-probabilities of the same tokens, by position and by length.

Both read the same views of the same text. For a token t with context x,

    d = log p_served(t | x) - log p_checkpoint(t | x)      (nats)

`difference` is the mean of |d|, `shift` the mean of -d: how much higher the served model's loss is. Rounding gives
differences too (16-bit weights about 0.01 nats, fp32 about 0.00001), so a bin of positions counts as equal while its
`difference` is at most a tolerance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from annotated_types import Ge, MinLen

from lengthwise.display import Display
from lengthwise.errors import UsageError
from lengthwise.files import is_url
from lengthwise.measure.measurement import (
    Measurement,
    batches,
    bos_note,
    collect,
    few_samples_note,
    window_record,
    window_words,
)
from lengthwise.measure.statistics import Statistic
from lengthwise.results import Row
from lengthwise.samples import SampleLog
from lengthwise.spec import Count, Option, Positive, RunSpec, Samples, Spec, Whole, ascending
from lengthwise.text import as_documents, resolve_bos, sample_windows, view

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from lengthwise.models import ModelLike, Predictor
    from lengthwise.text import TextLike, TokenDocuments, Window

DISPLAY = Display(
    title="Served model against its checkpoint",
    question="Does the served model predict as its checkpoint does, at every length?",
    metrics={
        "equal_up_to": "tokens of context up to which the difference stays within the tolerance",
        "difference": "mean |log p served - log p checkpoint| of the same tokens",
        "largest": "the largest difference of one token",
        "tolerance": "the difference up to which a bin of positions counts as equal",
        "shift": "loss of the served model - loss of the checkpoint: above 0 it predicts worse",
        "loss_served": "cross entropy of the next token, served",
        "loss_checkpoint": "cross entropy of the next token, from the checkpoint",
    },
    figures=("lengthwise.report.served_differences:differences_by_position",),
    answer="lengthwise.report.served_differences:served_answer",
)
_FIRST_EDGE = 16


class ServedSpec(Spec):
    """Does the served model predict as its checkpoint does, at every length?

    Reads the same tokens with the checkpoint here and with the endpoint, and compares the log-probability of every
    token. The tokenizer is the checkpoint's. --fail-above checks the mean absolute difference (nats per token).
    """

    kind = "served"
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

    def samples(self) -> list[Samples]:
        """The windows, each read at all lengths."""
        longest = max(self.lengths)
        return [Samples("windows", self.windows, longest + 1, sum(self.lengths), longest)]

    def model(self, run: RunSpec) -> Predictor:
        """The checkpoint."""
        check_sides(run, self)
        return run.of(run, served_model=None, tokenizer=None).load()

    def served_settings(self, run: RunSpec) -> dict[str, Any]:
        """None: the name is the endpoint's, and the tokenizer the checkpoint's."""
        check_sides(run, self)
        return {}

    def others(self, run: RunSpec, model: Predictor) -> dict[str, Any]:
        """The endpoint, with the checkpoint's tokenizer."""
        from lengthwise.models import Endpoint

        return {"served": Endpoint(self.endpoint, served_model=run.served_model, tokenizer=model.tokenizer)}


class ServedSettings(ServedSpec):
    """The spec, and what models and text decided."""

    available: int
    """Windows that the text has, at most `windows`."""
    bos_id: int | None


def check_sides(run: RunSpec, spec: ServedSpec) -> None:
    """Raise UsageError unless a checkpoint comes first and an endpoint second, with the checkpoint's tokenizer."""
    if is_url(run.model) or not is_url(spec.endpoint):
        raise UsageError(
            f"{run.model} and {spec.endpoint} are not a checkpoint and an endpoint",
            expected="lengthwise compare CHECKPOINT http://HOST:PORT/v1",
            fix="measure two endpoints each with `lengthwise ppl --out`, and compare the run folders",
        )
    if run.tokenizer is not None:
        raise UsageError("tokenizer is given, and the checkpoint has its own", fix="leave tokenizer out")


def measure_served(
    model: ModelLike,
    text: TextLike | TokenDocuments,
    spec: ServedSpec,
    *,
    served: Predictor | None = None,
    log: SampleLog | None = None,
) -> Measurement:
    """The served model against its checkpoint on the same tokens.

    Rows of task "served" for each length: `equal_up_to` (tokens: where the first bin of positions begins whose
    difference is above the tolerance; `at_least` where none is), `difference`, `shift`, `loss_served`,
    `loss_checkpoint` (means, nats a token), `largest` (of one token) and `tolerance`, without intervals; by position
    (`position` .. `position_end` - 1) `difference` and `shift`.

    Args:
        model: the checkpoint: loaded and in eval mode, a name or path, or a pair (model, tokenizer).
        text: the text in this model's tokens, a corpus, a name or path, or a list of strings.
        spec: the settings.
        served: in place of the spec's endpoint: an `Endpoint`, or another model with this tokenizer.
        log: finished samples, read and appended to. None keeps them in memory.

    Raises:
        UsageError: a length that one of both cannot read, too short a text, a log of other samples.
        LengthwiseError: a server that fails, or numbers that are not finite.
        Interrupted: Ctrl-C; `partial` is the measurement of what was finished.
    """
    from lengthwise.models import Endpoint, as_model

    model = as_model(model)
    served = served or Endpoint(spec.endpoint, tokenizer=model.tokenizer)
    documents = as_documents(text, model.tokenizer)
    lengths = ascending(spec.lengths)
    for each in (model, served):
        each.check_ready(lengths[-1])
    windows = sample_windows(documents, lengths[-1] + 1, count=spec.windows, seed=spec.seed, allow_fewer=True)
    settings = ServedSettings.of(
        spec, lengths=lengths, available=len(windows), bos_id=resolve_bos(model.tokenizer, spec.bos)
    )
    return collect(
        log,
        lambda samples: _fill(samples, model, served, settings, windows),
        lambda samples: summarise(samples, settings, model.name),
    )


def summarise(log: SampleLog, settings: ServedSettings, model_name: str) -> Measurement:
    """The numbers from the samples in `log` alone; partial if some are missing."""
    statistics: list[Statistic] = []
    constant: list[Row] = []
    keys: list[str] = []
    for length in settings.lengths:
        found = [key for index in range(settings.available) if (key := _key(length, index)) in log]
        if found:
            records = [log[key] for key in found]
            blank = Row(model=model_name, task="served", metric="", value=None, length=length)
            statistics += _statistics(records, settings, blank)
            value = max(record["largest"] for record in records)
            constant += [
                replace(blank, metric="largest", value=value, n=length * len(records)),
                replace(blank, metric="tolerance", value=settings.tolerance),
            ]
        keys += found
    notes = [bos_note(settings.bos_id)]
    if settings.available < settings.windows:
        notes.append(
            few_samples_note(settings.available, settings.windows, "windows", settings.lengths[-1] + 1)
        )
    measurement = Measurement.of(
        statistics,
        model_name=model_name,
        settings=settings.identity(),
        samples=log,
        keys=keys,
        notes=notes,
        partial=len(keys) < settings.available * len(settings.lengths),
    )
    rows = [
        replace(row, at_least=True) if row.metric == "equal_up_to" and row.value == row.length else row
        for row in measurement.rows
    ]
    measurement.rows = rows + constant
    return measurement


def position_edges(length: int) -> list[int]:
    """Edges of the bins of positions: 0, 16, 24, 32, 48, ..., two to each doubling, and `length`."""
    edges = [0]
    step = _FIRST_EDGE
    while step < length:
        edges += [edge for edge in (step, step + step // 2) if edge < length]
        step *= 2
    return [*edges, length]


def _fill(
    log: SampleLog,
    model: Predictor,
    served: Predictor,
    settings: ServedSettings,
    windows: Sequence[Window],
) -> None:
    """Compare the windows that the log does not hold yet, each at all lengths before the next."""
    for length, indices, some in batches(
        log, windows, settings.lengths, _key, at_once=settings.batch_size, what="served against checkpoint"
    ):
        here, there = (_losses(each, some, length, settings.bos_id) for each in (model, served))
        for index, window, own, other in zip(indices, some, here, there, strict=True):
            log.append(_key(length, index), {**window_record(window), **_sums(own, other, length)})


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


def _statistics(records: Sequence[dict[str, Any]], settings: ServedSettings, blank: Row) -> list[Statistic]:
    assert blank.length is not None
    length, edges = blank.length, position_edges(blank.length)

    def mean(metric: str, names: Sequence[str], some: slice, **where: int) -> Statistic:
        begin, end = edges[some][0], edges[some.stop if some.stop is not None else -1]
        totals = [(r["document"], [sum(sum(r[name][some]) for name in names), end - begin]) for r in records]
        return Statistic.of(replace(blank, metric=metric, n=len(records) * (end - begin), **where), totals)

    every = slice(0, len(edges) - 1)
    widths = np.diff(edges)
    first_unequal = partial(_equal_up_to, edges=edges, widths=widths, tolerance=settings.tolerance)
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


def _key(length: int, index: int) -> str:
    return f"served/L{length}/w{index:04d}"
