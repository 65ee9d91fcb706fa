"""The effective context length on a text, without labels: up to where predictions are sound, and context used.

Each window of text is read once from its beginning, up to `length` tokens, and compared with the same model
that reads only the last R/2 + 1 .. R tokens before each target, R = `reference`, a length it was trained for:

    excess(n) = loss(token | all n tokens before it) - loss(the same token | the last R/2 + 1 .. R of them)

On the way, after d tokens and for d on a grid, the window's first passage is asked for again; and the same
after a window that differs in its first passage alone (`measure_recall`, with the filler's beginning):

    benefit(d) = loss(passage | a different passage d tokens back) - loss(passage | the same one)

docs/evaluation.md defines the two limits that are made of these, with what they assume and cannot see.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from lengthwise.display import Display
from lengthwise.errors import UsageError
from lengthwise.measure.contexts import compare_contexts, losses_of
from lengthwise.measure.limit_rows import LimitSettings, limit_notes, limit_statistics, marked
from lengthwise.measure.measurement import Measurement, check_logged, interruptible, window_record
from lengthwise.measure.reader import CachedReader, PlainReader, reader_kind
from lengthwise.measure.running import (
    bos_note,
    check_count,
    check_model,
    hidden_states,
    in_groups,
    named,
    naming_bad_logits,
)
from lengthwise.progress import progress
from lengthwise.samples import SampleLog
from lengthwise.text import resolve_bos, sample_windows, view

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lengthwise.models import LoadedModel
    from lengthwise.text import TokenDocuments, Window

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
"""Tokens looked at where nobody says how many, or so many times the trained length if that is less:"""
TIMES_TRAINED = 8
MOST_REFERENCE = 1024
TOLERANCE = 0.1
SHARE = 0.1
_STEPS_PER_DOUBLING = 4
_BINS_PER_REFERENCE = 8


def measure_limit(
    model: LoadedModel,
    documents: TokenDocuments,
    *,
    length: int | None = None,
    reference: int | None = None,
    windows: int = 8,
    tolerance: float = TOLERANCE,
    share: float = SHARE,
    passage: int = 64,
    scored: int = 48,
    bos: str = "auto",
    seed: int = 0,
    batch_size: int = 1,
    log: SampleLog | None = None,
) -> Measurement:
    """Up to where predictions stay sound, and up to where context is used, on this text.

    Rows of task "limit": `sound_up_to` and `used_up_to` (tokens; `at_least` where nothing was found up to the
    longest measured); by position `excess`, `jeffreys` (of the same two predictions) and `loss` (with all
    context), nats; by distance `benefit`; `tolerance` and `used_level`, the two levels (nats).

    Args:
        model: loaded, in eval mode.
        documents: the text in this model's tokens.
        length: the longest context looked at; less where a table of positions ends before. Default: 16384, or
            eight times the trained length if that is less.
        reference: R, even; its contexts must be short enough for the model to be sound. Default: the greatest
            power of two within 1024 and a quarter of the trained length.
        windows: windows of text; fewer where the text has fewer.
        tolerance: nats a token that the excess may reach.
        share: of the benefit at distances up to R that counts as used.
        passage: tokens in the passage that comes again.
        scored: tokens at its end whose loss counts, fewer than `passage`.
        bos: whether every view begins with BOS (in place of its first token): "auto", "always", "never".
        seed: of the windows.
        batch_size: short contexts in one forward pass. Changes nothing but speed and memory.
        log: finished samples, read and appended to. None keeps them in memory.

    Raises:
        UsageError: a setting out of range, too short a text, a log of other samples.
        LengthwiseError: logits that are not finite.
        Interrupted: Ctrl-C; `partial` is the measurement of what was finished.
    """
    for name, count in (("windows", windows), ("batch_size", batch_size), ("scored", scored)):
        check_count(name, count)
    check_limit_levels(tolerance=tolerance, share=share)
    check_count("passage", passage, least=2)
    if scored >= passage:
        raise UsageError(
            f"scored is {scored} of a passage of {passage} tokens", expected=f"at most {passage - 1}"
        )
    reference = _reference(model, reference)
    longest = _longest(model, length, reference, passage)
    check_model(model, longest=longest)
    found = sample_windows(documents, longest + 1 + 2 * passage, count=windows, seed=seed, allow_fewer=True)
    settings = LimitSettings(
        length=longest,
        reference=reference,
        bin=reference // _BINS_PER_REFERENCE,
        distances=_distances(2 * passage, longest - passage),
        passage=passage,
        scored=scored,
        tolerance=tolerance,
        share=share,
        windows=windows,
        available=len(found),
        table=model.max_positions,
        bos_id=resolve_bos(model.tokenizer, bos),
        seed=seed,
    )
    samples = SampleLog() if log is None else log
    with interruptible("the measurement", lambda: summarise(samples, settings, model.name)):
        _fill(samples, model, settings, found, batch_size)
    return summarise(samples, settings, model.name)


def summarise(log: SampleLog, settings: LimitSettings, model_name: str) -> Measurement:
    """The numbers from the samples in `log` alone; partial if some are missing."""
    pairs = [_keys(settings, index) for index in range(settings.available)]
    whole = [pair for pair in pairs if all(key in log for key in pair)]
    records = [{**log[different], **log[same]} for different, same in whole]
    measurement = Measurement.of(
        limit_statistics(records, settings, model_name) if records else [],
        model_name=model_name,
        settings=asdict(settings),
        samples=log,
        keys=[key for pair in whole for key in pair],
        notes=[bos_note(settings.bos_id)],
        partial=len(whole) < settings.available,
    )
    measurement.rows = marked(measurement.rows, settings)
    measurement.notes = limit_notes(measurement.rows, settings) + measurement.notes
    return measurement


def default_length(trained: int | None) -> int:
    """The longest context looked at where nobody says how many."""
    return LONGEST if trained is None else min(LONGEST, TIMES_TRAINED * trained)


def check_limit_levels(*, tolerance: float, share: float) -> None:
    """Raise UsageError unless both levels make sense."""
    if not tolerance > 0:
        raise UsageError(f"tolerance is {tolerance}", expected="nats a token, more than 0")
    if not 0 < share < 1:
        raise UsageError(f"share is {share}", expected="between 0 and 1")


def check_reference(reference: int) -> None:
    """Raise UsageError unless `reference` can be cut into bins."""
    check_count("reference", reference, least=2 * _BINS_PER_REFERENCE)
    if reference % _BINS_PER_REFERENCE:
        raise UsageError(f"reference is {reference}", expected=f"a multiple of {_BINS_PER_REFERENCE}")


def _reference(model: LoadedModel, reference: int | None) -> int:
    if reference is None:
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
    check_reference(reference)
    return reference


def _longest(model: LoadedModel, length: int | None, reference: int, passage: int) -> int:
    """The asked length or what a table allows, in whole blocks of R/2."""
    least = max(2 * reference, 4 * passage)
    if length is None:
        length = max(least, default_length(model.trained_length))
    check_count("length", length)
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


def _distances(first: int, last: int) -> tuple[int, ...]:
    """Four to a doubling from `first`, and `last`."""
    steps = int(_STEPS_PER_DOUBLING * np.log2(last / first))
    grid = {round(first * 2 ** (step / _STEPS_PER_DOUBLING)) for step in range(steps + 1)}
    return (*sorted(distance for distance in grid if distance < 0.95 * last), last)


def _fill(
    log: SampleLog,
    model: LoadedModel,
    settings: LimitSettings,
    windows: Sequence[Window],
    batch_size: int,
) -> None:
    """Read what the log does not hold yet: each window, and each with another first passage."""
    missing: list[tuple[str, bool, Window]] = []
    for index, window in enumerate(windows):
        for key, same in zip(_keys(settings, index), (False, True), strict=True):
            if key in log:
                check_logged(log, key, window)
            else:
                missing.append((key, same, window))
    if not missing:
        return
    kind = reader_kind(model)
    for key, same, window in progress(missing, what="limit"):
        with naming_bad_logits(model, named(window)):
            score = _same if same else _different
            scores = score(model, kind, window.ids, settings, batch_size)
        log.append(key, {**window_record(window), **scores})


def _different(
    model: LoadedModel,
    kind: type[CachedReader] | type[PlainReader],
    ids: NDArray[np.integer],
    settings: LimitSettings,
    batch_size: int,
) -> dict[str, Any]:
    """The passage's losses by distance where another one stands first."""
    context = np.concatenate([ids[-settings.passage :], ids[settings.passage :]])
    losses: list[float] = []
    for _ in _blocks(model, kind, context, ids, settings, losses):
        pass
    return {"different": losses}


