"""Misalignment (Eq. 2): do the predictions depend on how much context is cut off, at which lengths?

For a text x and context lengths l1, l2, independent and uniform over L//2 + 1 .. L (tokens, the current one
included), the mean of SCE(p, q) = [H(p) + H(q)] + [KL(p||q) + KL(q||p)] = entropy + jeffreys, p and q the
next-token distributions after the last l1 and the last l2 tokens of x. In nats. Most of SCE is entropy, so
sharpness; `jeffreys` is what depends on the context.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from lengthwise.display import Display
from lengthwise.errors import UsageError, nearest
from lengthwise.measure.estimators import ESTIMATORS
from lengthwise.measure.lattice import Lattice, admissible_contexts, draw_starts, score_lattice
from lengthwise.measure.measurement import Measurement, check_logged, interruptible, window_record
from lengthwise.measure.paper import draw_suffixes, score_suffixes
from lengthwise.measure.parts import window_statistics, window_sums
from lengthwise.measure.running import (
    bos_note,
    check_count,
    check_model,
    check_sizes,
    hidden_states,
    in_groups,
    named,
    naming_bad_logits,
    rope_by_input_length,
)
from lengthwise.measure.statistics import Statistic
from lengthwise.progress import progress
from lengthwise.samples import SampleLog
from lengthwise.text import resolve_bos, sample_windows, view

if TYPE_CHECKING:
    from lengthwise.models import LoadedModel
    from lengthwise.text import TokenDocuments, Window

DISPLAY = Display(
    title="Misalignment",
    question="Do the predictions depend on how much context is cut off?",
    metrics={
        "sce": "the paper's number, the symmetric cross entropy of the two predictions: entropy + jeffreys",
        "entropy": "H(p) + H(q): how uncertain the two predictions are; says nothing about agreement",
        "jeffreys": "KL(p||q) + KL(q||p): how much the two predictions disagree; 0 when they are equal",
        "js": "Jensen-Shannon divergence: disagreement, at most log 2 = 0.693",
        "top1_agreement": "share of positions at which both rank the same token first",
    },
    better={"jeffreys": "lower"},
    figures=("misalignment_parts", "jeffreys_by_position", "lengthwise.report.heatmaps:misalignment_matrix"),
    answer="misalignment_answer",
)
DEFAULT_VIEWS = 3
SHORTEST = 4


@dataclass(frozen=True, kw_only=True)
class MisalignmentSettings:
    """Everything besides model and text that decides the numbers."""

    lengths: tuple[int, ...]
    windows: int
    """Windows at each length, as asked for."""
    available: tuple[int, ...]
    """Windows at each length that the text has, at most `windows`."""
    estimator: str
    views: int
    bos_id: int | None
    seed: int


def measure_misalignment(
    model: LoadedModel,
    documents: TokenDocuments,
    *,
    lengths: Sequence[int],
    windows: int = 16,
    estimator: str = "lattice",
    views: int = DEFAULT_VIEWS,
    bos: str = "auto",
    seed: int = 0,
    batch_size: int = 1,
    log: SampleLog | None = None,
) -> Measurement:
    """Measure Eq. 2 at each L of `lengths`, with its parts.

    Rows of task "misalignment", metrics `sce` = `entropy` + `jeffreys`, `js` (nats) and `top1_agreement`
    (share): one row for each L; `jeffreys` and `sce` by two bins of context lengths (`length` and
    `context_other`, each the upper end of its bin, `length` >= `context_other`); `jeffreys` by the row of the
    shorter context (`position` .. `position_end` - 1).

    Args:
        model: loaded, in eval mode.
        documents: the text in this model's tokens.
        lengths: the L of Eq. 2, tokens, at least 4.
        windows: windows of text at each length; fewer where the text has fewer.
        estimator: "lattice", or "paper" (one comparison a window: the definition, for checking).
        views: views of each window that the lattice compares with each other, at least 2.
        bos: whether every view begins with BOS (in place of its first token): "auto", "always", "never".
        seed: of windows and views.
        batch_size: views in one forward pass. Changes nothing but speed and memory.
        log: finished samples, read and appended to. None keeps them in memory.

    Raises:
        UsageError: a setting out of range, too short a text, more tokens than a learned table of positions
            has, a log of other samples.
        LengthwiseError: logits that are not finite.
        Interrupted: Ctrl-C; `partial` is the measurement of what was finished.
    """
    if estimator not in ESTIMATORS:
        raise UsageError(f"unknown estimator {estimator!r}", expected=nearest(estimator, ESTIMATORS))
    check_count("views", views, least=2)
    check_count("windows", windows)
    check_count("batch_size", batch_size)
    lengths = check_sizes("length", lengths, least=SHORTEST)
    check_model(model, longest=lengths[-1])
    texts = [
        sample_windows(documents, window_length(length), count=windows, seed=seed, allow_fewer=True)
        for length in lengths
    ]
    settings = MisalignmentSettings(
        lengths=lengths,
        windows=windows,
        available=tuple(len(found) for found in texts),
        estimator=estimator,
        views=views if estimator == "lattice" else 2,
        bos_id=resolve_bos(model.tokenizer, bos),
        seed=seed,
    )
    samples = SampleLog() if log is None else log

    def summary() -> Measurement:
        measurement = summarise(samples, settings, model.name)
        if estimator == "lattice" and (method := rope_by_input_length(model)) is not None:
            measurement.notes.append(
                f"The model's rope method ({method}) looks at the length of the whole input, so a row inside "
                "L tokens is not the prediction after fewer tokens alone; the estimator 'paper' is exact here."
            )
        return measurement

    with interruptible("the measurement", summary):
        for length, found in zip(lengths, texts, strict=True):
            _fill(samples, model, settings, length, found, batch_size)
    return summary()


def window_length(length: int) -> int:
    """Tokens of text that hold the views of every start: L + n - 1."""
    return length + admissible_contexts(length) - 1


def summarise(log: SampleLog, settings: MisalignmentSettings, model_name: str) -> Measurement:
    """The numbers from the samples in `log` alone; partial if some are missing."""
    statistics: list[Statistic] = []
    keys: list[str] = []
    notes = [_estimator_note(settings), bos_note(settings.bos_id)]
    for length, available in zip(settings.lengths, settings.available, strict=True):
        found = [key for index in range(available) if (key := _key(settings, length, index)) in log]
        if found:
            statistics += window_statistics([log[key] for key in found], length, model_name)
        keys += found
        if available < settings.windows:
            notes.append(
                f"L = {length}: the text holds {available} windows of {window_length(length)} tokens without "
                f"overlap, not the {settings.windows} that were asked for."
            )
    return Measurement.of(
        statistics,
        model_name=model_name,
        settings=asdict(settings),
        samples=log,
        keys=keys,
        notes=notes,
        partial=len(keys) < sum(settings.available),
    )


def _fill(
    log: SampleLog,
    model: LoadedModel,
    settings: MisalignmentSettings,
    length: int,
    windows: Sequence[Window],
    batch_size: int,
) -> None:
    """Score the windows that the log does not hold yet."""
    missing = []
    for index, window in enumerate(windows):
        key = _key(settings, length, index)
        if key in log:
            check_logged(log, key, window)
        else:
            missing.append((index, key, window))
    score = _paper_scores if settings.estimator == "paper" else _lattice_scores
    with progress(missing, what=f"misalignment, L = {length}") as bar:
        for (_, key, window), found in score(model, settings, length, bar, batch_size):
            log.append(key, {**window_record(window), **window_sums(found, length)})


_Item = tuple[int, str, "Window"]


def _lattice_scores(
    model: LoadedModel,
    settings: MisalignmentSettings,
    length: int,
    items: Iterable[_Item],
    batch_size: int,
) -> Iterator[tuple[_Item, Lattice]]:
    for group in in_groups(items, max(1, batch_size // settings.views)):
        starts = [draw_starts(_rng(settings, length, index), length, settings.views) for index, _, _ in group]
        views = [
            view(window.ids, start, length, settings.bos_id)
            for (_, _, window), drawn in zip(group, starts, strict=True)
            for start in sorted(set(drawn))
        ]
        hidden = hidden_states(model, np.stack(views), batch_size=batch_size)
        parts = hidden.split([len(set(drawn)) for drawn in starts])
        for item, drawn, part in zip(group, starts, parts, strict=True):
            with naming_bad_logits(model, named(item[2])):
                found = score_lattice(part, model.head, drawn, model.vocab_size)
            yield item, found


def _paper_scores(
    model: LoadedModel,
    settings: MisalignmentSettings,
    length: int,
    items: Iterable[_Item],
    batch_size: int,
) -> Iterator[tuple[_Item, Lattice]]:
    # Suffixes differ in length, so they are run one by one whatever the batch size.
    for item in items:
        index, _, window = item
        suffixes = draw_suffixes(_rng(settings, length, index), length)
        with naming_bad_logits(model, named(window)):
            found = score_suffixes(model, window.ids, suffixes, settings.bos_id)
        yield item, found


def _rng(settings: MisalignmentSettings, length: int, index: int) -> np.random.Generator:
    return np.random.default_rng([settings.seed, length, index])


def _key(settings: MisalignmentSettings, length: int, index: int) -> str:
    how = settings.estimator if settings.estimator == "paper" else f"lattice{settings.views}"
    return f"misalignment/{how}/L{length}/w{index:04d}"


def _estimator_note(settings: MisalignmentSettings) -> str:
    if settings.estimator == "paper":
        return "Misalignment: one pair of suffixes a window, compared at the last token (the definition)."
    return (
        f"Misalignment: {settings.views} views of each window, compared at every shared token where both have "
        "a context in (L/2, L]."
    )
