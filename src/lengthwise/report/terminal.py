"""The answer of a run in the terminal: one or two sentences with the numbers, and a curve in characters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lengthwise.measure.influence import METHODS
from lengthwise.measure.served import verdict
from lengthwise.report.row_tables import displays, row_estimate, tasks_in_order
from lengthwise.report.terminal_curve import joined, plot, row_text, sentences, thinned
from lengthwise.results import Results, Row


def answer(results: Results) -> list[str]:
    """What the run says, as lines of at most 80 columns; empty where nothing answers for its rows."""
    if any(row.arm is not None for row in results.rows):
        return []
    lines: list[str] = []
    for task in tasks_in_order(row.task for row in results.rows):
        says = ANSWERS.get(task, None if task in displays() else scores_answer)
        if says is not None:
            plain = [row for row in results.rows if row.task == task and row.reference is None]
            found = says([row for row in plain if row.value is not None], results.config)
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
    curve, agree = _curve(rows, "jeffreys"), _curve(rows, "top1_agreement")
    if not curve:
        return []
    last = curve[-1]
    kept = f"; {100 * _number(agree[-1]):.1f} % of them keep their most likely token" if agree else ""
    return [
        *sentences(
            f"With contexts of {(last.length or 0) // 2 + 1} to {last.length} tokens, predictions disagree by "
            f"{row_text(last)} nats per token when context is cut off (Jeffreys; 0 is no disagreement){kept}."
        ),
        *sentences(sce_sentence(rows) or ""),
        *_plot_by("length", curve, "Jeffreys, nats per token", zero=True),
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


def perplexity_answer(rows: Sequence[Row], _: Mapping[str, Any]) -> list[str]:
    """Loss at the shortest and the longest length, and where it is lowest."""
    curve, perplexities = _curve(rows, "loss"), _curve(rows, "perplexity")
    if not curve:
        return []
    first, last, best = curve[0], curve[-1], min(curve, key=_number)
    text = f"At {last.length} tokens the loss is {row_text(last)} nats per token"
    text += f" (perplexity {_value(perplexities[-1])})" if perplexities else ""
    if first is not last:
        change = _number(last) - _number(first)
        text += f", {abs(change):.3f} {'lower' if change < 0 else 'higher'} than at {first.length} tokens"
    text += "." if best is last else f". It is lowest at {best.length} tokens: {_value(best)}."
    return sentences(text) + _plot_by("length", curve, "loss, nats per token; lower is better")


def recall_answer(rows: Sequence[Row], _: Mapping[str, Any]) -> list[str]:
    """At which distances a repeated passage clearly helps."""
    curve = _curve(rows, "benefit")
    if not curve:
        return []
    clear = [str(row.distance) for row in curve if row.ci_low is not None and row.ci_low > 0]
    if len(clear) == len(curve):
        use = " The model clearly uses it at every distance measured."
    elif clear:
        where = " and ".join(filter(None, [", ".join(clear[:-1]), clear[-1]]))
        use = f" Its use is clear (interval above 0) at {where} tokens."
    else:
        known = any(row.ci_low is not None for row in curve)
        use = " Its use is not clear (every interval includes 0)." if known else ""
    worth = (
        f"A passage that comes again after {curve[-1].distance} tokens is worth {row_text(curve[-1])} nats"
    )
    return sentences(f"{worth} per token.{use}") + _plot_by(
        "distance", curve, "benefit, nats per token; 0 is no use", zero=True
    )


def limit_answer(rows: Sequence[Row], config: Mapping[str, Any]) -> list[str]:
    """The two limits, and the curves that they come from."""
    numbers = {row.metric: row for row in rows if row.position is None and row.distance is None}
    if "sound_up_to" not in numbers:
        return []
    sound, used, tolerance = numbers["sound_up_to"], numbers.get("used_up_to"), numbers.get("tolerance")
    within = f"{tolerance.value:g}" if tolerance else "the tolerated"
    if used is None:
        use = "How far back context is used is not clear: a passage nearby has no clear benefit either."
    elif not used.value:
        use = "A repeated passage has no benefit at any distance measured."
    else:
        share = f"{100 * config['share']:g} % of " if "share" in config else ""
        use = (
            f"Context is used up to {_tokens(used)} back: up to there a repeated passage keeps at least {share}its "
            "benefit nearby."
        )
    excess = joined([row for row in rows if row.metric == "excess"])
    return [
        *sentences(
            f"Predictions are sound up to {_tokens(sound)} of context: up to there the loss with all context is at "
            f"most {within} nats per token above the loss with only the most recent tokens."
        ),
        *sentences(use),
        *plot(
            [(row.position_end or 0, row) for row in excess],
            "context",
            f"excess loss, nats per token; lines at 0 and at the tolerance, {within}",
            marks={f"sound up to {_tokens(sound)}": _number(sound)},
            levels=[0.0, *([_number(tolerance)] if tolerance else [])],
        ),
        *plot(
            [(row.distance or 0, row) for row in thinned(_curve(rows, "benefit"))],
            "distance",
            "benefit of a repeated passage, nats per token; line at 0",
            marks={f"used up to {_tokens(used)}": _number(used)} if used and used.value else {},
            levels=[0.0],
        ),
    ]


def longppl_answer(rows: Sequence[Row], _: Mapping[str, Any]) -> list[str]:
    """LongPPL beside the perplexity of all tokens."""
    numbers = {row.metric: row for row in rows}
    if "perplexity" not in numbers:
        return []
    text = "No token of these texts is key"
    if "longppl" in numbers:
        text = f"LongPPL, the perplexity on tokens that need far context, is {row_text(numbers['longppl'])}"
    if "key_share" in numbers and "loss_key" in numbers:
        text += f" ({numbers['loss_key'].n} key tokens, {100 * _number(numbers['key_share']):.1f} % of all)"
    return sentences(f"{text}; the perplexity of all tokens is {row_text(numbers['perplexity'])}.")


def scores_answer(rows: Sequence[Row], _: Mapping[str, Any]) -> list[str]:
    """The scores of one task by length, and by depth where it has depths."""
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
        return sentences(f"{task}: {scores}.")
    chance = next(
        (f" (guessing gives {100 * _number(row):.0f} %)" for row in rows if row.metric == "chance"), ""
    )
    lines = sentences(f"{task}: {metric.replace('_', ' ')} {scores}{chance}.")
    cells = {(row.depth, row.length): row for row in ours if row.depth is not None and row.length is not None}
    depths, lengths = sorted({depth for depth, _ in cells}), sorted({length for _, length in cells})
    if len(depths) > 1:
        found = {f"{depth:5g} %": [cells.get((depth, length)) for length in lengths[-9:]] for depth in depths}
        lines += _in_per_cent("  depth", lengths[-9:], "tokens; per cent", found)
    return lines


def training_answer(rows: Sequence[Row], _: Mapping[str, Any]) -> list[str]:
    """Cross entropy, entropy and disagreement of the first and the last steps."""
    values = {row.metric: row.value for row in rows}
    names = {"cross_entropy": "cross entropy", "entropy": "entropy part", "jeffreys": "Jeffreys part"}
    parts = [
        f"{name} from {values[f'{metric}_first']:.4f} to {values[f'{metric}_last']:.4f}"
        for metric, name in names.items()
        if f"{metric}_first" in values and f"{metric}_last" in values
    ]
    if not parts:
        return []
    n = max(row.n or 1 for row in rows)
    steps = "the first step to the last" if n == 1 else f"the first {n} steps to the last {n} (means)"
    return sentences(f"From {steps}, in nats per token: {'; '.join(parts)}. Each step sees other text.")


def influence_answer(rows: Sequence[Row], _: Mapping[str, Any]) -> list[str]:
    """What the greedy tokens recover, and the controls beside them."""
    numbers = {(row.metric, row.kept): row for row in rows}
    sizes = sorted({row.kept for row in rows if row.kept is not None})
    if not sizes or ("gain", None) not in numbers:
        return []
    gain, net = numbers["gain", None], numbers.get(("recovered_net", sizes[-1]))
    beyond = f", {row_text(net)} beyond what choosing from a foreign text does" if net else ""
    found = {
        f"  {method.replace('_', ' '):<16}": [numbers.get((f"recovered_{method}", k)) for k in sizes]
        for method in METHODS
    }
    return [
        *sentences(
            f"{100 * _number(numbers['gaining', None]):.1f} % of the tokens gain from long context; {gain.n} of them "
            f"were looked at, which gain {_value(gain)} nats each. {sizes[-1]} well-chosen distant tokens recover "
            f"{row_text(numbers['recovered_greedy', sizes[-1]])} of it{beyond}."
        ),
        "",
        *_in_per_cent(
            f"  {'kept':<16}",
            sizes,
            "per cent of the gain",
            {method: cells for method, cells in found.items() if any(cells)},
        ),
    ]


def served_answer(rows: Sequence[Row], _: Mapping[str, Any]) -> list[str]:
    """The verdict, and the difference by position at the greatest length."""
    longest = max((row.length for row in rows if row.length is not None), default=None)
    points = [
        (row.position_end, row)
        for row in rows
        if row.metric == "difference" and row.position_end is not None and row.length == longest
    ]
    # Two to a doubling; the last of each doubling, and the last of all.
    shown = points[::2] if len(points) > 12 else points
    shown += [point for point in points[-1:] if point not in shown]
    return [
        *(line for sentence in verdict(rows) for line in sentences(sentence)),
        *plot(shown, "up to", "mean |difference|, nats per token; line at 0", levels=[0.0]),
    ]


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
"""Task -> what answers for its rows, given the settings too. The rows have values, and none is a difference."""


def _plot_by(field: str, rows: Sequence[Row], what: str, *, zero: bool = False) -> list[str]:
    if len(rows) < 2:
        return []
    points = [(getattr(row, field), row) for row in thinned(rows)]
    return plot(points, field, what, levels=[0.0] if zero else [])


def _in_per_cent(
    corner: str, columns: Sequence[Any], what: str, lines: Mapping[str, Sequence[Row | None]]
) -> list[str]:
    """A small table of shares."""
    return [corner + "".join(f"{column:>8}" for column in columns) + f"  {what}"] + [
        name + "".join(f"{'' if row is None else f'{100 * _number(row):.0f}':>8}" for row in cells)
        for name, cells in lines.items()
    ]


def _curve(rows: Sequence[Row], metric: str) -> list[Row]:
    """The headline rows of a metric that have a value, by length and distance."""
    found = [row for row in rows if row.is_headline and row.metric == metric and row.value is not None]
    return sorted(found, key=lambda row: (row.length or 0, row.distance or 0))


def _number(row: Row) -> float:
    return row.value or 0.0


def _value(row: Row) -> str:
    return row_estimate(row).value_text


def _tokens(row: Row) -> str:
    """A number of tokens with its interval."""
    ends = f" [{row.ci_low:,.0f}, {row.ci_high:,.0f}]" if row.ci_low is not None else ""
    return f"{'at least ' if row.at_least else ''}{row.value:,.0f}{ends} tokens"


def _per_cent(row: Row) -> str:
    ends = f" [{100 * row.ci_low:.0f}, {100 * (row.ci_high or 0):.0f}]" if row.ci_low is not None else ""
    return f"{100 * _number(row):.0f} %{ends}"
