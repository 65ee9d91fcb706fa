"""The effective context length of a model on a text, without labels: where it stops being sound, and used.

Each window of text is read once from its beginning, up to `length` tokens, and compared with the same model
that reads only the last R/2 + 1 .. R tokens before each target, R = `reference`, a length it was trained for:

    excess(n) = loss(token | all n tokens before it) - loss(the same token | the last R/2 + 1 .. R of them)

On the way, after d tokens and for d on a grid, the window's first passage is repeated; and the same after a window
that differs in its first passage alone (`measure_recall`, with the filler's beginning):

    benefit(d) = loss(passage | a different passage d tokens back) - loss(passage | the same one)

docs/explanation/evaluation.md defines the two limits that follow from these, with what they assume and cannot see.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np
from annotated_types import Ge
from pydantic import AfterValidator, model_validator

from lengthwise.display import Display
from lengthwise.errors import UsageError
from lengthwise.measure.limit_curves import limit_notes, limit_statistics, on_the_grid
from lengthwise.measure.measurement import (
    Measurement,
    bos_note,
    check_logged,
    check_passage,
    collect,
    window_record,
    window_words,
)
from lengthwise.progress import progress
from lengthwise.samples import SampleLog
from lengthwise.spec import NO_OPTION, Count, Option, Positive, Samples, Share, Spec, Whole
from lengthwise.text import as_documents, resolve_bos, sample_windows

if TYPE_CHECKING:
    from lengthwise.models import ModelLike, Predictor
    from lengthwise.text import TextLike, TokenDocuments, Window

DISPLAY = Display(
    title="Effective context length",
    question="Up to where are predictions sound, and up to where is context used?",
    metrics={
        "sound_up_to": "longest context whose loss is within the tolerance of the loss with recent tokens only",
        "used_up_to": "longest distance at which a repeated passage still helps",
        "excess": "loss with all context - loss of the same tokens with the most recent context only",
        "jeffreys": "how much the predictions with all context and with recent context disagree",
        "loss": "cross entropy of the next token with all context",
        "tolerance": "the excess up to which predictions count as sound",
        "used_level": "the benefit from which context counts as used",
        "benefit": "what a repeated passage is worth; 0 if the model does not use it",
    },
    better={"loss": "lower", "jeffreys": "lower", "benefit": "higher"},
    figures=("limit_curves",),
    answer="limit_answer",
)
LONGEST = 16384
"""The default longest context, in tokens, or this many times the trained length if that is less:"""
TIMES_TRAINED = 8
MOST_REFERENCE = 1024
_STEPS_PER_DOUBLING = 4
_BINS_PER_REFERENCE = 8


def _in_bins(reference: int) -> int:
    if reference % _BINS_PER_REFERENCE:
        raise ValueError(f"a multiple of {_BINS_PER_REFERENCE}")
    return reference


Reference = Annotated[Whole, Ge(2 * _BINS_PER_REFERENCE), AfterValidator(_in_bins)]


class LimitSpec(Spec):
    """Where does the useful context end, on this text?

    Two numbers without labels: up to which length all context predicts no worse than its most recent tokens alone
    (sound), and up to which distance a repeated passage is still recognised (used).
    """

    kind = "limit"
    examples = (
        "lengthwise limit smollm2-135m --out runs/limit",
        "lengthwise limit ./my-model --text notes/ --split all --max-length 32768",
        "lengthwise limit smollm2-135m --dry-run",
    )

    length: Annotated[Count | None, Option("--max-length", metavar="TOKENS")] = None
    """The longest context measured. Default: 16384, or eight times the trained length if that is less."""
    reference: Annotated[Reference | None, Option(metavar="TOKENS")] = None
    """A length that the model was trained for, to compare with. Default: a quarter of the trained length, at most
    1024."""
    windows: Annotated[Count, Option("--limit")] = 8
    """Windows of text, from as many documents."""
    tolerance: Positive = 0.1
    """The model counts as sound up to the longest context whose mean loss is at most this many nats per token worse
    than with only the most recent tokens."""
    share: Share = 0.1
    """The model counts as using context up to the distance where the benefit of a repeated passage falls below this
    share of the benefit nearby."""
    passage: Annotated[Whole, Ge(2), NO_OPTION] = 64
    """Tokens in the repeated passage."""
    scored: Annotated[Count, NO_OPTION] = 48
    """Tokens at its end whose loss counts."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_passage(passage=self.passage, scored=self.scored)
        return self

    def samples(self) -> list[Samples]:
        """The windows."""
        length, reference = self.length or default_length(None), self.reference or MOST_REFERENCE
        # Read twice, and once more in short contexts that overlap by half; the repeated passages are few.
        tokens = 2 * length + 2 * max(0, length - reference)
        return [Samples("windows", self.windows, length + 1 + 2 * self.passage, tokens, reference)]

    def for_model(self, trained_length: int | None) -> Self:
        """With the longest context that `measure_limit` would measure."""
        return self if self.length else self.of(self, length=default_length(trained_length))


