"""What theorem 2 and its proof claim, judged on exact errors and training losses."""

from __future__ import annotations

from functools import partial

from lengthwise.results import Results, rows_with
from lengthwise_studies.claims import FAILS, HOLDS, Decision, ruled

TASKS = ("length", "sum", "mean")
PRINTED, CORRECTED = "as printed (Eq. 15, 20, 22)", "the paper's table, exact"
RANK_ONE, FULL = "best table of rank 1", "best table"
LOWER, UPPER = "lower bound", "upper bound"


def _errors(results: Results, task: str, arm: str) -> dict[int, float]:
    rows = rows_with(results.rows, task=task, arm=arm, metric="mse")
    return {row.length or 0: row.value or 0.0 for row in rows}


def _within_bounds(task: str, results: Results) -> Decision:
    """Whether the exact errors lie between the bounds at every length, and the numbers at the last one."""
    low, high, *tables = (_errors(results, task, arm) for arm in (LOWER, UPPER, CORRECTED, RANK_ONE, FULL))
    # Rounding may put an error on its bound a little beyond it.
    inside = all(
        low[at] <= own[at] * (1 + 1e-9) + 1e-12 and own[at] <= high[at] for own in tables for at in low
    )
    last = max(low)
    ours = f"at length {last}: bounds {low[last]:.4g} and {high[last]:.4g}, error {tables[1][last]:.4g}"
    return ours, HOLDS if inside else FAILS


def _as_printed(task: str, results: Results) -> Decision:
    """The printed error over that of the paper's own table, where it is not 0."""
    printed, exact = (_errors(results, task, arm) for arm in (PRINTED, CORRECTED))
    ratios = [printed[at] / exact[at] for at in exact if exact[at] > 1e-12] or [1.0]
    same = max(abs(ratio - 1) for ratio in ratios) < 1e-6
    zero = all(abs(value) < 1e-12 for value in (*printed.values(), *exact.values()))
    ours = "both are 0" if zero else f"printed / exact: {min(ratios):.3g} to {max(ratios):.3g}"
    return ours, HOLDS if same else FAILS


def _is_best(task: str, results: Results) -> Decision:
    """The training loss of the paper's table beside that of the best one of rank 1."""
    papers, best = (
        rows_with(results.rows, task=task, arm=arm, metric="train_loss")[0].value or 0.0
        for arm in (CORRECTED, RANK_ONE)
    )
    return f"loss {papers:.4g}, best {best:.4g}", HOLDS if papers <= best + 1e-6 else FAILS


_ORDERS = {"length": "grows as l^2", "sum": "grows as l^2", "mean": "stays bounded"}
_EQUATIONS = {"length": "Eq. 15", "sum": "Eq. 20", "mean": "Eq. 22"}
_OF_OURS = "at every length the errors lie between our bounds, of which each "
_PRINTED_IS = "the printed error of the {} is that of the paper's own table"
_LOWEST = "the paper's table has the lowest training loss of the {} with head dimension 1"
CLAIMS = ruled(
    *(
        (
            "Theorem 2",
            f"the error of the {task} {order}",
            "proved",
            _OF_OURS + order,
            partial(_within_bounds, task),
        )
        for task, order in _ORDERS.items()
    ),
    *(
        (place, _PRINTED_IS.format(task), "derived", "they agree at every length", partial(_as_printed, task))
        for task, place in _EQUATIONS.items()
    ),
    *(
        (
            "App. B.1",
            _LOWEST.format(task),
            "derived",
            "no table of rank 1 has a lower one",
            partial(_is_best, task),
        )
        for task in TASKS
    ),
)
