"""What a measurement returns, what all measurements share, and the paired difference of two of them."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from lengthwise.errors import Interrupted, UsageError
from lengthwise.measure.statistics import Statistic, estimate, estimate_difference, few_documents
from lengthwise.progress import progress
from lengthwise.results import Row
from lengthwise.samples import SampleLog

if TYPE_CHECKING:
    from lengthwise.text import Window

T = TypeVar("T")

# What may differ between the two sides of a paired difference, or between a number and its statistic.
_OWN_TO_A_SIDE = ("model", "value", "stderr", "ci_low", "ci_high", "at_least", "n", "documents", "arm")
# Levels that are set, or that another number is made of: no outcome of their own.
_LEVELS = ("tolerance", "used_level")


@dataclass(kw_only=True)
class Measurement:
    """The numbers of one model, with the samples that they can be made from again."""

    model_name: str
    settings: Mapping[str, Any]
    """Everything besides model and text that decides the numbers, BOS id included."""
    rows: list[Row]
    samples: SampleLog
    keys: tuple[str, ...]
    """The samples of the log that belong to this measurement."""
    statistics: list[Statistic] = field(repr=False)
    """One to each row: the totals by document."""
    notes: list[str] = field(default_factory=list)
    """Sentences that a reader of the numbers must know."""
    partial: bool = False
    """True when samples are missing."""

    @classmethod
    def of(
        cls,
        statistics: Sequence[Statistic],
        *,
        model_name: str,
        settings: Mapping[str, Any],
        samples: SampleLog,
        keys: Sequence[str],
        notes: Sequence[str] = (),
        partial: bool = False,
    ) -> Measurement:
        """Estimate every statistic; says in a note when there is only one document."""
        documents = {name for statistic in statistics for name in statistic.documents}
        said = list(notes)
        said += few_documents(len(documents), "documents")
        return cls(
            model_name=model_name,
            settings=dict(settings),
            rows=[estimate(statistic) for statistic in statistics],
            samples=samples,
            keys=tuple(keys),
            statistics=list(statistics),
            notes=said,
            partial=partial,
        )


def paired_difference(a: Measurement, b: Measurement) -> list[Row]:
    """Every number of `a` minus the same number of `b`, with a 95 % interval for the difference.

    Both must have measured the same tokens with the same settings. Documents are resampled together for
    both, so what makes a text hard or easy for both models cancels: the interval is mostly much narrower
    than those of the two numbers. `Row.reference` names b's model.

    A number that is undefined or a lower bound on either side has no difference. Levels that are set have none
    either. Where all documents differ by the same there is no interval: it would claim to know all others.

    Raises:
        UsageError: the two measurements are not of the same windows, or have other settings.
    """
    _check_same_windows(a, b)
    by_identity = {_identity(statistic.row): statistic for statistic in b.statistics}
    unknown = {_identity(row) for row in (*a.rows, *b.rows) if row.value is None or row.at_least}
    found = []
    for statistic in a.statistics:
        place = _identity(statistic.row)
        if place not in by_identity or statistic.row.metric in _LEVELS:
            continue
        row = estimate_difference(statistic, by_identity[place])
        if place in unknown:
            row = replace(row, value=None, stderr=None, ci_low=None, ci_high=None)
        elif row.stderr == 0:
            row = replace(row, ci_low=None, ci_high=None)
        found.append(row)
    return found


def check_passage(*, passage: int, scored: int) -> None:
    """Raise UsageError if the scored end of a repeated passage leaves no cue for the copy."""
    if scored >= passage:
        raise UsageError(
            f"scored is {scored} of a passage of {passage} tokens",
            expected=f"at most {passage - 1}: the tokens before are the cue for the copy",
        )


def window_record(window: Window) -> dict[str, Any]:
    """What the log keeps of a window, so that another measurement can tell whether it is the same one."""
    return {"document": window.document_id, "start": window.start, "crc": zlib.crc32(window.ids.tobytes())}


def check_logged(log: SampleLog, key: str, record: Mapping[str, Any]) -> None:
    """Raise UsageError unless the sample `key` of the log is of the text of `record`."""
    if not _same_text(log[key], record):
        raise UsageError(
            f"the sample log holds {key} of another text, tokenizer or seed",
            fix="continue with the settings that it was begun with, or start a new log",
        )


def collect(
    log: SampleLog | None,
    fill: Callable[[SampleLog], None],
    summarise: Callable[[SampleLog], Measurement],
) -> Measurement:
    """Let `fill` add the samples that the log lacks, and summarise them all.

    Raises:
        Interrupted: Ctrl-C inside `fill`; `partial` is the measurement of the samples finished so far.
    """
    samples = SampleLog() if log is None else log
    try:
        fill(samples)
        samples.gather()
    except KeyboardInterrupt as error:
        partial = samples.summarised(summarise)
        partial.partial = True
        raise Interrupted(
            f"the measurement was interrupted after {len(partial.keys)} samples",
            partial=partial,
            fix="run it again with --resume to continue",
        ) from error
    return samples.summarised(summarise)


def unfinished(
    log: SampleLog, windows: Sequence[Window], keys: Callable[[int], Sequence[str]]
) -> list[tuple[int, Window]]:
    """The windows, with their indices, that lack a sample in the log.

    Args:
        log: the samples so far.
        windows: all windows.
        keys: the keys of the samples of the window with this index.

    Raises:
        UsageError: a sample in the log is of another window.
    """
    for index, window in enumerate(windows):
        for key in keys(index):
            if key in log:
                check_logged(log, key, window_record(window))
    return [item for item in enumerate(windows) if any(key not in log for key in keys(item[0]))]


def in_groups(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Consecutive groups of at most `size` items."""
    iterator = iter(items)
    while group := list(islice(iterator, size)):
        yield group