class LimitSettings(LimitSpec):
    """The spec with its defaults filled in, and what model and text decided."""

    length: int  # type: ignore[assignment]
    reference: int  # type: ignore[assignment]
    available: int
    """Windows that the text has, at most `windows`."""
    table: int | None
    """Positions in the model's table, if it has one."""
    bos_id: int | None

    def identity(self) -> dict[str, Any]:
        """With the grids that follow from the settings."""
        return super().identity() | {"bin": self.bin, "distances": self.distances}

    @property
    def bin(self) -> int:
        """Rows in one bin of the excess; the limit is found to about one bin."""
        return self.reference // _BINS_PER_REFERENCE

    @property
    def distances(self) -> tuple[int, ...]:
        """Distances of the repeated passage: four to a doubling from two passages on, and the longest."""
        first, last = 2 * self.passage, self.length - self.passage
        steps = int(_STEPS_PER_DOUBLING * np.log2(last / first))
        grid = {round(first * 2 ** (step / _STEPS_PER_DOUBLING)) for step in range(steps + 1)}
        return (*sorted(distance for distance in grid if distance < 0.95 * last), last)

    @property
    def near(self) -> int:
        """How many distances count as nearby: within the reference, and at least one."""
        return max(1, sum(distance <= self.reference for distance in self.distances))

    @property
    def ends_with_table(self) -> bool:
        """Whether no longer context exists for this model (to half the reference)."""
        return self.table is not None and self.length > self.table - self.reference // 2


def measure_limit(
    model: ModelLike,
    text: TextLike | TokenDocuments,
    spec: LimitSpec = LimitSpec(),  # noqa: B008
    *,
    log: SampleLog | None = None,
) -> Measurement:
    """Up to which length predictions stay sound, and up to which distance context is used, on this text.

    Rows of task "limit": `sound_up_to` and `used_up_to` (tokens; `at_least` where no end was found up to the
    longest measured); by position `excess`, `jeffreys` (of the same two predictions) and `loss` (with all
    context), nats; by distance `benefit`; `tolerance` and `used_level`, the two levels (nats).

    Args:
        model: loaded and in eval mode, a name or path, or a pair (model, tokenizer).
        text: the text in this model's tokens, a corpus, a name or path, or a list of strings.
        spec: the settings. `length` is cut to the model's table of positions, if it has one.
        log: finished samples, read and appended to. None keeps them in memory.

    Raises:
        UsageError: no reference in the model's configuration, too short a text, a log of other samples.
        LengthwiseError: logits that are not finite.
        Interrupted: Ctrl-C; `partial` is the measurement of what was finished.
    """
    from lengthwise.models import LoadedModel, as_model

    model = as_model(model)
    documents = as_documents(text, model.tokenizer)
    reference = _reference(model, spec.reference)
    longest = _longest(model, spec.length, reference, spec.passage)
    model.check_ready(longest)
    windows = sample_windows(
        documents, longest + 1 + 2 * spec.passage, count=spec.windows, seed=spec.seed, allow_fewer=True
    )
    settings = LimitSettings.of(
        spec,
        length=longest,
        reference=reference,
        available=len(windows),
        table=model.max_positions if isinstance(model, LoadedModel) else None,
        bos_id=resolve_bos(model.tokenizer, spec.bos),
    )
    return collect(
        log,
        lambda samples: _fill(samples, model, settings, windows),
        lambda samples: summarise(samples, settings, model.name),
    )


