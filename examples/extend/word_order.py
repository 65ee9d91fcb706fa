"""Word order: what it costs to shuffle the first half of a window.

    cost = loss(last quarter | first half shuffled) - loss(last quarter | first half as it is)

In nats a token, without labels. At 0 the model takes from far text which tokens there are, but not their order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from annotated_types import Ge
from cyclopts import Parameter

from lengthwise.measure.measurement import About, Item, Record, WindowMeasurement
from lengthwise.measure.statistics import Statistic
from lengthwise.settings import Whole
from lengthwise.text import view

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lengthwise.subjects import Predictor, Reader
    from lengthwise.text import Window


class WordOrder(WindowMeasurement):
    """Does the order of far text matter?

    Shuffles the first half of a window and measures what that costs in its last quarter.
    """

    about = About(
        kind="order",
        task="order",
        title="Word order",
        metrics={
            "cost": "loss after a shuffled first half - loss: 0 if its order does not matter",
            "loss": "loss on the last quarter of the window",
        },
        examples=("lengthwise order smollm2-135m --length 2048 --out runs/order",),
    )

    length: Annotated[Whole, Ge(8), Parameter(metavar="TOKENS")] = 1024
    """Tokens in a window."""

    def items(self, model: Reader, text: Any, other: Reader) -> list[Item]:
        """The windows, each read twice."""
        windows = self.sampled(text, self.length + 1)
        return [
            self.item(f"w{index:04d}", window, self.length, tokens=2 * self.length)
            for index, window in enumerate(windows)
        ]

    def score(self, model: Predictor, items: Sequence[Item], other: Predictor) -> Iterator[Record]:
        """The summed losses of each window's last quarter, both times."""
        # Not before a model is loaded: torch takes long.
        from lengthwise.subjects import Reading

        for item in items:
            labels = item.content.ids[-(self.length // 4) :]
            views = self.views(item.content, self.bos_id(model))
            readings = [Reading(tokens=tokens, labels=labels) for tokens in views]
            plain, shuffled = (read.losses.sum().item() for read in self.read(model, [item], readings))
            yield {"targets": len(labels), "plain": plain, "shuffled": shuffled}

    def views(self, window: Window, bos_id: int | None) -> list[NDArray[np.int64]]:
        """The window as it is, and with its first half shuffled; its first token, which may be BOS, stays."""
        plain = view(window.ids, 0, self.length, bos_id)
        shuffled, half = plain.copy(), self.length // 2
        rng = np.random.default_rng([self.seed, window.start])
        shuffled[1:half] = rng.permutation(plain[1:half])
        return [plain, shuffled]

    def statistics(self, records: Sequence[Record]) -> list[Statistic]:
        """Rows of task "order": `cost` and `loss`, nats a token."""
        row = {"length": self.length, "n": sum(record["targets"] for record in records)}
        return [
            self.statistic(
                records, lambda r: [r["shuffled"] - r["plain"], r["targets"]], metric="cost", **row
            ),
            self.statistic(records, lambda r: [r["plain"], r["targets"]], metric="loss", **row),
        ]
