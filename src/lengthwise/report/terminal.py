"""The answer of a run in the terminal: one or two sentences with the numbers, and a curve in characters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lengthwise.measure.influence_rows import METHODS
from lengthwise.measure.served_verdict import verdict
from lengthwise.report.displays import tasks_in_order
from lengthwise.report.row_tables import row_estimate
from lengthwise.report.terminal_curve import joined, plot, row_text, sentences, thinned
from lengthwise.results import Results, Row


def answer(results: Results) -> list[str]:
    """What the run says, as lines of at most 80 columns; empty where nothing answers for its rows."""
    if any(row.arm is not None for row in results.rows):
        return []
    lines: list[str] = []
    for task in tasks_in_order(row.task for row in results.rows):
        rows = [row for row in results.rows if row.task == task]
        found = ANSWERS.get(task, scores_answer)(rows, results.config)
        lines += ["", *found] if lines and found else found
    return lines


def print_answer(results: Results, *, verbose: bool = False) -> bool:
    """Print the answer; returns whether the caller shows the table too (no answer, or `verbose`)."""
    lines = answer(results)
    if lines:
        state = " (partial)" if results.partial else ""
        print(f"{results.kind}: {results.model_name}{state}", *lines, sep="\n")
    return verbose or not lines


def misalignment_answer(rows: Sequence[Row], _: Mapping[str, Any]) -> list[str]:
    """How much the predictions with more and with less context disagree; Jeffreys by length."""
    curve = _curve(rows, "jeffreys")
    if not curve:
        return []
    last = curve[-1]
    agree = _at(rows, "top1_agreement", last.length)
    said = (
        f"With contexts of {(last.length or 0) // 2 + 1} to {last.length} tokens, predictions disagree by "
        f"{row_text(last)} nats per token when context is cut off (Jeffreys; 0 is no disagreement)"
    )
    if agree is not None and agree.value is not None:
        said += f"; {100 * agree.value:.1f} % of them keep their most likely token"
    lines = sentences(said + ".")
    if sce := sce_sentence(rows):
        lines += sentences(sce)
    return lines + _plot_by("length", curve, "Jeffreys, nats per token", zero=True)


def sce_sentence(rows: Sequence[Row]) -> str | None:
    """What SCE consists of at the greatest length measured, in one sentence; None without these rows."""
    curves = [_curve(rows, metric) for metric in ("sce", "entropy", "jeffreys")]
    if not all(curves):
        return None
    sce, entropy, jeffreys = (curve[-1] for curve in curves)
    return (
        f"At {sce.length} tokens {100 * (entropy.value or 0) / (sce.value or 1):.1f} % of SCE is entropy (how sharp "
        f"the predictions are, not how far they agree); {_value(jeffreys)} of {_value(sce)} nats are disagreement."
    )


def perplexity_answer(rows: Sequence[Row], _: Mapping[str, Any]) -> list[str]:
    """Loss at the shortest and the longest length, and where it is lowest."""
    curve = _curve(rows, "loss")
    if not curve:
        return []
    first, last = curve[0], curve[-1]
    best = min(curve, key=lambda row: row.value or 0)
    perplexity = _at(rows, "perplexity", last.length)
    said = f"At {last.length} tokens the loss is {row_text(last)} nats per token"
    if perplexity is not None:
        said += f" (perplexity {_value(perplexity)})"
    if first is not last and first.value is not None and last.value is not None:
        change = last.value - first.value
        said += f", {abs(change):.3f} {'lower' if change < 0 else 'higher'} than at {first.length} tokens"
    said += "."
    if best is not last:
        said += f" It is lowest at {best.length} tokens: {_value(best)}."
    return sentences(said) + _plot_by("length", curve, "loss, nats per token; lower is better")


def recall_answer(rows: Sequence[Row], _: Mapping[str, Any]) -> list[str]:
    """At which distances a repeated passage clearly helps."""
    curve = _curve(rows, "benefit")
    if not curve:
        return []
    last = curve[-1]
    clear = [row for row in curve if row.ci_low is not None and row.ci_low > 0]
    said = (
        f"A passage that comes again after {last.distance} tokens is worth {row_text(last)} nats per token."
    )
    if len(clear) == len(curve):
        said += " The model clearly uses it at every distance measured."
    elif any(row.ci_low is not None for row in curve):
        *others, last_clear = [str(row.distance) for row in clear] or [""]
        where = f"{', '.join(others)} and {last_clear}" if others else last_clear
        said += (
            f" Its use is clear (interval above 0) at {where} tokens."
            if clear
            else " Its use is not clear (every interval includes 0)."
        )
    return sentences(said) + _plot_by("distance", curve, "benefit, nats per token; 0 is no use", zero=True)


def limit_answer(rows: Sequence[Row], config: Mapping[str, Any]) -> list[str]:
    """The two limits, and the curves that they come from."""
    numbers = {row.metric: row for row in rows if row.position is None and row.distance is None}
    sound, used, tolerance = (numbers.get(name) for name in ("sound_up_to", "used_up_to", "tolerance"))
    if sound is None or used is None:
        return []
    within = f"{tolerance.value:g}" if tolerance and tolerance.value is not None else "the tolerated"
    lines = sentences(
        f"Predictions are sound up to {row_text(sound, digits=0)} tokens of context: up to there the loss with all "
        f"context is at most {within} nats per token above the loss with only the most recent tokens."
    )
    if used.value is None:
        lines += sentences(
            "How far back context is used is not clear: a passage nearby has no clear benefit either."
        )
    elif used.value == 0:
        lines += sentences("A repeated passage has no benefit at any distance measured.")
    else:
        share = f"{100 * config['share']:g} % of " if "share" in config else ""
        lines += sentences(
            f"Context is used up to {row_text(used, digits=0)} tokens back: up to there a repeated passage keeps at "
            f"least {share}its benefit nearby."
        )
    bins = joined([row for row in rows if row.metric == "excess" and row.position is not None])
    lines += plot(
        [(row.position_end or 0, row) for row in bins],
        "context",
        f"excess loss, nats per token; lines at 0 and at the tolerance, {within}",
        marks=_limit_mark(sound, "sound up to"),
        levels=[0.0, *([tolerance.value] if tolerance and tolerance.value is not None else [])],
    )
    curve = _curve(rows, "benefit")
    marks = _limit_mark(used, "used up to") if used.value else {}
    return lines + plot(
        [(row.distance or 0, row) for row in thinned(curve)],
        "distance",
        "benefit of a repeated passage, nats per token; line at 0",
        marks=marks,
        levels=[0.0],
    )


def longppl_answer(rows: Sequence[Row], _: Mapping[str, Any]) -> list[str]:
    """LongPPL beside the perplexity of all tokens."""
    by_metric = {row.metric: row for row in rows if row.is_headline}
    longppl, plain, share, key = (
        by_metric.get(name) for name in ("longppl", "perplexity", "key_share", "loss_key")
    )
    if longppl is None or plain is None:
        return []
    if longppl.value is None:
        return sentences(
            f"No token of these texts is key; the perplexity of all tokens is {row_text(plain)}."
        )
    said = f"LongPPL, the perplexity on tokens that need far context, is {row_text(longppl)}"
    if key is not None and key.n is not None and share is not None and share.value is not None:
        said += f" ({key.n} key tokens, {100 * share.value:.1f} % of all)"
    return sentences(f"{said}; the perplexity of all tokens is {row_text(plain)}.")


def scores_answer(rows: Sequence[Row], _: Mapping[str, Any]) -> list[str]:
    """The scores of one task by length, and by depth where it has depths."""
    shown = [row for row in rows if row.reference is None and row.bucket is None and row.value is not None]
    metrics = dict.fromkeys(row.metric for row in shown)
    metric = next((name for name in ("accuracy", "contained") if name in metrics), next(iter(metrics), None))
    ours = [row for row in shown if row.metric == metric]
    if not ours or any(row.position is not None or row.distance is not None for row in ours):
        return []
    whole = sorted((row for row in ours if row.depth is None), key=lambda row: row.length or 0)
    if ours[0].unit != "share":
        return sentences(
            f"{ours[0].task}: {'; '.join(f'{metric} {row_text(row)}{_tokens(row)}' for row in whole)}."
        )
    chance = next((row.value for row in shown if row.metric == "chance"), None)
    guessing = "" if chance is None else f" (guessing gives {100 * chance:.0f} %)"
    scores = "; ".join(f"{_per_cent(row)}{_tokens(row)}" for row in whole)
    lines = sentences(f"{ours[0].task}: {metric.replace('_', ' ') if metric else ''} {scores}{guessing}.")
    depths = sorted({row.depth for row in ours if row.depth is not None})
    lengths = sorted({row.length for row in ours if row.depth is not None and row.length is not None})
    if len(depths) > 1 and lengths:
        cells = {(row.depth, row.length): row for row in ours}
        lines.append("  depth" + "".join(f"{length:>8}" for length in lengths[-9:]) + "  tokens; per cent")
        for depth in depths:
            found = (cells.get((depth, length)) for length in lengths[-9:])
            texts = ("" if row is None else f"{100 * (row.value or 0):.0f}" for row in found)
            lines.append(f"{depth:5g} %" + "".join(f"{text:>8}" for text in texts))
    return lines


def training_answer(rows: Sequence[Row], _: Mapping[str, Any]) -> list[str]:
    """Cross entropy, entropy and disagreement of the first and the last steps."""
    values = {row.metric: row for row in rows if row.value is not None}
    parts = []
    for metric, name in (
        ("cross_entropy", "cross entropy"),
        ("entropy", "entropy part"),
        ("jeffreys", "Jeffreys part"),
    ):
        first, last = values.get(f"{metric}_first"), values.get(f"{metric}_last")
        if first is not None and last is not None:
            parts.append(f"{name} from {first.value:.4f} to {last.value:.4f}")
    if not parts:
        return []
    n = max((row.n or 1 for row in rows), default=1)
    steps = "the first step to the last" if n == 1 else f"the first {n} steps to the last {n} (means)"
    return sentences(f"From {steps}, in nats per token: {'; '.join(parts)}. Each step sees other text.")


def influence_answer(rows: Sequence[Row], _: Mapping[str, Any]) -> list[str]:
    """What the greedy tokens recover, and the controls beside them."""
    plain = {row.metric: row for row in rows if row.kept is None and row.reference is None}
    recovered = {
        (row.metric, row.kept): row for row in rows if row.kept is not None and row.reference is None
    }
    sizes = sorted({kept for _, kept in recovered if kept is not None})
    if not sizes or plain["gain"].value is None or plain["gaining"].value is None:
        return []
    most = sizes[-1]
    said = (
        f"{100 * plain['gaining'].value:.1f} % of the tokens gain from long context; {plain['gain'].n} of them were "
        f"looked at, which gain {_value(plain['gain'])} nats each. {most} well-chosen distant tokens "
        f"recover {row_text(recovered['recovered_greedy', most])} of it"
    )
    if ("recovered_net", most) in recovered:
        said += (
            f", {row_text(recovered['recovered_net', most])} beyond what choosing from a foreign text does"
        )
    lines = sentences(said + ".")
    lines += ["", f"  {'kept':<16}" + "".join(f"{k:>8}" for k in sizes) + "  per cent of the gain"]
    for method in METHODS:
        found = [recovered.get((f"recovered_{method}", k)) for k in sizes]
        if any(found):
            texts = ("" if row is None or row.value is None else f"{100 * row.value:.0f}" for row in found)
            lines.append(f"  {method.replace('_', ' '):<16}" + "".join(f"{text:>8}" for text in texts))
    return lines


def served_answer(rows: Sequence[Row], _: Mapping[str, Any]) -> list[str]:
    """The verdict, and the difference by position at the greatest length."""
    lines = [line for said in verdict(rows) for line in sentences(said)]
    longest = max((row.length for row in rows if row.length is not None), default=None)
    bins = [
        row
        for row in rows
        if row.metric == "difference" and row.position_end is not None and row.length == longest
    ]
    points = [(row.position_end or 0, row) for row in bins]
    # Two to a doubling; the last of each doubling, and the last of all.
    shown = points[::2] if len(points) > 12 else points
    shown += [point for point in points[-1:] if point not in shown]
    return lines + plot(shown, "up to", "mean |difference|, nats per token; line at 0", levels=[0.0])


ANSWERS: Mapping[str, Callable[[Sequence[Row], Mapping[str, Any]], list[str]]] = {
    "misalignment": misalignment_answer,
    "perplexity": perplexity_answer,
    "recall": recall_answer,
    "limit": limit_answer,
    "longppl": longppl_answer,
    "influence": influence_answer,
    "served": served_answer,
    "training": training_answer,
}
"""Task -> what answers for its rows, given the settings too. Any other task is one of an evaluation."""


def _plot_by(field: str, rows: Sequence[Row], what: str, *, zero: bool = False) -> list[str]:
    if len(rows) < 2:
        return []
    points = [(getattr(row, field), row) for row in thinned(rows)]
    return plot(points, field, what, levels=[0.0] if zero else [])


def _limit_mark(row: Row, what: str) -> dict[str, float]:
    return {} if row.value is None else {f"{what} {row_text(row, digits=0)} tokens": row.value}


def _curve(rows: Sequence[Row], metric: str) -> list[Row]:
    """The headline rows of a metric that have a value, by length and distance."""
    found = [row for row in rows if row.is_headline and row.metric == metric and row.value is not None]
    return sorted(found, key=lambda row: (row.length or 0, row.distance or 0))


def _at(rows: Sequence[Row], metric: str, length: int | None) -> Row | None:
    return next((row for row in _curve(rows, metric) if row.length == length), None)


def _value(row: Row) -> str:
    return row_estimate(row).value_text


def _per_cent(row: Row) -> str:
    interval = (
        ""
        if row.ci_low is None or row.ci_high is None
        else f" [{100 * row.ci_low:.0f}, {100 * row.ci_high:.0f}]"
    )
    return f"{100 * (row.value or 0):.0f} %{interval}"


def _tokens(row: Row) -> str:
    return "" if row.length is None else f" at {row.length} tokens"