def summarise(log: SampleLog, settings: LimitSettings, model_name: str) -> Measurement:
    """The numbers from the samples in `log` alone; partial if some are missing."""
    pairs = [_keys(settings, index) for index in range(settings.available)]
    whole = [pair for pair in pairs if all(key in log for key in pair)]
    records = [{**log[different], **log[same]} for different, same in whole]
    measurement = Measurement.of(
        limit_statistics(records, settings, model_name) if records else [],
        model_name=model_name,
        settings=settings.identity(),
        samples=log,
        keys=[key for pair in whole for key in pair],
        notes=[bos_note(settings.bos_id)],
        partial=len(whole) < settings.available,
    )
    measurement.rows = on_the_grid(measurement.rows, settings)
    measurement.notes = limit_notes(measurement.rows, settings) + measurement.notes
    return measurement


def default_length(trained: int | None) -> int:
    """The default longest context."""
    return LONGEST if trained is None else min(LONGEST, TIMES_TRAINED * trained)


def _reference(model: Predictor, reference: int | None) -> int:
    if reference is not None:
        return reference
    trained = model.trained_length
    if trained is None:
        raise UsageError(
            f"{model.name} does not say how long a context it was trained for",
            expected="a length within it to compare with",
            fix="--reference 1024",
        )
    reference = 1 << (max(1, min(MOST_REFERENCE, trained // 4)).bit_length() - 1)
    if reference < 2 * _BINS_PER_REFERENCE:
        raise UsageError(
            f"{model.name} was trained for {trained} tokens, too few to find a reference within",
            fix=f"--reference {2 * _BINS_PER_REFERENCE}",
        )
    return reference


def _longest(model: Predictor, length: int | None, reference: int, passage: int) -> int:
    """The length of the spec or what a table allows, in whole blocks of R/2."""
    least = max(2 * reference, 4 * passage)
    if length is None:
        length = max(least, default_length(model.trained_length))
    block = reference // 2
    allowed = min(length, model.max_positions or length)
    longest = allowed // block * block
    if longest < least:
        raise UsageError(
            f"a longest context of {allowed} tokens is too short to look for a limit",
            expected=f"at least {least}: twice the reference, and four passages",
            fix="give a greater --max-length or a smaller --reference",
        )
    return longest


def _fill(log: SampleLog, model: Predictor, settings: LimitSettings, windows: Sequence[Window]) -> None:
    """Read what the log does not hold yet: each window, and each with another first passage."""
    from lengthwise.measure.limit_reading import reading_of
    from lengthwise.models import naming_bad_logits

    missing: list[tuple[str, bool, Window]] = []
    for index, window in enumerate(windows):
        for key, same in zip(_keys(settings, index), (False, True), strict=True):
            if key in log:
                check_logged(log, key, window_record(window))
            else:
                missing.append((key, same, window))
    if not missing:
        return
    read = reading_of(model, settings)
    for key, same, window in progress(log.share(missing), what="limit"):
        with naming_bad_logits(model, window_words(window)):
            scores = (read.same if same else read.different)(window.ids)
        log.append(key, {**window_record(window), **scores})


def _keys(settings: LimitSettings, index: int) -> tuple[str, str]:
    """Samples of a window: read after another first passage, and as it is."""
    window = f"limit/L{settings.length}/R{settings.reference}/P{settings.passage}/w{index:04d}"
    return f"{window}/different", f"{window}/same"