def _same(
    model: LoadedModel,
    kind: type[CachedReader] | type[PlainReader],
    ids: NDArray[np.integer],
    settings: LimitSettings,
    batch_size: int,
) -> dict[str, Any]:
    """The passage's losses by distance where it stands first itself, and sums by bin of what it is compared with."""
    losses: list[float] = []
    half = settings.reference // 2
    sums: list[Tensor] = []
    blocks = enumerate(_blocks(model, kind, ids, ids, settings, losses))
    beyond = ((index * half, hidden) for index, hidden in blocks if index * half >= settings.reference)
    for group in in_groups(beyond, batch_size):
        views = [view(ids, start - half, settings.reference, settings.bos_id) for start, _ in group]
        ends = hidden_states(model, np.stack(views), batch_size=len(views))[:, half:]
        for (start, whole), cut in zip(group, ends, strict=True):
            labels = ids[start + 1 : start + 1 + half]
            loss, short, jeffreys = compare_contexts(model, whole, cut, labels, first=start).T
            scores = torch.stack([loss - short, jeffreys, loss], dim=1)
            sums.append(scores.unflatten(0, (-1, settings.bin)).sum(dim=1))
    return {
        "same": losses,
        **dict(zip(("excess", "jeffreys", "loss"), torch.cat(sums).T.tolist(), strict=True)),
    }


def _blocks(
    model: LoadedModel,
    kind: type[CachedReader] | type[PlainReader],
    context: NDArray[np.integer],
    ids: NDArray[np.integer],
    settings: LimitSettings,
    losses: list[float],
) -> Iterator[Tensor]:
    """Read `context` in blocks of R/2 and hand out what the head takes; ask for the passage on the way.

    Appends to `losses` the summed loss of the passage that `ids` begins with, after each distance.
    """
    reader = kind(model)
    tokens = view(context, 0, settings.length, settings.bos_id)
    question = ids[: settings.passage]
    place = 0
    for end in range(settings.reference // 2, settings.length + 1, settings.reference // 2):
        pieces = []
        for cut in sorted({end, *(d for d in settings.distances if place < d <= end)}):
            pieces.append(reader.read(tokens[place:cut]))
            place = cut
            if cut in settings.distances:
                hidden = reader.look(np.asarray(question[:-1], dtype=np.int64))[-settings.scored :]
                answer = question[-settings.scored :]
                losses.append(losses_of(model, hidden, answer, first=place).sum().item())
        yield torch.cat(pieces)


def _keys(settings: LimitSettings, index: int) -> tuple[str, str]:
    """Samples of a window: read after another first passage, and as it is."""
    window = f"limit/L{settings.length}/R{settings.reference}/P{settings.passage}/w{index:04d}"
    return f"{window}/different", f"{window}/same"
