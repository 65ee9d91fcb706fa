"""Theorem 2 (appendix B.1) as a study: exact errors, bounds, and linear attention trained on strings of fair bits.

The model (Eq. 7) sees a bit in two places: as the last token s, which gives the query, and as a
token t that is attended to. All that it can compute is a table of four numbers a[s][t] = q_s * kappa_t:

    g(x[:k]) = (1/k) * sum over i <= k of a[x_k][x_i]

The objective (Eq. 8) averages the squared error over the prefixes of lengths 1 .. L. It depends on a string
through its last bit and its number of ones alone, so expectations are sums of at most 2 * L terms. With
one head dimension the table has rank 1 (the paper's scalar proof); with two or more it is free
(`docs/evidence/theory.md`).

A table is a tensor [2, 2] or, of S models, [S, 2, 2], in fp64. Tasks are those of `tasks` with fair bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, product
from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes
from torch import Tensor

from lengthwise.report.drawing import Curve, Picture, curve_picture
from lengthwise.report.html import Section
from lengthwise.report.tables import Table
from lengthwise.results import Results, Row, rows_with
from lengthwise_studies.claims import judge, verdict_table
from lengthwise_studies.section3.cells import SCALES, Scale
from lengthwise_studies.section3.grid import ORIGINAL, Spread, spread
from lengthwise_studies.skeleton import Part, Study, computed
from lengthwise_studies.synthetic.reparameterization import IDENTITY, constant_error
from lengthwise_studies.synthetic.tasks import BIT_TASKS, count_law
from lengthwise_studies.synthetic.training import one_thread
from lengthwise_studies.theorem2_claims import (
    CLAIMS,
    CORRECTED,
    FULL,
    LOWER,
    PRINTED,
    RANK_ONE,
    TASKS,
    UPPER,
)

_RATE, _TURNS = 0.02, 50
LONGEST = 10
CONSTANT = "best constant"
TRAINED = {1: "trained on samples, head dimension 1", 2: "trained on samples, head dimension 2"}
ARMS = (PRINTED, CORRECTED, RANK_ONE, FULL, *TRAINED.values(), CONSTANT, LOWER, UPPER)
NOTES = (
    "Exact errors and losses are by enumeration in fp64, over the last bit and the number of ones.",
    "Trained: Adam on sampled strings of length 10, every prefix predicted (Eq. 8); the interval is "
    "from the best to the worst seed.",
    "The bounds are our own constants for theorem 2 (`docs/evidence/theory.md`); the paper states an order.",
)


def strings(length: int) -> tuple[Tensor, Tensor, Tensor]:
    """Last bit [2, 1], number of ones [2, length] and probability [length] of fair strings, like ones together."""
    last = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    others = count_law(length - 1)
    return last, others.values + last, others.probabilities / 2


def predictions(table: Tensor, last: Tensor, ones: Tensor, length: Tensor | int) -> Tensor:
    """g (Eq. 7) of strings [..., N, L] from their last bits, numbers of ones and lengths."""
    share = ones / length
    entries = table[..., None, None]
    by_last = [(1 - share) * entries[..., s, 0, :, :] + share * entries[..., s, 1, :, :] for s in (0, 1)]
    return torch.where(last == 1, by_last[1], by_last[0])


def error(task: str, table: Tensor, length: int) -> Tensor:
    """Exact mean squared error of the last prediction on strings of one length (Eq. 9)."""
    last, ones, probabilities = strings(length)
    differences = predictions(table, last, ones, length) - BIT_TASKS[task].of(ones, length)
    return (probabilities * differences.square()).sum((-2, -1))


def objective(task: str, table: Tensor, longest: int) -> Tensor:
    """The training objective (Eq. 8): the mean of the errors at lengths 1 .. longest."""
    return torch.stack([error(task, table, length) for length in range(1, longest + 1)]).mean(0)


def full_minimum(task: str, longest: int) -> Tensor:
    """The best table without the rank-1 restriction (head dimension 2 or more), by exact least squares."""
    return torch.linalg.solve(*_normal_equations(task, longest))


def equal_queries_minimum(task: str, longest: int) -> Tensor:
    """The best table whose two rows are equal (q' = q''), by exact least squares."""
    moments, with_target = (both.sum(0) for both in _normal_equations(task, longest))
    return torch.linalg.solve(moments, with_target).expand(2, 2)


def rank_one_minimum(task: str, longest: int) -> Tensor:
    """The best table q_s * kappa_t (head dimension 1), globally.

    For a direction kappa = (cos w, sin w) the best q is closed, and so is the best kappa for a q: take the best w of
    a fine grid over half a turn, then solve for q and kappa in turn.
    """
    moments, with_target = _normal_equations(task, longest)

    def best_q(kappa: Tensor) -> Tensor:
        return (kappa @ with_target.T) / torch.einsum("...i,sij,...j->...s", kappa, moments, kappa)

    angles = torch.linspace(0, math.pi, 2001, dtype=torch.float64)
    directions = torch.stack([angles.cos(), angles.sin()], dim=1)
    gains = ((directions @ with_target.T) * best_q(directions)).sum(1)
    kappa = directions[gains.argmax()]
    for _ in range(_TURNS):
        q = best_q(kappa)
        kappa = torch.linalg.solve(torch.einsum("s,sij->ij", q**2, moments), q @ with_target)
    return torch.outer(best_q(kappa), kappa)


def _normal_equations(task: str, longest: int) -> tuple[Tensor, Tensor]:
    """By last bit: second moments of the shares of zeros and ones [2, 2, 2], and with the target [2, 2]."""
    moments, with_target = torch.zeros(2, 2, 2).double(), torch.zeros(2, 2).double()
    for length in range(1, longest + 1):
        _, ones, probabilities = strings(length)
        shares = torch.stack([1 - ones / length, ones / length])
        target = BIT_TASKS[task].of(ones, length) * torch.ones_like(ones)
        moments += torch.einsum("isn,jsn,n->sij", shares, shares, probabilities / longest)
        with_target += torch.einsum("isn,sn,n->si", shares, target, probabilities / longest)
    return moments, with_target


def ansatz(task: str, longest: int) -> Tensor:
    """The table that the paper's proof ends with: Gamma for attended ones; 0 for zeros, but for the length Gamma."""
    gamma = paper_gamma(task, longest)
    return torch.tensor([[gamma if task == "length" else 0.0, gamma]] * 2, dtype=torch.float64)


def paper_gamma(task: str, longest: int) -> float:
    """Gamma: (L + 1) / 2 (length, Eq. 15), L (L + 3) / (2 (L + H_L)) (sum, Eq. 19), 1 (mean, Eq. 21)."""
    harmonic = math.fsum(1 / i for i in range(1, longest + 1))
    total = longest * (longest + 3) / (2 * (longest + harmonic))
    return {"length": (longest + 1) / 2, "sum": total, "mean": 1.0}[task]


def printed_error(task: str, longest: int, length: int) -> float:
    """The generalization error as the paper prints it (Eq. 15, 20 and 22); for sum it is twice too large."""
    square = (length - paper_gamma(task, longest)) ** 2
    return {"length": square, "sum": (length + 1) / (2 * length) * square, "mean": 0.0}[task]


def corrected_error(task: str, longest: int, length: int) -> float:
    """The exact error of the paper's own table: for sum (l + 1) / (4 l) * (Gamma - l)^2; the rest as printed."""
    printed = printed_error(task, longest, length)
    return printed / 2 if task == "sum" else printed


def growth_bounds(task: str, largest: float, length: int) -> tuple[float, float]:
    """Theorem 2 with constants: bounds of the error at a test length where predictions lie in [-A, A].

    The error is at most (target + A)^2 for the largest target, and by Jensen's inequality at least
    (E target - A)^2 once E target > A. For length the targets are l; for sum they are at most l with mean
    l / 2; for mean they lie in [0, 1].
    """
    greatest, expected = {"length": (length, length), "sum": (length, length / 2), "mean": (1, 0.5)}[task]
    return max(0.0, expected - largest) ** 2, (greatest + largest) ** 2


@one_thread()
def train_tables(
    task: str, longest: int, *, seeds: Sequence[int], rank: int, steps: int, batch: int = 256
) -> Tensor:
    """Tables a[s][t] = q_s . kappa_t with a head dimension of `rank` that Adam reaches on strings (Eq. 8), [S, 2, 2].

    Every prefix of strings of length `longest` is predicted. Seeds differ in initial weights and samples.
    """
    target = BIT_TASKS[task].of
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    weights = torch.stack([torch.randn(2, 2, rank, generator=g, dtype=torch.float64) for g in generators])
    weights.requires_grad_()
    adam = torch.optim.Adam([weights], lr=_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(adam, steps)
    lengths = torch.arange(1, longest + 1)
    for _ in range(steps):
        bits = torch.stack([torch.randint(0, 2, (batch, longest), generator=g) for g in generators])
        ones = bits.cumsum(-1).double()
        found = predictions(weights[:, 0] @ weights[:, 1].mT, bits, ones, lengths)
        adam.zero_grad()
        # Models do not share weights, so the sum trains each on its own mean.
        (found - target(ones, lengths)).square().mean((1, 2)).sum().backward()
        adam.step()
        schedule.step()
    return (weights[:, 0] @ weights[:, 1].mT).detach()


def measured_errors(task: str, tables: Tensor, lengths: Sequence[int], *, samples: int) -> Tensor:
    """Mean squared error [S, lengths] of the last prediction over sampled strings of each length."""
    errors = []
    for length in lengths:
        generator = torch.Generator().manual_seed(length)
        bits = torch.randint(0, 2, (1, samples, length), generator=generator)
        ones = bits.sum(-1, keepdim=True).double()
        differences = predictions(tables, bits[..., -1:], ones, length) - BIT_TASKS[task].of(ones, length)
        errors.append(differences.square().mean((1, 2)))
    return torch.stack(errors, dim=1)


def _rows(scale: Scale) -> Iterator[Row]:
    """Exact errors and those of trained models at every test length of the scale."""
    return chain.from_iterable(_task_rows(task, scale) for task in TASKS)


def _task_rows(task: str, scale: Scale) -> Iterator[Row]:
    row: Any = partial(Row, model="linear attention", task=task, unit=ORIGINAL)
    lengths = range(1, scale.test_length + 1)
    exact = {
        CORRECTED: ansatz(task, LONGEST),
        RANK_ONE: rank_one_minimum(task, LONGEST),
        FULL: full_minimum(task, LONGEST),
    }
    trained = {
        arm: train_tables(task, LONGEST, seeds=range(scale.seeds), rank=rank, steps=scale.steps)
        for rank, arm in TRAINED.items()
    }
    # One band for every table that is drawn: no prediction lies outside of [-A, A].
    largest = max(table.abs().max().item() for table in (*exact.values(), *trained.values()))

    def errors(length: int) -> dict[str, float]:
        printed = printed_error(task, LONGEST, length)
        corrected = corrected_error(task, LONGEST, length)
        best = {arm: error(task, exact[arm], length).item() for arm in (RANK_ONE, FULL)}
        return {PRINTED: printed, CORRECTED: corrected, **best}

    def limits(length: int) -> dict[str, float]:
        lower, upper = growth_bounds(task, largest, length)
        constant, _ = constant_error(BIT_TASKS[task], IDENTITY, train_length=LONGEST, length=length)
        return {LOWER: lower, UPPER: upper, CONSTANT: constant}

    for arm, table in exact.items():
        yield row(metric="train_loss", arm=arm, value=objective(task, table, LONGEST).item())
    for numbers, length in product((errors, limits), lengths):
        for arm, value in numbers(length).items():
            yield row(metric="mse", arm=arm, length=length, value=value)
    for arm, tables in trained.items():
        losses = objective(task, tables, LONGEST).tolist()
        yield row(metric="train_loss", arm=arm, **spread(losses).plain)
        measured = measured_errors(task, tables, lengths, samples=scale.samples)
        for length, by_seed in zip(lengths, measured.T.tolist(), strict=True):
            yield row(metric="mse", arm=arm, length=length, **spread(by_seed).plain)


def sections(results: Results, folder: Path) -> list[Section]:
    """What each table of numbers loses in training and errs by, and the picture of its growth."""
    return [
        Section(
            title="Theorem 2, exactly",
            paragraphs=[
                "Linear attention on strings of fair bits is a table of four numbers, so its training objective "
                "and its error at any length are short sums. The paper's order of growth is right; one printed "
                "constant and one minimiser are wrong.",
            ],
            tables=[verdict_table(judge(CLAIMS, results)), _table(results)],
            figures=growth_picture(results),
            notes=results.notes,
        )
    ]


def growth_picture(results: Results) -> list[Picture]:
    """Error by test length for each task: exact, bounded, and measured on trained models."""

    def curve(task: str, arm: str) -> Curve:
        rows = rows_with(results.rows, task=task, arm=arm, metric="mse")
        x, y = [row.length or 0 for row in rows], [row.value or 0 for row in rows]
        spans: dict[str, Any] = {"low": [row.ci_low for row in rows], "high": [row.ci_high for row in rows]}
        return Curve(label=arm, x=x, y=y, style=ARMS.index(arm), **spans)

    def dress(axes: Axes, task: str, _: Sequence[float]) -> None:
        axes.axvspan(1, LONGEST, color="#E69F00", alpha=0.13, linewidth=0)
        axes.set_yscale("symlog", linthresh=1e-2 if task == "mean" else 1)

    found = curve_picture(
        {task: [curve(task, arm) for arm in ARMS] for task in TASKS},
        name="theory-growth",
        title="Error of linear attention by test length",
        across="test length (bits)",
        up="mean squared error",
        share_y=False,
        from_zero=TASKS,
        dress=dress,
        caption="Shaded: training lengths. The printed curve for sum is twice the error of the paper's own table.",
    )
    return [found] if found else []


def _table(results: Results) -> Table:
    longest = max(row.length or 0 for row in results.rows)
    shown = [length for length in (20, 35, 50) if length <= longest] or [longest]
    rows = []
    for task, arm in product(TASKS, ARMS):
        cells: list[str | None] = [task, arm]
        for metric, length in (("train_loss", None), *(("mse", length) for length in shown)):
            found = rows_with(results.rows, task=task, arm=arm, metric=metric, length=length)
            cells.append(_shown(found[0]) if found else None)
        rows.append(cells)
    return Table(
        columns=["task", "table of linear attention", "training loss", *(f"error at {at}" for at in shown)],
        rows=rows,
        caption=f"Theorem 2, trained on prefixes of lengths 1..{LONGEST}",
    )


def _shown(row: Row) -> str:
    if row.value is None or row.ci_low is None or row.ci_high is None:
        return f"{row.value:.6g}"
    return Spread(row.value, row.ci_low, row.ci_high).text


run_theorem2 = computed(
    "synth-theory", _rows, model_name="theory", notes=lambda scale: NOTES, train_length=LONGEST
)


def part(**options: Any) -> Part:
    """Theorem 2 as a part of a study, with other fields of `Part` where given."""
    return Part(run=run_theorem2, sections=sections, scales=SCALES, claims=lambda scale: CLAIMS, **options)


THEOREM2 = Study(
    title="Theorem 2: does the error grow as claimed?", parts=(part(),), takes=("seeds", "steps")
)
