"""The sentence that every face of a run begins with: page, JSON, notebook, terminal and pull request.

`said` has it with the rows that it is made from; `SAYS` has one function for each task, of rows that have values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

from lengthwise.report.tables import readable, row_estimate, row_text, tasks_in_order, tokens_text
from lengthwise.results import Results, Row, percent
from lengthwise.settings import Subject, kind_of

if TYPE_CHECKING:
    from lengthwise.report.comparison_evidence import Kind

CHANGES = ("adapter", "dtype", "quantize", "attn", "kv_cache", "cache", "rope_scaling", "read")
"""Settings of a subject that its name does not say."""


class _Said(NamedTuple):
    """What a run says."""

    sentence: str
    numbers: Sequence[Row] = ()
    """The rows whose numbers are in it."""
    more: Sequence[str] = ()
    """Sentences that explain it."""


def said(results: Results) -> _Said:
    """The sentence of a run: what was measured, and what was found. Without an answer it names no numbers."""
    name = f"{subject_of(results)}{' (partial)' if results.partial else ''}"
    if results.kind == "difference":
        beyond = [row for row in results.rows if row.beyond_noise]
        return _Said(f"{name}: {results.notes[0]}", beyond)
    tasks = tasks_in_order(row.task for row in results.rows)
    parts = [part for task in tasks if (part := _part(task, results))]
    if not parts:
        numbers = "1 number" if len(results.rows) == 1 else f"{len(results.rows)} numbers"
        return _Said(f"{name}: {results.kind}, {numbers}.")
    return _Said(
        f"{name}: {'; '.join(part.sentence for part in parts)}.",
        [row for part in parts for row in part.numbers],
        [text for part in parts for text in part.more],
    )


def _part(task: str, results: Results) -> _Said | None:
    rows = [
        row for row in results.rows if row.task == task and row.value is not None and row.reference is None
    ]
    needed, says = SAYS.get(task, ("", _scores))
    if task in SAYS and not any(row.is_headline and row.metric == needed for row in rows):
        return None
    return says(rows, results)


def subject_of(results: Results) -> str:
    """What was measured: the model, with what changes how it is read; of a comparison, B against A."""
    one, two = (
        results.config.get("a", results.config),
        results.config.get("b") or results.config.get("side_b"),
    )
    if not two:
        return _short(results.model_name) + _changed({}, one)
    a, b = (_short(str(side.get("model", results.model_name))) for side in (one, two))
    return f"{b}{_changed(one, two)}{f' against {a}' if a != b else ''}"


def _short(model: str) -> str:
    """The last part of a path or hub id."""
    model = " ".join(readable(model).split())
    return model if kind_of(model) != "weights" or " " in model else PurePath(model).name or model


def _changed(one: Mapping[str, Any], two: Mapping[str, Any]) -> str:
    """How `two` is loaded and read otherwise than `one`, as " in ... with ..."; what neither says is the default."""
    found, precision = [], ""
    for name in CHANGES:
        before, value = (side.get(name, Subject.model_fields[name].default) for side in (one, two))
        bits = re.search(r"(?:int|nf|fp|[qf])(\d)", str(value))
        if value == before:
            continue
        if name == "dtype" and value != "auto":
            precision = f" in {value}"
        elif name in ("kv_cache", "quantize") and bits:
            found.append(
                f"{bits[1]}-bit weights"
                if name == "quantize"
                else f"a{'n' * (bits[1] == '8')} {bits[1]}-bit cache"
            )
        elif isinstance(value, Mapping):
            # The adapter of a recipe: the class of PEFT's configuration, and its settings.
            rank = f" of rank {value['r']}" if "r" in value else ""
            found.append(f"a {str(value.get('config')).removesuffix('Config')} adapter{rank}")
        else:
            found.append(f"{name}={value}" if value is not None else f"no {name}")
    return precision + (f" with {' and '.join(found)}" if found else "")


# "size" is the mean of |log p B - log p A| where both sides differ, "whole" of all tokens, with its interval.
APART: Mapping[Kind, str] = {
    "equal": "equal within rounding up to {longest:,} tokens ({whole} nats per token apart)",
    "undecided": "not decided, because rounding alone moves a prediction by {size:.2g} nats per token",
    "all positions": "{whole} nats per token apart at all positions",
    "from a place": "{size:.2g} nats per token apart from token {low:,} on{until}, equal before ({whole} over all)",
    "growing": "{size:.2g} nats per token apart from token {low:,} on, {before:.2g} before ({whole} over all)",
    "first tokens": "{size:.2g} nats per token apart in the first {high:,} tokens{cached}, {before:.2g} beyond "
    "({whole} over all)",
    "some windows": "{whole} nats per token apart, all of it in {windows} of the windows",
    "some tokens": "a few tokens up to {size:.2g} nats apart ({whole} per token over all)",
    "unstable": "not decided, because side {unstable} differs from itself by {size:.2g} nats per token",
}
"""How far apart both sides are, by pattern."""
BY_CACHE = (
    "{size:.2g} nats per token apart from token {cached_from:,.0f} on, "
    "where a cache is read ({whole} over all)"
)
"""The same at all positions, once a cache is read: before, both are equal, and the mean over all tokens is less."""
USED = {
    "alike": "far context used alike",
    "less": "far context used less",
    "more": "far context used more",
    "not clear": "whether far context is used alike is not clear",
}


def _comparison(rows: Sequence[Row], _: Results) -> _Said:
    # What only one verb needs is not loaded to answer for others.
    from lengthwise.report.comparison_evidence import evidence
    from lengthwise.report.comparison_verdict import verdict, words_of

    seen = evidence(rows)
    if seen is None:
        return _Said("no difference was measured")
    words = words_of(rows, seen)
    difference = next(
        row for row in rows if row.is_whole and (row.metric, row.length) == ("difference", words["longest"])
    )
    words |= {"whole": row_text(difference), "until": f" up to {words['until']:,}" if seen.again else ""}
    words["cached_from"] = next((row.value for row in rows if row.metric == "cached_from"), 0)
    through_cache = seen.pattern == "all positions" and words["cached_from"]
    apart = (BY_CACHE if through_cache else APART[seen.pattern]).format(**words)
    if seen.moves:
        apart = f"{words['whole']} nats per token apart, from a token that moves with the window"
    decided = seen.pattern not in ("undecided", "unstable")
    kept = [row for row in rows if row.metric == "benefit_kept"] if decided else []
    return _Said(f"{apart}; {USED[seen.use]}" if decided else apart, [difference, *kept], verdict(rows))


def _limit(rows: Sequence[Row], run: Results) -> _Said:
    from lengthwise.report.limit_answer import limit_answers

    answers, claim = limit_answers(run), run.provenance.get("model", {}).get("claimed_length")
    parts = [*([f"claims {claim:,} tokens"] if claim else []), *(each.short for each in answers)]
    numbers = {row.metric: row for row in rows if row.distance is None and row.position is None}
    named = [numbers[metric] for metric in ("sound_up_to", "used_up_to", "tolerance") if metric in numbers]
    return _Said("; ".join(parts), named, [each.whole for each in answers])


def _misalignment(rows: Sequence[Row], _: Results) -> _Said:
    curve, agree = curve_of(rows, "jeffreys"), curve_of(rows, "top1_agreement")
    last = curve[-1]
    kept = f", and {percent(agree[-1].value or 0, 1)} keep their most likely token" if agree else ""
    sentence = (
        f"with contexts of {(last.length or 0) // 2 + 1} to {last.length} tokens, predictions disagree by "
        f"{row_text(last)} nats per token when context is cut off (Jeffreys; 0 is no disagreement){kept}"
    )
    sce = sce_sentence(rows)
    return _Said(sentence, [last, *agree[-1:]], [sce] if sce else [])


def sce_sentence(rows: Sequence[Row]) -> str | None:
    """What SCE consists of at the greatest length measured, in one sentence; None without these rows."""
    curves = [curve_of(rows, metric) for metric in ("sce", "entropy", "jeffreys")]
    if not all(curves):
        return None
    sce, entropy, jeffreys = (curve[-1] for curve in curves)
    return (
        f"At {sce.length} tokens {percent((entropy.value or 0) / (sce.value or 1), 1)} of SCE is entropy (how sharp "
        f"the predictions are, not how far they agree); {_value(jeffreys)} of {_value(sce)} nats are disagreement."
    )


def _perplexity(rows: Sequence[Row], _: Results) -> _Said:
    curve = curve_of(rows, "loss")
    first, last, best = curve[0], curve[-1], min(curve, key=lambda row: row.value or 0.0)
    # None where it overflows.
    perplexities = [row for row in curve_of(rows, "perplexity") if row.length == last.length]
    text = f"at {last.length} tokens the loss is {row_text(last)} nats per token"
    text += f" (perplexity {_value(perplexities[0])})" if perplexities else ""
    if first is not last:
        change = f"{(last.value or 0.0) - (first.value or 0.0):+.3f}"
        sign, size = change[0], change[1:]
        than = "higher than" if sign == "+" else "lower than"
        text += f", {size} {than} at" if float(size) else ", as at"
        text += f" {first.length} tokens"
    # What is printed alike is not lower.
    more = [f"It is lowest at {best.length} tokens: {_value(best)}."] if _value(best) != _value(last) else []
    return _Said(text, [last, *perplexities], more)


def _longppl(rows: Sequence[Row], _: Results) -> _Said:
    numbers = {row.metric: row for row in rows}
    text = "no token of these texts is key"
    if "longppl" in numbers:
        text = f"LongPPL, the perplexity on tokens that need far context, is {row_text(numbers['longppl'])}"
    if "key_share" in numbers and "loss_key" in numbers:
        text += f" ({numbers['loss_key'].n} key tokens, {percent(numbers['key_share'].value or 0, 1)} of all)"
    text += f"; the perplexity of all tokens is {row_text(numbers['perplexity'])}"
    return _Said(text, [numbers[name] for name in ("longppl", "perplexity") if name in numbers])


def _training(rows: Sequence[Row], _: Results) -> _Said:
    values = {row.metric: row for row in rows}
    names = {"cross_entropy": "cross entropy", "entropy": "entropy part", "jeffreys": "Jeffreys part"}
    ends = {
        metric: (values[f"{metric}_first"], values[f"{metric}_last"])
        for metric in names
        if f"{metric}_first" in values and f"{metric}_last" in values
    }
    parts = [f"{names[metric]} from {a.value:.4f} to {b.value:.4f}" for metric, (a, b) in ends.items()]
    n = max(row.n or 1 for row in rows)
    steps = "the first step to the last" if n == 1 else f"the first {n} steps to the last {n} (means)"
    sentence = f"from {steps}, in nats per token, {', '.join(parts)}"
    return _Said(sentence, [row for pair in ends.values() for row in pair], ["Each step sees other text."])


def _kept(rows: Sequence[Row], _: Results) -> _Said | None:
    losses = curve_of(rows, "loss")
    numbers = ", ".join(f"{row_text(row)} at {row.length} tokens" for row in losses)
    return _Said(f"predictions are kept, with a loss of {numbers}", losses)


def _scores(rows: Sequence[Row], _: Results) -> _Said | None:
    ours = [row for row in score_rows(rows) if row.depth is None]
    if not ours:
        return None
    metric, shares = ours[0].metric, ours[0].unit == "share"
    scores = ", ".join(
        (_per_cent(row) if shares else row_text(row))
        + ("" if row.length is None else f" at {row.length} tokens")
        for row in sorted(ours, key=lambda row: row.length or 0)
    )
    chance = next((f" (guessing gives {percent(r.value or 0)})" for r in rows if r.metric == "chance"), "")
    lengths = [row for row in rows if row.metric == "effective_length"]
    more = [f"Effective length: {tokens_text(row)}." for row in lengths]
    return _Said(
        f"{ours[0].task} {metric.replace('_', ' ')} {scores}{chance}",
        [*ours, *lengths],
        more,
    )


SAYS: Mapping[str, tuple[str, Callable[[Sequence[Row], Results], _Said | None]]] = {
    "misalignment": ("jeffreys", _misalignment),
    "perplexity": ("loss", _perplexity),
    "limit": ("tolerance", _limit),
    "longppl": ("perplexity", _longppl),
    "kept_predictions": ("loss", _kept),
    "difference": ("difference", _comparison),
    "training": ("cross_entropy_first", _training),
}
"""Task -> the metric without which there is no answer, and what says it, given the run too.

The rows have values, and none is a difference. Other tasks are families of questions.
"""


def score_rows(rows: Sequence[Row]) -> list[Row]:
    """The scores of a family of questions, whole and by depth; none of rows that are of something else."""
    metrics = dict.fromkeys(row.metric for row in rows)
    metric = next((name for name in ("accuracy", "contained") if name in metrics), next(iter(metrics), ""))
    ours = [row for row in rows if row.metric == metric and row.bucket is None]
    return [] if any(row.position is not None or row.distance is not None for row in ours) else ours


def curve_of(rows: Sequence[Row], metric: str) -> list[Row]:
    """The headline rows of a metric that have a value, by length and distance."""
    found = [row for row in rows if row.is_headline and row.metric == metric and row.value is not None]
    return sorted(found, key=lambda row: (row.length or 0, row.distance or 0))


def _value(row: Row) -> str:
    return row_estimate(row).value_text


def _per_cent(row: Row) -> str:
    ends = f" [{100 * row.ci_low:.0f}, {100 * (row.ci_high or 0):.0f}]" if row.ci_low is not None else ""
    return f"{percent(row.value or 0)}{ends}"
