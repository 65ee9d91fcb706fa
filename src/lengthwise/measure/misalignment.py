"""Misalignment (Eq. 2): do the predictions depend on how much context is cut off, at which lengths?

For a text x and context lengths l1, l2, independent and uniform over L//2 + 1 .. L (tokens, the current one
included), the mean of SCE(p, q) = [H(p) + H(q)] + [KL(p||q) + KL(q||p)] = entropy + jeffreys, p and q the
next-token distributions after the last l1 and the last l2 tokens of x. In nats. Most of SCE is entropy, so
sharpness; `jeffreys` is what depends on the context.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from annotated_types import Ge, MinLen

from lengthwise.display import Display
from lengthwise.measure.measurement import (
    Measurement,
    bos_note,
    collect,
    few_samples_note,
    in_groups,
    unfinished,
    window_record,
    window_words,
)
from lengthwise.measure.statistics import Statistic
from lengthwise.progress import progress
from lengthwise.samples import SampleLog
from lengthwise.spec import PYTHON_ONLY, Count, Option, RunSpec, Samples, Spec, Whole, ascending
from lengthwise.text import as_documents, resolve_bos, sample_windows, view

if TYPE_CHECKING:
    from lengthwise.measure.lattice import Lattice
    from lengthwise.models import ModelLike, Predictor
    from lengthwise.text import TextLike, TokenDocuments, Window

ESTIMATORS = {
    "lattice": "Eq. 2 from several views of each window, every shared position compared (default)",
    "paper": "Eq. 2 as it is written: sample x, l1 and l2, compare the last tokens; wider intervals",
}

_LATTICE = {
    "needs": "the lattice compares the whole distributions at every position of every view, which no endpoint gives",
    "fix": "--estimator paper, which needs them at one position a view",
}

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


class MisalignmentSpec(Spec):
    """Does cutting off early context change the predictions?

    Measures long-short misalignment. The paper's number is SCE = entropy (how sharp the predictions are) +
    jeffreys (how far they disagree). --fail-above checks jeffreys.
    """

    kind = "measure"
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

    def samples(self) -> list[Samples]:
        """The windows of each length."""
        from lengthwise.measure.lattice import window_length

        def cost(length: int) -> int:
            # The paper's two suffixes are three quarters of L on average.
            return self.views * length if self.estimator == "lattice" else 3 * length // 2

        return [
            Samples(f"windows, L = {length}", self.windows, window_length(length), cost(length), length)
            for length in self.lengths
        ]

    def model(self, run: RunSpec) -> Predictor:
        """The model, whose weights must be here for the lattice."""
        from lengthwise.models import weights_of

        model = super().model(run)
        return weights_of(model, **_LATTICE) if self.estimator == "lattice" else model


class MisalignmentSettings(MisalignmentSpec):
    """The spec, and what model and text decided."""

    available: tuple[int, ...]
    """Windows at each length that the text has, at most `windows`."""
    bos_id: int | None


def measure_misalignment(
    model: ModelLike,
    text: TextLike | TokenDocuments,
    spec: MisalignmentSpec = MisalignmentSpec(),  # noqa: B008
    *,
    log: SampleLog | None = None,
) -> Measurement:
    """Measure Eq. 2 at each length, with its parts.

    Rows of task "misalignment", metrics `sce` = `entropy` + `jeffreys`, `js` (nats) and `top1_agreement`
    (share): one row for each L; `jeffreys` and `sce` by two bins of context lengths (`length` and
    `context_other`, each the upper end of its bin, `length` >= `context_other`); `jeffreys` by the row of the
    shorter context (`position` .. `position_end` - 1).

    Args:
        model: loaded and in eval mode, a name or path, or a pair (model, tokenizer).
        text: the text in this model's tokens, a corpus, a name or path, or a list of strings.
        spec: the settings.
        log: finished samples, read and appended to. None keeps them in memory.

    Raises:
        UsageError: too short a text, more tokens than a table of positions has, a log of other samples.
        LengthwiseError: logits that are not finite.
        Interrupted: Ctrl-C; `partial` is the measurement of what was finished.
    """
    from lengthwise.measure.lattice import window_length
    from lengthwise.models import as_model, weights_of
    from lengthwise.models.position_limits import rope_by_input_length

    model = as_model(model)
    if spec.estimator == "lattice":
        by_length = rope_by_input_length(weights_of(model, **_LATTICE).config)
    else:
        by_length = None
    documents = as_documents(text, model.tokenizer)
    lengths = ascending(spec.lengths)
    model.check_ready(lengths[-1])
    texts = [
        sample_windows(documents, window_length(length), count=spec.windows, seed=spec.seed, allow_fewer=True)
        for length in lengths
    ]
    settings = MisalignmentSettings.of(
        spec,
        lengths=lengths,
        available=tuple(len(found) for found in texts),
        views=spec.views if spec.estimator == "lattice" else 2,
        bos_id=resolve_bos(model.tokenizer, spec.bos),
    )

    def fill(samples: SampleLog) -> None:
        for length, found in zip(lengths, texts, strict=True):
            _fill(samples, model, settings, length, found)

    def summary(samples: SampleLog) -> Measurement:
        measurement = summarise(samples, settings, model.name)
        if by_length is not None:
            measurement.notes.append(
                f"The frequencies of the model's rope method ({by_length}) depend on the length of the whole input, "
                "so a row inside L tokens is not the prediction after fewer tokens alone; the estimator 'paper' "
                "is exact here."
            )
        return measurement

    return collect(log, fill, summary)


def summarise(log: SampleLog, settings: MisalignmentSettings, model_name: str) -> Measurement:
    """The numbers from the samples in `log` alone; partial if some are missing."""
    from lengthwise.measure.lattice import window_length, window_statistics

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
                f"L = {length}: "
                + few_samples_note(available, settings.windows, "windows", window_length(length))
            )
    return Measurement.of(
        statistics,
        model_name=model_name,
        settings=settings.identity(),
        samples=log,
        keys=keys,
        notes=notes,
        partial=len(keys) < sum(settings.available),
    )


def _fill(
    log: SampleLog,
    model: Predictor,
    settings: MisalignmentSettings,
    length: int,
    windows: Sequence[Window],
) -> None:
    """Score the windows that the log does not hold yet."""
    from lengthwise.measure.lattice import window_sums

    missing = unfinished(log, windows, lambda index: [_key(settings, length, index)])
    missing = log.share(missing, at_once=_at_once(settings))
    score = _paper_scores if settings.estimator == "paper" else _lattice_scores
    with progress(missing, what=f"misalignment, L = {length}") as bar:
        for (index, window), found in score(model, settings, length, bar):
            log.append(_key(settings, length, index), {**window_record(window), **window_sums(found, length)})


_Item = tuple[int, "Window"]


def _at_once(settings: MisalignmentSettings) -> int:
    """Windows whose views are read together."""
    return 1 if settings.estimator == "paper" else max(1, settings.batch_size // settings.views)


def _lattice_scores(
    model: Predictor,
    settings: MisalignmentSettings,
    length: int,
    items: Iterable[_Item],
) -> Iterator[tuple[_Item, Lattice]]:
    import torch

    from lengthwise.measure.lattice import draw_starts, score_lattice
    from lengthwise.models import naming_bad_logits, weights_of

    model = weights_of(model, **_LATTICE)
    for group in in_groups(items, _at_once(settings)):
        starts = [draw_starts(_rng(settings, length, index), length, settings.views) for index, _ in group]
        views = [
            view(window.ids, start, length, settings.bos_id)
            for (_, window), drawn in zip(group, starts, strict=True)
            for start in sorted(set(drawn))
        ]
        batches = torch.from_numpy(np.stack(views)).split(settings.batch_size)
        hidden = torch.cat([model.hidden_states(batch) for batch in batches])
        parts = hidden.split([len(set(drawn)) for drawn in starts])
        for item, drawn, part in zip(group, starts, parts, strict=True):
            with naming_bad_logits(model, window_words(item[1])):
                found = score_lattice(part, model.head, drawn, model.vocab_size)
            yield item, found


def _paper_scores(
    model: Predictor,
    settings: MisalignmentSettings,
    length: int,
    items: Iterable[_Item],
) -> Iterator[tuple[_Item, Lattice]]:
    from lengthwise.measure.lattice import draw_suffixes, score_suffixes
    from lengthwise.models import naming_bad_logits

    # Suffixes differ in length, so they are run one by one whatever the batch size.
    for item in items:
        index, window = item
        suffixes = draw_suffixes(_rng(settings, length, index), length)
        with naming_bad_logits(model, window_words(window)):
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