def batches(
    log: SampleLog,
    windows: Sequence[Window],
    sizes: Sequence[int],
    key: Callable[[int, int], str],
    *,
    at_once: int,
    what: str,
) -> Iterator[tuple[int, list[int], list[Window]]]:
    """What this process is to read, a batch at a time: the size, and the windows that lack a sample of it.

    Each batch of windows comes at all sizes before the next.

    Args:
        log: the samples so far; it gets those of a batch before the next is asked for.
        windows: all windows.
        sizes: lengths or distances at which each window is read.
        key: (size, index of the window) -> the key of the sample.
        at_once: windows in a batch.
        what: for the progress bar.

    Raises:
        UsageError: a sample in the log is of another window.
    """
    missing = unfinished(log, windows, lambda index: [key(size, index) for size in sizes])
    for group in in_groups(progress(log.share(missing, at_once=at_once), what=what), at_once):
        for size in sizes:
            todo = [(index, window) for index, window in group if key(size, index) not in log]
            if todo:
                yield size, [index for index, _ in todo], [window for _, window in todo]


def window_words(window: Window) -> str:
    """The window in words, for errors."""
    return f"tokens {window.start} to {window.start + len(window.ids) - 1} of {window.document_id!r}"


def few_samples_note(available: int, wanted: int, what: str, tokens: int) -> str:
    """What to say where the text has fewer samples than wanted."""
    return f"the text holds {available} {what} of {tokens} tokens without overlap, fewer than the {wanted} wanted."


def bos_note(bos_id: int | None) -> str:
    """How views begin, in words."""
    if bos_id is None:
        return "No BOS: every view begins with a token of the text."
    return f"BOS: the first token of every view is replaced by token {bos_id}."


def _check_same_windows(a: Measurement, b: Measurement) -> None:
    differing = sorted(
        key for key in {**a.settings, **b.settings} if a.settings.get(key) != b.settings.get(key)
    )
    if differing:
        shown = "; ".join(f"{key}: {a.settings.get(key)!r} and {b.settings.get(key)!r}" for key in differing)
        raise UsageError(
            f"the two measurements have other settings ({shown})",
            expected="the same settings, so that they are of the same tokens",
        )
    missing = sorted(set(a.keys) ^ set(b.keys))
    if missing:
        raise UsageError(
            f"the two measurements are not of the same windows: only one has {missing[0]}"
            + (f" and {len(missing) - 1} more" if len(missing) > 1 else ""),
            fix="measure both models on the same text with the same settings, to the end",
        )
    other = [key for key in a.keys if not _same_text(a.samples[key], b.samples[key])]
    if other:
        raise UsageError(
            f"the two measurements are not of the same windows: {other[0]} holds other tokens",
            expected="the same text, and models that share a tokenizer",
        )
    _check_same_key_tokens(a, b)
    _check_same_targets(a, b)


def _same_text(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    # A question of an evaluation has no start.
    return all(one.get(name) == other.get(name) for name in ("document", "start", "end", "crc"))


def _check_same_key_tokens(a: Measurement, b: Measurement) -> None:
    other = [key for key in a.keys if a.samples[key].get("spans") != b.samples[key].get("spans")]
    if other:
        raise UsageError(
            f"the two measurements are not of the same key tokens: {other[0]} has others",
            expected="one evaluator, with the same weights, adapter and dtype",
            fix="measure both models with the same --evaluator, or the second on the --key-tokens of the first",
        )


def _check_same_targets(a: Measurement, b: Measurement) -> None:
    """`influence` examines the same tokens of both models, but the tokens that gain are each model's own."""
    other = [key for key in a.keys if _targets(a.samples[key]) != _targets(b.samples[key])]
    if other:
        raise UsageError(
            f"the two measurements are not of the same targets: {other[0]} has others",
            expected="runs in which the same tokens gain from distant context",
            fix="measure both with --set targets=0: then the examined tokens are compared, which are the same",
        )


def _targets(record: Mapping[str, Any]) -> list[Any] | None:
    found = record.get("targets")
    # Other measurements count targets.
    return [target["position"] for target in found] if isinstance(found, list) else None


def _identity(row: Row) -> tuple[tuple[str, Any], ...]:
    return tuple((name, value) for name, value in asdict(row).items() if name not in _OWN_TO_A_SIDE)
