"""The answer of a run in the terminal: one or two sentences with the numbers, and a curve in characters."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lengthwise.report.tables import row_estimate, row_text, tasks_in_order, tokens_text
from lengthwise.results import Results, Row

WIDTH = 80
_PLOT = 40
_MOST_LINES = 12


def answer(results: Results) -> list[str]:
    """What the run says, as lines of at most 80 columns; empty where nothing answers for its rows."""
    texts: list[str] = []
    for task in tasks_in_order(row.task for row in results.rows):
        needed, says = ANSWERS.get(task, ("", _scores_answer))
        rows = [row for row in results.rows if row.task == task and row.reference is None]
        rows = [row for row in rows if row.value is not None]
        if task not in ANSWERS or any(row.is_headline and row.metric == needed for row in rows):
            found = says(rows, results.config)
            texts += ["", *found] if texts and found else found
    return [line for text in texts for line in textwrap.wrap(text, WIDTH) or [""]]


def _misalignment_answer(rows: Sequence[Row], _: Mapping[str, Any]) -> list[str]:
    curve, agree = _curve(rows, "jeffreys"), _curve(rows, "top1_agreement")
    last = curve[-1]
    kept = f"; {100 * _number(agree[-1]):.1f} % of them keep their most likely token" if agree else ""
    sce = sce_sentence(rows)
    return [
        f"With contexts of {(last.length or 0) // 2 + 1} to {last.length} tokens, predictions disagree by "
        f"{row_text(last)} nats per token when context is cut off (Jeffreys; 0 is no disagreement){kept}.",
        *([sce] if sce else []),
        *_plot_by("length", curve, "Jeffreys, nats per token", levels=[0.0]),
    ]


def sce_sentence(rows: Sequence[Row]) -> str | None:
    """What SCE consists of at the greatest length measured, in one sentence; None without these rows."""
    curves = [_curve(rows, metric) for metric in ("sce", "entropy", "jeffreys")]
    if not all(curves):
        return None
    sce, entropy, jeffreys = (curve[-1] for curve in curves)
    return (
        f"At {sce.length} tokens {100 * _number(entropy) / _number(sce):.1f} % of SCE is entropy (how sharp the "
        f"predictions are, not how far they agree); {_value(jeffreys)} of {_value(sce)} nats are disagreement."
    )


def _perplexity_answer(rows: Sequence[Row], _: Mapping[str, Any]) -> list[str]:
    curve, perplexities = _curve(rows, "loss"), _curve(rows, "perplexity")
    first, last, best = curve[0], curve[-1], min(curve, key=_number)
    text = f"At {last.length} tokens the loss is {row_text(last)} nats per token"
    text += f" (perplexity {_value(perplexities[-1])})" if perplexities else ""
    if first is not last:
        change = _number(last) - _number(first)
        text += f", {abs(change):.3f} {'lower' if change < 0 else 'higher'} than at {first.length} tokens"
    text += "." if best is last else f". It is lowest at {best.length} tokens: {_value(best)}."
    return [text, *_plot_by("length", curve, "loss, nats per token; lower is better")]


def _limit_answer(rows: Sequence[Row], config: Mapping[str, Any]) -> list[str]:
    # What only `limit` needs is not loaded to answer for other verbs.
    from lengthwise.report.limit_answer import limit_sentences

    numbers = {row.metric: row for row in rows if row.position is None and row.distance is None}
    tolerance = numbers["tolerance"]
    marks = {
        metric: {f"{words} up to {tokens_text(numbers[metric])}": _number(numbers[metric])}
        for metric, words in (("sound_up_to", "sound"), ("used_up_to", "used"))
        if metric in numbers and numbers[metric].value
    }
    excess = _joined([row for row in rows if row.metric == "excess"])
    # What decided is marked.
    curve = "benefit_inside" if "beginning_up_to" in numbers else "benefit"
    return [
        *limit_sentences(rows, config),
        *_plot(
            [(row.position_end or 0, row) for row in excess],
            "context",
            f"excess loss, nats per token; lines at 0 and at the tolerance, {tolerance.value:g}",
            marks=marks.get("sound_up_to"),
            levels=[0.0, _number(tolerance)],
        ),
        *(
            line
            for metric, which in (("benefit", "repeated passage"), ("benefit_inside", "passage from inside"))
            if metric in ("benefit", curve)
            for line in _plot_by(
                "distance",
                _curve(rows, metric),
                f"benefit of a {which}, nats per token; line at 0",
                marks=marks.get("used_up_to", {}) if metric == curve else {},
                levels=[0.0],
            )
        ),
    ]


def _longppl_answer(rows: Sequence[Row], _: Mapping[str, Any]) -> list[str]:
    numbers = {row.metric: row for row in rows}
    text = "No token of these texts is key"
    if "longppl" in numbers:
        text = f"LongPPL, the perplexity on tokens that need far context, is {row_text(numbers['longppl'])}"
    if "key_share" in numbers and "loss_key" in numbers:
        text += f" ({numbers['loss_key'].n} key tokens, {100 * _number(numbers['key_share']):.1f} % of all)"
    return [f"{text}; the perplexity of all tokens is {row_text(numbers['perplexity'])}."]


def _scores_answer(rows: Sequence[Row], _: Mapping[str, Any]) -> list[str]:
    metrics = dict.fromkeys(row.metric for row in rows)
    metric = next((name for name in ("accuracy", "contained") if name in metrics), next(iter(metrics), ""))
    ours = [row for row in rows if row.metric == metric and row.bucket is None]
    if not ours or any(row.position is not None or row.distance is not None for row in ours):
        return []
    task, shares = ours[0].task, ours[0].unit == "share"
    whole = sorted((row for row in ours if row.depth is None), key=lambda row: row.length or 0)
    scores = "; ".join(
        (_per_cent(row) if shares else f"{metric} {row_text(row)}")
        + ("" if row.length is None else f" at {row.length} tokens")
        for row in whole
    )
    if not shares:
        return [f"{task}: {scores}."]
    chance = next(
        (f" (guessing gives {100 * _number(row):.0f} %)" for row in rows if row.metric == "chance"), ""
    )
    lines = [f"{task}: {metric.replace('_', ' ')} {scores}{chance}."]
    cells = {(row.depth, row.length): row for row in ours if row.depth is not None and row.length is not None}
    depths, lengths = sorted({depth for depth, _ in cells}), sorted({length for _, length in cells})[-9:]
    if len(depths) > 1:
        lines.append("  depth" + "".join(f"{length:>8}" for length in lengths) + "  tokens; per cent")
        for depth in depths:
            own = (cells.get((depth, length)) for length in lengths)
            shares = ("" if row is None else f"{100 * _number(row):.0f}" for row in own)
            lines.append(f"{depth:5g} %" + "".join(f"{share:>8}" for share in shares))
    return [
        *lines,
        *(f"Effective length: {tokens_text(row)}." for row in rows if row.metric == "effective_length"),
    ]


def _training_answer(rows: Sequence[Row], _: Mapping[str, Any]) -> list[str]:
    values = {row.metric: row.value for row in rows}
    names = {"cross_entropy": "cross entropy", "entropy": "entropy part", "jeffreys": "Jeffreys part"}
    parts = [
        f"{name} from {values[f'{metric}_first']:.4f} to {values[f'{metric}_last']:.4f}"
        for metric, name in names.items()
        if f"{metric}_first" in values and f"{metric}_last" in values
    ]
    n = max(row.n or 1 for row in rows)
    steps = "the first step to the last" if n == 1 else f"the first {n} steps to the last {n} (means)"
    return [f"From {steps}, in nats per token: {'; '.join(parts)}. Each step sees other text."]


def _comparison_answer(rows: Sequence[Row], _: Mapping[str, Any]) -> list[str]:
    from lengthwise.report.comparison_evidence import difference_bins
    from lengthwise.report.comparison_verdict import verdict

    points = [(row.position_end or 0, row) for row in difference_bins(rows)]
    # Two to a doubling; the last of each doubling, and the last of all.
    shown = points[::2] if len(points) > 12 else points
    shown += [point for point in points[-1:] if point not in shown]
    benefits = [row for row in rows if row.metric in ("benefit_a", "benefit_b")]
    return [
        *verdict(rows),
        *_plot(shown, "up to", "mean |difference|, nats per token; line at 0", levels=[0.0]),
        *_in_nats("  benefit of a passage", benefits),
    ]


def _in_nats(corner: str, rows: Sequence[Row]) -> list[str]:
    """A small table of the benefits of both sides by distance."""
    distances = sorted({row.distance for row in rows if row.distance is not None})[-5:]
    if not distances:
        return []
    cells = {(row.metric, row.distance): row for row in rows}
    return ["", corner + "".join(f"{distance:>10,}" for distance in distances) + "  tokens back"] + [
        f"{f'  {metric[-1].upper()}, nats per token':<{len(corner)}}"
        + "".join(f"{_number(cells[metric, distance]):>10.2f}" for distance in distances)
        for metric in ("benefit_a", "benefit_b")
    ]


ANSWERS: Mapping[str, tuple[str, Callable[[Sequence[Row], Mapping[str, Any]], list[str]]]] = {
    "misalignment": ("jeffreys", _misalignment_answer),
    "perplexity": ("loss", _perplexity_answer),
    "limit": ("tolerance", _limit_answer),
    "longppl": ("perplexity", _longppl_answer),
    "difference": ("difference", _comparison_answer),
    "training": ("cross_entropy_first", _training_answer),
}
"""Task -> the metric without which there is no answer, and what answers for its rows, given the settings too.

