"""Perplexity by length: the same target tokens, predicted with contexts of several lengths.

A segment is Lmax + 1 tokens. At length l its first Lmax tokens are cut into Lmax / l disjoint windows, each
read on its own, and row i of a window predicts the token after it: tokens 1 .. Lmax of the segment are the
targets at every length. A target's context at length l is 1 .. l tokens, all values equally often.

With BOS the first token of each window is replaced by it. The first target of a window then has BOS alone as
its context, and the others have BOS and one token of text less; the targets stay the same.

The loss at inverse temperature b, summed over target tokens, is convex in b. Measuring keeps its value and
three derivatives at the knots 1/2, 1 and 2; between two knots it is the polynomial in log b of degree 7 that
has these values and derivatives. On SmolLM2-135M and books this is within 1.2e-4 nats of the loss itself
everywhere, and within 5e-5 for b from 0.8 to 1.25. The sums add up over documents, so every resample of the
bootstrap is fitted again without a model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np
from annotated_types import Ge, MinLen
from cyclopts import Parameter
from numpy.typing import NDArray
from pydantic import model_validator

from lengthwise.errors import UsageError
from lengthwise.measure.measurement import LENGTHS, About, Item, Record, WindowMeasurement, grouped, in_groups
from lengthwise.measure.statistics import Estimator, Statistic, equal_bins, ratio
from lengthwise.results import Results
from lengthwise.settings import PYTHON_ONLY, Count, Whole
from lengthwise.subjects.reading import Predictor, Read, Reader, Reading, Want
from lengthwise.text import view

if TYPE_CHECKING:
    from torch import Tensor


KNOTS = (0.5, 1.0, 2.0)
ORDERS = 4
_PLAIN = 1 + KNOTS.index(1.0) * ORDERS
"""The column of the plain loss in the totals of `fitted_temperature`."""
_STEPS = 100
# The temperatures pass over the same logits some thirty times; on a CPU they should stay in its cache.
_BLOCK_BYTES = 2**19


class Perplexity(WindowMeasurement):
    """How well are the same tokens predicted at each length?

    Measures loss and perplexity, and the loss after fitting one temperature per length, which leaves out mere
    over- or underconfidence. --fail-above checks perplexity.
    """

    about = About(
        kind="ppl",
        task="perplexity",
        title="Loss by length",
        metrics={
            "loss": "cross entropy of the next token",
            "perplexity": "exp(loss)",
            "loss_best_temperature": "loss with one fitted temperature: without mere over- or underconfidence",
            "inverse_temperature": "the inverse of that temperature: below 1 the model is overconfident",
        },
        fail_above="perplexity",
        examples=(
            "lengthwise ppl smollm2-135m",
            "lengthwise ppl tiny-books --lengths 128 256 512 --windows 64",
            "lengthwise ppl ./my-model --adapter runs/lora/model --out runs/ppl",
        ),
    )
    lengths: Annotated[tuple[Annotated[Whole, Ge(2)], ...], MinLen(1), Parameter(metavar="TOKENS")] = LENGTHS
    """Context lengths in tokens. Each divides the greatest."""
    windows: Count = 32
    """Windows of text, each as long as the greatest length."""
    position_bins: Annotated[Count, PYTHON_ONLY] = 8
    """Bins of the loss by position in the window, at the greatest length."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        longest = max(self.lengths)
        for length in self.lengths:
            if longest % length:
                near = [d for d in range(2, longest + 1) if longest % d == 0]
                raise UsageError(
                    f"length {length} does not divide the greatest length {longest}",
                    expected=f"lengths that do, so that all predict the same tokens: {', '.join(map(str, near))}",
                )
        return self

    def items(self, model: Reader, text: Any, other: Reader) -> list[Item]:
        """Every window at every length."""
        longest = max(self.lengths)
        windows = self.sampled(text, longest + 1)
        return [
            self.item(f"L{length}/s{index:04d}", window, length, tokens=longest, length=length)
            for length, index, window in self.by_size(windows, self.lengths)
        ]

    def score(self, model: Predictor, items: Sequence[Item], other: Predictor) -> Iterator[Record]:
        """The sums of each window; those at other temperatures come from whole distributions."""
        import torch

        length, bos_id = items[0].longest, self.bos_id(model)
        want = Want.ROWS if Want.ROWS in model.gives else Want.LOSS
        # A batch has as many windows as batch_size long windows hold, so that a short length fills it too.
        long = [item.content.ids for item in items]
        labels = [each for ids in long for each in ids[1:].reshape(-1, length)]
        views = [view(ids, start, length, bos_id) for ids in long for start in range(0, len(ids) - 1, length)]
        readings = [
            Reading(tokens=tokens, labels=following, want=want)
            for tokens, following in zip(views, labels, strict=True)
        ]
        pairs = list(zip(self.read(model, items, readings), labels, strict=True))
        # Segment by segment, so that an error names its own.
        for own in in_groups(pairs, len(pairs) // len(items)):
            found = [_scores(read, each, index * length) for index, (read, each) in enumerate(own)]
            scores = torch.cat(found)
            losses = scores[:, KNOTS.index(1.0), 0] if want is Want.ROWS else scores
            sums: Record = {"tempered": scores.sum(dim=0).flatten().tolist()}
            if want is Want.LOSS:
                sums = {"loss": scores.sum().item()}
            yield {"targets": len(scores), **sums, **self._by_position(losses, length)}

    def _by_position(self, losses: Tensor, length: int) -> Record:
        """The losses by bin of the position, at the greatest length."""
        if length != max(self.lengths):
            return {}
        edges = equal_bins(0, length, self.position_bins)
        return {"position": np.add.reduceat(losses.numpy(), edges[:-1]).tolist()}

    def statistics(self, records: Sequence[Record]) -> list[Statistic]:
        """The numbers of each length; at the greatest also the loss by the row in the window.

        A temperature is fitted for each length, on these very targets. It needs whole distributions, which an
        endpoint does not give.
        """
        found: list[Statistic] = []
        for length, some in grouped(records, "length"):
            n, tempered = sum(record["targets"] for record in some), "tempered" in some[0]
            for metric, unit, estimator in _METRICS if tempered else _METRICS[:2]:
                row = {"metric": metric, "unit": unit, "length": length, "n": n}
                found.append(self.statistic(some, _totals, estimator=estimator, **row))
            if "position" in some[0]:
                edges = equal_bins(0, length, self.position_bins)
                found += self.curve(some, "position", edges, metric="loss", length=length)
        return found

    def notes(self, model: Reader, other: Reader, items: Sequence[Item], results: Results) -> list[str]:
        """As every measurement; and temperatures at the end of their range."""
        low, high = KNOTS[0], KNOTS[-1]
        at_the_end = [
            f"L = {row.length}: the best inverse temperature lies outside {low} .. {high}; "
            "the loss is that at the end of this range."
            for row in results.rows
            if row.metric == "inverse_temperature" and row.value is not None
            if not low * (1 + 1e-9) < row.value < high * (1 - 1e-9)
        ]
        return super().notes(model, other, items, results) + at_the_end


def _scores(read: Read, labels: NDArray[np.integer], start: int) -> Tensor:
    """What is summed of each label of a view that begins `start` tokens into its segment."""
    import torch

    from lengthwise.checkpoints.head import locating_bad_logits

    if read.rows is None:
        return read.losses
    targets = torch.from_numpy(labels.astype(np.int64)).to(read.rows.device)
    with locating_bad_logits(start):
        return read.rows.score(lambda logits, rows: tempered_losses(logits, targets[rows], KNOTS))


def tempered_losses(logits: Tensor, labels: Tensor, inverse_temperatures: tuple[float, ...]) -> Tensor:
    """Loss at inverse temperatures b, with three derivatives by b: [N, V], [N] -> fp64 [N, G, 4], nats.

    loss(b) = log sum_v exp(b z_v) - b z_label. Its derivatives are E[z] - z_label, Var[z] and
    E[(z - E[z])^3], under softmax(b z). NonFiniteLogits for NaN or an infinity in a row.
    """
    import torch

    from lengthwise.checkpoints.head import require_finite

    on_cpu = logits.device.type == "cpu"
    size = max(1, _BLOCK_BYTES // (4 * logits.shape[-1])) if on_cpu else max(1, len(logits))
    blocks = [
        _tempered_block(logits[start : start + size], labels[start : start + size], inverse_temperatures)
        for start in range(0, len(logits), size)
    ]
    scores = torch.cat(blocks)
    require_finite(scores.sum(dim=(1, 2)))
    return scores


def _tempered_block(logits: Tensor, labels: Tensor, inverse_temperatures: tuple[float, ...]) -> Tensor:
    import torch

    # Relative to the top logit: exp cannot overflow, and the moments stay small numbers.
    z = logits - logits.amax(dim=-1, keepdim=True)
    target = z.gather(-1, labels[:, None])[:, 0].double()
    scores = []
    for b in inverse_temperatures:
        terms = (z * b).exp_()
        total = terms.sum(dim=-1).double()
        mean, square, cube = (terms.mul_(z).sum(dim=-1).double() / total for _ in range(3))
        variance = square - mean * mean
        skew = cube - 3 * mean * variance - mean**3
        scores.append(torch.stack([total.log() - b * target, mean - target, variance, skew], dim=-1))
    return torch.stack(scores, dim=1)


def _totals(record: Record) -> list[float]:
    """The count of targets, then loss, loss', loss'', loss''' at each knot; of an endpoint the loss alone."""
    if "tempered" in record:
        return [record["targets"], *record["tempered"]]
    return [record["loss"], record["targets"]]


def fitted_temperature(totals: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The inverse temperature b in [1/2, 2] with the least loss(b) / count, and this loss: [R, 1 + 12] -> [R], [R].

    A row of totals is the count of targets, then loss and its three derivatives at each knot. A parabola through the
    lowest of 201 values of log b and its neighbours refines it. At 1/2 or 2 the best b may lie beyond.
    """
    grid = np.linspace(math.log(KNOTS[0]), math.log(KNOTS[-1]), 2 * _STEPS + 1)
    losses = (totals[:, 1:] @ _weights(grid).T) / totals[:, :1]
    lowest = np.clip(losses.argmin(axis=1), 1, len(grid) - 2)
    each = np.arange(len(totals))
    before, here, after = (losses[each, lowest + shift] for shift in (-1, 0, 1))
    slope, bend = (after - before) / 2, after - 2 * here + before
    # Clipped to the two steps beside the grid point: at an end of the range the minimum is the end.
    shift = np.clip(np.divide(-slope, bend, out=-np.sign(slope), where=bend > 0), -1, 1)
    return np.exp(grid[lowest] + shift * (grid[1] - grid[0])), here + slope * shift + bend * shift**2 / 2


def _weights(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """W [M, 12] with loss(exp(points)) = W @ (loss, loss', loss'', loss''' at each knot)."""
    from scipy.interpolate import BPoly

    basis = np.zeros((len(KNOTS), ORDERS, len(KNOTS) * ORDERS))
    for knot, b in enumerate(KNOTS):
        # The derivatives by log b from the derivatives by b (chain rule).
        by_log = [[1, 0, 0, 0], [0, b, 0, 0], [0, b, b**2, 0], [0, b, 3 * b**2, b**3]]
        basis[knot, :, ORDERS * knot : ORDERS * (knot + 1)] = by_log
    return BPoly.from_derivatives(np.log(KNOTS), basis)(points)


def _loss(totals: NDArray[np.float64]) -> NDArray[np.float64]:
    """The plain loss, of either kind of totals."""
    return ratio(totals if totals.shape[1] == 2 else totals[:, [_PLAIN, 0]])


_METRICS: list[tuple[str, str, Estimator]] = [
    ("loss", "nats", _loss),
    ("perplexity", "ratio", lambda totals: np.exp(_loss(totals))),
    ("loss_best_temperature", "nats", lambda totals: fitted_temperature(totals)[1]),
    ("inverse_temperature", "ratio", lambda totals: fitted_temperature(totals)[0]),
]
"""Metric, unit and estimator; the first two without whole distributions."""
