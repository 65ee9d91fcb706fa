"""What each measurement's numbers are called and mean, and results as tables. Draws nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lengthwise.report.numbers import Estimate
from lengthwise.report.series import series_names
from lengthwise.report.tables import Cell, Table
from lengthwise.results import Row


@dataclass(frozen=True)
class Task:
    """How to present one kind of measurement."""

    title: str
    question: str
    metrics: Mapping[str, str]
    """Its metrics in the order to show them, each with what it is."""


TASKS: Mapping[str, Task] = {
    "misalignment": Task(
        "Misalignment",
        "Do the predictions depend on how much context is cut off?",
        {
            "sce": "the paper's number, symmetric cross entropy of the two predictions: entropy + jeffreys",
            "entropy": "H(p) + H(q): how unsure the two predictions are; not about agreement",
            "jeffreys": "KL(p||q) + KL(q||p): how much the two predictions disagree; 0 when equal",
            "js": "Jensen-Shannon divergence: disagreement, at most log 2 = 0.693",
            "top1_agreement": "share of positions where both name the same most likely token",
        },
    ),
    "perplexity": Task(
        "Loss by length",
        "How well are the same tokens predicted at each length?",
        {
            "loss": "cross entropy of the next token",
            "perplexity": "exp(loss)",
            "loss_best_temperature": "loss with one temperature fitted: what is left without misjudged confidence",
            "inverse_temperature": "that temperature's inverse: below 1 the model is overconfident",
        },
    ),
    "recall": Task(
        "Recall by distance",
        "Is what stands far back still used?",
        {
            "benefit": "loss_different - loss_same: what a repeated passage is worth; 0 when it is not used",
            "loss_same": "loss on a passage that came before, at this distance",
            "loss_different": "loss on the same passage after a different one",
        },
    ),
    "limit": Task(
        "Effective context length",
        "Up to where are predictions sound, and up to where is context used?",
        {
            "sound_up_to": "tokens of context up to which reading all of it is no worse than its end alone",
            "used_up_to": "tokens of distance up to which a repeated passage still helps",
            "excess": "loss with all context - loss of the same tokens with the end of it alone",
            "jeffreys": "how much the predictions with all context and with its end alone disagree",
            "loss": "cross entropy of the next token with all context",
            "tolerance": "the excess that counts as sound",
            "used_level": "the benefit that counts as use",
            "benefit": "what a repeated passage is worth; 0 when it is not used",
        },
    ),
    "longppl": Task(
        "Perplexity on tokens that need far context",
        "How well are those tokens predicted that far context helps with?",
        {
            "longppl": "exp(loss_key)",
            "loss_key": "cross entropy of the key tokens: those that far context makes likely, by the evaluator",
            "perplexity": "exp(loss) of all tokens of the same texts",
            "loss": "cross entropy of all tokens",
            "key_share": "share of the model's tokens that are key",
            "jeffreys": "how much the predictions with all context and with the short one disagree",
        },
    ),
    "training": Task("Training", "What did training do?", {}),
}


_SCORES = {
    "accuracy": "share of questions answered rightly",
    "chance": "the accuracy of guessing among the answers that are ranked",
    "gold_probability": "the right answer's share of the likelihood of all that are ranked",
    "contained": "share of the right numbers that the reply contains",
    "average_rows": "mean over data sets of the mean of all their rows",
    "average_categories": "mean over categories of the mean of their data sets",
    "average_buckets": "mean over the buckets of length of the mean over data sets",
}


def task_of(name: str) -> Task:
    """The presentation of a task; one of an evaluation is shown under its own name."""
    return TASKS.get(name, Task(name.replace("_", " ").capitalize(), "", _SCORES))


def headline_rows(rows: Sequence[Row]) -> list[Row]:
    """Rows that are no bin by position, no pair of lengths, no single depth or bucket and no difference."""
    return [r for r in rows if _whole(r) and r.reference is None]


def difference_rows(rows: Sequence[Row]) -> list[Row]:
    """Paired differences that are no bin by position, no pair of lengths and no single depth or bucket."""
    return [r for r in rows if _whole(r) and r.reference is not None]


def _whole(row: Row) -> bool:
    parts = (row.position, row.context_other, row.depth, row.bucket)
    return all(part is None for part in parts)


def rows_table(rows: Sequence[Row], *, caption: str = "") -> Table:
    """One line for each row: model, metric, length, value with its 95 % interval, n, documents.

    Columns that are empty for all rows (no distance, no arm, ...) are left out.
    """
    optional = {
        "task": [r.task for r in rows],
        "arm": [r.arm for r in rows],
        "seed": [r.seed for r in rows],
        "length": [r.length for r in rows],
        "context": [r.context for r in rows],
        "other context": [r.context_other for r in rows],
        "from position": [r.position for r in rows],
        "to position": [r.position_end for r in rows],
        "distance": [r.distance for r in rows],
        "depth %": [r.depth for r in rows],
        "bucket": [r.bucket for r in rows],
        "reference": [r.reference for r in rows],
    }
    shown: dict[str, Sequence[Cell]] = {"model": [r.model for r in rows]}
    if len(set(optional["task"])) > 1:
        shown["task"] = optional["task"]
    shown["metric"] = [r.metric for r in rows]
    for name, cells in optional.items():
        if name != "task" and any(cell is not None for cell in cells):
            shown[name] = cells
    shown["value [95 % interval]" if has_intervals(rows) else "value"] = [row_estimate(r) for r in rows]
    shown["unit"] = [r.unit for r in rows]
    counts = {
        "n": [r.n for r in rows],
        "documents": [r.documents for r in rows],
        "truncated": [r.truncated or None for r in rows],
    }
    for name, cells in counts.items():
        if any(cell is not None for cell in cells):
            shown[name] = cells
    return Table(columns=tuple(shown), rows=list(zip(*shown.values(), strict=True)), caption=caption)


def side_by_side(rows: Sequence[Row], *, caption: str = "") -> Table:
    """One line for each metric and length (or distance), one column for each model, arm and seed."""
    names = [
        name if row.seed is None else f"{name}, seed {row.seed}"
        for row, name in zip(rows, series_names(rows), strict=True)
    ]
    columns = list(dict.fromkeys(names))
    by_length = any(r.length is not None for r in rows)
    by_distance = any(r.distance is not None for r in rows)
    lines: dict[tuple[str, int | None, int | None], dict[str, Row]] = {}
    for row, name in zip(rows, names, strict=True):
        lines.setdefault((row.metric, row.length, row.distance), {})[name] = row
    cells: list[list[Cell]] = []
    for (metric, length, distance), of_models in lines.items():
        where = [length] * by_length + [distance] * by_distance
        cells.append([metric, *where, *(row_estimate(of_models.get(name)) for name in columns)])
    header = ["metric", *["length"] * by_length, *["distance"] * by_distance, *columns]
    return Table(columns=header, rows=cells, caption=caption)


def in_order(rows: Sequence[Row]) -> list[Row]:
    """Rows sorted by task and metric as `TASKS` lists them, then as they came."""
    tasks = list(TASKS)

    def place(row: Row) -> tuple[int, int]:
        metrics = list(task_of(row.task).metrics)
        return (
            tasks.index(row.task) if row.task in tasks else len(tasks),
            metrics.index(row.metric) if row.metric in metrics else len(metrics),
        )

    return sorted(rows, key=place)


def sce_sentence(rows: Sequence[Row]) -> str | None:
    """What SCE is made of at the greatest length measured, in one sentence; None without these rows."""
    plain = [r for r in headline_rows(rows) if r.task == "misalignment" and r.value is not None]
    longest = max((r.length for r in plain if r.length is not None), default=None)
    sce, entropy, jeffreys = (
        next((r for r in plain if r.length == longest and r.metric == metric), None)
        for metric in ("sce", "entropy", "jeffreys")
    )
    if sce is None or entropy is None or jeffreys is None or not sce.value or entropy.value is None:
        return None
    return (
        f"At {longest} tokens {100 * entropy.value / sce.value:.1f} % of SCE is entropy (how sharp the "
        f"predictions are, not how far they agree); {_value(jeffreys)} of {_value(sce)} nats are disagreement."
    )


def _value(row: Row) -> str:
    return Estimate(row.value, row.ci_low, row.ci_high).value_text


def has_intervals(rows: Sequence[Row]) -> bool:
    """Whether any row has one."""
    return any(row.ci_low is not None for row in rows)


def row_estimate(row: Row | None) -> Estimate | None:
    """A row's value and interval as a cell."""
    if row is None:
        return None
    return Estimate(
        row.value,
        row.ci_low,
        row.ci_high,
        signed=row.reference is not None,
        at_least=bool(row.at_least),
    )