The rows have values, and none is a difference.
"""


def _plot_by(field: str, rows: Sequence[Row], what: str, **marked: Any) -> list[str]:
    """`_plot` of at most `_MOST_LINES` of the rows, evenly chosen, the first and the last among them."""
    if len(rows) > _MOST_LINES:
        rows = [rows[round(line * (len(rows) - 1) / (_MOST_LINES - 1))] for line in range(_MOST_LINES)]
    return _plot([(getattr(row, field), row) for row in rows], field, what, **marked) if len(rows) > 1 else []


def _plot(
    points: Sequence[tuple[int, Row]],
    across: str,
    what: str,
    *,
    marks: Mapping[str, float] | None = None,
    levels: Sequence[float] = (),
) -> list[str]:
    """One line for each point: its place, its value with the interval, and both drawn on one scale.

    `marks` are texts at places between points; `levels` are values that get a vertical line.
    """
    if not points:
        return []
    ends = [end for _, row in points for end in (row.value, row.ci_low, row.ci_high) if end is not None]
    low, high = min(*ends, *levels), max(*ends, *levels)
    texts = [row_text(row) for _, row in points]
    first = max(len(across), *(len(str(place)) for place, _ in points)) + 2
    second = max(map(len, texts))
    width = min(_PLOT, WIDTH - first - second - 4)

    def column(value: float) -> int:
        return round((value - low) / ((high - low) or 1) * (width - 1))

    # A mark at the place of a point comes after it.
    lines = [
        (mark, 1, f"{'':>{first}}  {f'-- {text} ':-<{WIDTH - first - 2}}")
        for text, mark in (marks or {}).items()
    ]
    for (place, row), text in zip(points, texts, strict=True):
        signs = [" "] * width
        if row.ci_low is not None and row.ci_high is not None:
            for at in range(column(row.ci_low), column(row.ci_high) + 1):
                signs[at] = "─"
        for level in map(column, levels):
            signs[level] = "┼" if signs[level] == "─" else "│"
        signs[column(_number(row))] = "●"
        lines.append((place, 0, f"{place:>{first}}  {text:<{second}}  {''.join(signs)}".rstrip()))
    return ["", f"{across:>{first}}  {what}", *(line for *_, line in sorted(lines))]


def _joined(bins: Sequence[Row]) -> list[Row]:
    """At most `_MOST_LINES` wider bins; the mean over a wider bin has no interval."""
    bins = sorted(bins, key=lambda row: row.position or 0)
    if len(bins) <= _MOST_LINES:
        return bins
    wider = []
    for line in range(_MOST_LINES):
        some = bins[len(bins) * line // _MOST_LINES : len(bins) * (line + 1) // _MOST_LINES]
        total = sum(row.n or 1 for row in some)
        mean = sum(_number(row) * (row.n or 1) for row in some) / total
        end = some[-1].position_end
        wider.append(replace(some[0], value=mean, position_end=end, n=total, ci_low=None, ci_high=None))
    return wider


def _curve(rows: Sequence[Row], metric: str) -> list[Row]:
    """The headline rows of a metric that have a value, by length and distance."""
    found = [row for row in rows if row.is_headline and row.metric == metric and row.value is not None]
    return sorted(found, key=lambda row: (row.length or 0, row.distance or 0))


def _number(row: Row) -> float:
    return row.value or 0.0


def _value(row: Row) -> str:
    return row_estimate(row).value_text


def _per_cent(row: Row) -> str:
    ends = f" [{100 * row.ci_low:.0f}, {100 * (row.ci_high or 0):.0f}]" if row.ci_low is not None else ""
    return f"{100 * _number(row):.0f} %{ends}"
