"""The numbers of `influence` from its samples: what k kept tokens recover, by who chose them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from lengthwise.measure.statistics import Statistic
from lengthwise.results import Row

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Table = dict[str, NDArray[np.float64]]

METHODS = {
    "greedy": "chosen one by one, each time the token that lowers the loss most",
    "leave_one_out": "chosen by how much the loss rises without them",
    "gradient": "chosen by gradient times embedding",
    "greedy_foreign": "chosen as greedy does, from the text of another window: what choosing alone is worth",
    "random": "drawn at random",
    "recent": "the last distant tokens",
    "copies": "the last distant tokens equal to the target",
}
ENOUGH = 0.8
"""The share of its gain that k tokens must recover to be enough for a target."""


def influence_statistics(
    records: Sequence[dict[str, Any]], *, length: int, sizes: Sequence[int], threshold: float, targeted: bool
) -> list[Statistic]:
    """Every number of the task, each a ratio of two sums by document; a window without targets adds nothing.

    Args:
        records: of the windows.
        length: of the windows, in tokens.
        sizes: the numbers of kept tokens, k.
        threshold: nats above which a token gains.
        targeted: whether targets were examined; without them only `gaining` and `jeffreys` exist.
    """
    blank = Row(model="", task="influence", metric="", value=None, length=length)
    names = [record["document"] for record in records]
    examined = [np.array(record["examined"]) for record in records]
    targets = [loss_table(record, len(sizes)) for record in records]

    def ratio_of(
        metric: str, unit: str, pairs: Sequence[tuple[float, float]], n: int, kept: int | None = None
    ) -> Statistic:
        row = replace(blank, metric=metric, unit=unit, n=n, kept=kept)
        return Statistic.of(row, zip(names, pairs, strict=True))

    def of_examined(metric: str, unit: str, values: Callable[[Any], Any]) -> Statistic:
        pairs = [(float(values(table).sum()), len(table)) for table in examined]
        return ratio_of(metric, unit, pairs, sum(map(len, examined)))

    def of_targets(metric: str, unit: str, values: Callable[[Table], Any]) -> Statistic:
        pairs = [(values(table).sum(), len(table["gain"])) for table in targets]
        return ratio_of(metric, unit, pairs, count)

    def recovered(metric: str, more: str, less: str, column: int) -> Statistic:
        """What the tokens of `less` recover beyond those of `more`, the loss with which is higher."""
        pairs = [(float((t[more] - t[less])[:, column].sum()), float(t["gain"].sum())) for t in targets]
        return ratio_of(f"recovered_{metric}", "share", pairs, count, sizes[column])

    count = sum(len(table["gain"]) for table in targets)
    gaining = of_examined("gaining", "share", lambda e: e[:, 2] - e[:, 1] > threshold)
    jeffreys = of_examined("jeffreys", "nats", lambda e: e[:, 3])
    if not targeted:
        return [gaining, jeffreys]
    found = [
        of_targets("gain", "nats", lambda t: t["gain"]),
        gaining,
        of_targets("loss_long", "nats", lambda t: t["long"]),
        of_targets("loss_short", "nats", lambda t: t["short"][:, 0]),
        jeffreys,
    ]
    methods = [name for name in METHODS if all(name in table for table in targets)]
    for column, k in enumerate(sizes):
        found += [recovered(name, "short", name, column) for name in methods]
        if "greedy_foreign" in methods:
            found.append(recovered("net", "greedy_foreign", "greedy", column))
        pairs = [
            (
                float((t["short"] - t["greedy"] >= ENOUGH * t["gain"][:, None])[:, column].sum()),
                len(t["gain"]),
            )
            for t in targets
        ]
        found.append(ratio_of("enough", "share", pairs, count, k))
    return found


def loss_table(record: dict[str, Any], sizes: int) -> Table:
    """Of the N targets of a window: `gain`, `long` [N], `short` [N, 1], of each method with k tokens [N, sizes]."""
    by_place = {place: (long, short) for place, long, short, _ in record["examined"]}
    ends = [by_place[target["position"]] for target in record["targets"]]
    long, short = np.array(ends, dtype=np.float64).reshape(-1, 2).T
    losses = [target["losses"] for target in record["targets"]]
    names = losses[0] if losses else METHODS
    tables = {name: np.array([one[name] for one in losses]).reshape(-1, sizes) for name in names}
    return {"long": long, "short": short[:, None], "gain": short - long, **tables}
