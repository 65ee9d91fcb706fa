"""The bridge on planted tasks: exact numbers, and those of models that were trained on the task."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path

from lengthwise.report.drawing import Curve, Picture, draw_curves, drawn, legend_below, picture
from lengthwise.report.html import Section
from lengthwise.report.tables import Cell as TableCell
from lengthwise.report.tables import Estimate, Table, row_estimate
from lengthwise.results import Results, Row
from lengthwise.studies.skeleton import Claim, Part, Verdict, claims_table
from lengthwise.studies.sparsity.bridge import planted_jeffreys, planted_price, share_touched
from lengthwise.studies.sparsity.bridge_planted_cells import (
    ALIGNED,
    BOTH,
    CELLS,
    OBJECTIVES,
    SCALES,
    WHOLE,
    Cell,
    Scale,
    distance_bins,
    run,
)
from lengthwise.studies.sparsity.shares import above, below, decision, read_scale

LEARNED, CLOSE, FOUND = 0.1, 0.1, 0.9
"""Learned: cross entropy at most this many nats above the noise's. Close to exact; nearly always.

A claim holds, or fails, at a law and k where the whole interval over seeds says so.
"""

Numbers = dict[tuple[str, str, int, str, int | None], Row]
"""By law, objective, k, metric and distance."""


def numbers_of(rows: Iterable[Row]) -> Numbers:
    """The rows by what they are about."""
    return {
        (row.bucket or "", row.arm or "", int(row.task.rsplit(" ", 1)[1]), row.metric, row.distance): row
        for row in rows
    }


def sections(results: Results, folder: Path) -> list[Section]:
    """The exact numbers, and those of trained models beside them."""
    scale, numbers = read_scale(Scale, results), numbers_of(results.rows)
    claims = claims_table(claims_of(scale), numbers, ours="ours")
    return [
        Section(
            title="Planted tasks: exact",
            paragraphs=[
                f"Parity of k planted bits among {scale.length} tokens, flipped with probability {scale.noise:g}; "
                f"the first {scale.cut} are cut off. Disagreement of the best predictions is proportional to the "
                "share of samples in which the cut touches a planted bit. It rises with k; locality lowers it, but "
                "not below the share that is cut off. The price is what perfect agreement costs.",
            ],
            tables=[exact_table(scale)],
        ),
        Section(
            title="Planted tasks: trained models",
            paragraphs=[
                "The same task, learned from samples: cross entropy on the whole view, on both views, and on both "
                f"views with Jeffreys at weight {OBJECTIVES[ALIGNED].weight:g}. A sample is touched if the cut "
                "takes a planted bit, that is if far tokens decide it.",
            ],
            tables=[
                *([claims] if claims else []),
                trained_table(scale, numbers),
                distance_table(scale, numbers),
            ],
            figures=[distance_picture(scale, numbers)],
            notes=results.notes,
        ),
    ]


def exact_table(scale: Scale) -> Table:
    """Share touched, Jeffreys and price by k and locality; k = 1 is a needle at a random place."""
    rows: list[list[TableCell]] = []
    for k in scale.ks:
        cells: list[TableCell] = [k]
        for cell in CELLS:
            touched = share_touched(scale.length, scale.cut, k, cell.width(scale))
            jeffreys, price = (of(touched, scale.noise) for of in (planted_jeffreys, planted_price))
            cells.append(f"{touched:.3f}: {jeffreys:.2f}, {price:.2f}")
        rows.append(cells)
    return Table(
        columns=["k", "anywhere", f"within {scale.local}"],
        rows=rows,
        caption="Share of samples touched by the cut: Jeffreys, price (nats)",
        notes=[
            "k = 1 is a needle at a random place. At a known distance D from the end, Jeffreys is 0 if D is at most "
            "the near context and full beyond it."
        ],
    )


def trained_table(scale: Scale, numbers: Numbers) -> Table:
    """One line for each law, k and objective."""
    rows: list[list[TableCell]] = []
    for cell in CELLS:
        for k in scale.ks:
            best = planted_jeffreys(share_touched(scale.length, scale.cut, k, cell.width(scale)), scale.noise)
            for arm in OBJECTIVES:

                def at(metric: str, place: tuple[str, str, int] = (cell.key, arm, k)) -> TableCell:
                    return row_estimate(numbers[*place, metric, None])

                rows.append(
                    [
                        f"{cell.key}, k = {k}, {arm}",
                        f"{best:.2f}" if arm == BOTH else "",
                        at("jeffreys"),
                        at("jeffreys_untouched"),
                        at("loss_touched"),
                        at("loss_untouched"),
                        at("found"),
                    ]
                )
    noise = planted_price(1.0, scale.noise)
    return Table(
        columns=[
            "",
            "Jeffreys, exact",
            "Jeffreys",
            "of untouched",
            "loss with all context, touched",
            "untouched",
            "the k most influential tokens are the planted ones",
        ],
        rows=rows,
        caption="Trained models by what the cut takes (nats; the last column is a share of samples)",
        notes=[
            f"The exact number is that of the best predictions of both views. Forgetting a touched sample "
            f"altogether costs {noise:.2f} nats."
        ],
    )


def distance_table(scale: Scale, numbers: Numbers) -> Table:
    """Jeffreys by the distance of a single planted token (k = 1): a needle."""
    bins = distance_bins(scale)
    full = planted_jeffreys(1.0, scale.noise)
    near = scale.length - scale.cut
    rows: list[list[TableCell]] = [
        ["exact", *("0" if farthest <= near else f"{full:.2f}" for _, farthest in bins)]
    ]
    for arm in OBJECTIVES:
        found = [numbers["anywhere", arm, 1, "jeffreys", farthest] for _, farthest in bins]
        rows.append([arm, *map(row_estimate, found)])
    return Table(
        columns=["Jeffreys, k = 1", *(f"D {nearest}-{farthest}" for nearest, farthest in bins)],
        rows=rows,
        caption=f"One planted bit at distance D from the end, near context {near} tokens",
    )


def distance_picture(scale: Scale, numbers: Numbers) -> Picture:
    """The same as a picture: exact steps, and a curve for each objective."""
    bins, near = distance_bins(scale), scale.length - scale.cut
    middle = [(nearest + farthest) / 2 for nearest, farthest in bins]
    curves = []
    for style, arm in enumerate(OBJECTIVES):
        rows = [numbers["anywhere", arm, 1, "jeffreys", farthest] for _, farthest in bins]
        curves.append(
            Curve(
                label=arm,
                x=middle,
                y=[math.nan if row.value is None else row.value for row in rows],
                low=[row.ci_low for row in rows],
                high=[row.ci_high for row in rows],
                style=style,
            )
        )
    full, title = planted_jeffreys(1.0, scale.noise), "Disagreement over a needle's distance"
    with drawn(height=3.0, legend=curves) as (figure, grid):
        axes = grid[0][0]
        steps = ([0, near, near, scale.length], [0, 0, full, full])
        axes.plot(*steps, color="#555555", linestyle="--", linewidth=1.3)
        draw_curves(axes, curves)
        axes.set(xlabel="distance D of the planted bit to the end (tokens)", ylabel="Jeffreys (nats)")
        legend_below(figure, axes)
        ends = "; ".join(f"{curve.label}: {curve.y[0]:.2f} near, {curve.y[-1]:.2f} far" for curve in curves)
        return picture(
            figure,
            name="bridge-planted-distance",
            title=title,
            alt=f"{title}. Across: distance. Up: Jeffreys. {ends}; exact: 0 near, {full:.2f} far.",
            caption=f"One planted bit (k = 1), near context {near} tokens. Dashed: best predictions. Intervals over "
            "seeds.",
        )


def claims_of(scale: Scale) -> tuple[Claim, ...]:
    """The bridge's statements on trained models."""
    places = [(cell, k) for cell in CELLS for k in scale.ks]
    limit = _entropy(scale) + LEARNED

    def judged(
        holds: Callable[[Numbers, Cell, int], bool | None], arm: str, metric: str, needs: str
    ) -> Callable[[Numbers], Verdict | None]:
        """Counts the laws and k at which a statement holds, where the objective `needs` learned the task."""

        def judge(numbers: Numbers) -> Verdict | None:
            asked = [place for place in places if learned(scale, numbers, *place, needs)]
            found = [numbers[cell.key, arm, k, metric, None].value for cell, k in asked or places]
            values = [value for value in found if value is not None]
            ours = f"{min(values):.2f} to {max(values):.2f}"
            outcomes = [holds(numbers, *place) for place in asked]
            untrained = f"; {len(places) - len(asked)} not trained" if 0 < len(asked) < len(places) else ""
            return ours, decision(outcomes.count(True), outcomes.count(False), len(asked)) + untrained

        return judge

    def at(numbers: Numbers, arm: str, cell: Cell, k: int, metric: str) -> Estimate:
        return row_estimate(numbers[cell.key, arm, k, metric, None])

    def exact(numbers: Numbers, cell: Cell, k: int) -> bool | None:
        best = planted_jeffreys(share_touched(scale.length, scale.cut, k, cell.width(scale)), scale.noise)
        found = at(numbers, BOTH, cell, k, "jeffreys")
        low, high = (1 - CLOSE) * best, (1 + CLOSE) * best
        return _outcome(above(found, low) and below(found, high), below(found, low) or above(found, high))

    def forgets(numbers: Numbers, cell: Cell, k: int) -> bool | None:
        aligned, both = (at(numbers, arm, cell, k, "loss_touched") for arm in (ALIGNED, BOTH))
        others = at(numbers, ALIGNED, cell, k, "loss_untouched")
        if aligned.low is None or aligned.high is None or both.low is None or both.high is None:
            return None
        forgotten = aligned.low > both.high + LEARNED
        kept = aligned.high < both.low + LEARNED
        return _outcome(forgotten and below(others, limit), kept or above(others, limit))

    def spares(numbers: Numbers, cell: Cell, k: int) -> bool | None:
        found = at(numbers, WHOLE, cell, k, "loss_touched")
        return _outcome(below(found, limit), above(found, limit))

    def finds(arm: str) -> Callable[[Numbers, Cell, int], bool | None]:
        def holds(numbers: Numbers, cell: Cell, k: int) -> bool | None:
            found = at(numbers, arm, cell, k, "found")
            return _outcome(above(found, FOUND), below(found, FOUND))

        return holds

    return (
        Claim(
            place="the bridge",
            claim="a trained model disagrees as much as the best predictions",
            paper="in neither paper",
            judge=judged(exact, BOTH, "jeffreys", BOTH),
            rule=f"Jeffreys of {BOTH} within {CLOSE:.0%} of the exact number, for each law and k",
        ),
        Claim(
            place="the bridge",
            claim="disagreement rises with k and falls with locality",
            paper="in neither paper",
            judge=rises_and_falls(scale),
            rule=f"{BOTH}: Jeffreys at the largest k that was learned above that at the smallest (anywhere), "
            "and above that of local ones at the same k",
        ),
        Claim(
            place="the bridge",
            claim="alignment forgets the samples that far tokens decide, and no others",
            paper="in neither paper",
            judge=judged(forgets, ALIGNED, "loss_touched", BOTH),
            rule=f"loss on touched samples more than {LEARNED:g} nats above that of {BOTH}, on "
            f"untouched ones within {LEARNED:g} nats of the noise's entropy",
        ),
        Claim(
            place="the bridge",
            claim="training on whole views spares them",
            paper="in neither paper",
            judge=judged(spares, WHOLE, "loss_touched", WHOLE),
            rule=f"loss of {WHOLE} on touched samples within {LEARNED:g} nats of the noise's entropy",
        ),
        *(
            Claim(
                place="the bridge",
                claim=f"the tokens that move a model of {arm} most are the planted ones",
                paper="in neither paper",
                judge=judged(finds(arm), arm, "found", arm),
                rule=f"in {FOUND:.0%} of the samples or more, for each law and k",
            )
            for arm in (WHOLE, BOTH)
        ),
    )


def rises_and_falls(scale: Scale) -> Callable[[Numbers], Verdict | None]:
    """Judges Jeffreys by k and by locality."""

    def judge(numbers: Numbers) -> Verdict | None:
        known = [k for k in scale.ks if all(learned(scale, numbers, cell, k, BOTH) for cell in CELLS)]
        least, most = min(known or scale.ks), max(known or scale.ks)
        one, many, local = (
            row_estimate(numbers[law, BOTH, k, "jeffreys", None])
            for law, k in (("anywhere", least), ("anywhere", most), ("local", most))
        )
        ours = ", ".join(estimate.text for estimate in (one, many, local))
        ours += f": k = {least}, k = {most}, k = {most} local"
        if len(known) < 2:
            return ours, "says nothing: not trained"
        smaller = [each for each in (one, local) if each.high is not None and above(many, each.high)]
        larger = [each for each in (one, local) if each.low is not None and below(many, each.low)]
        return ours, decision(len(smaller) == 2, bool(larger), 1)

    return judge


def _outcome(holds: bool, fails: bool) -> bool | None:
    """None where the interval decides neither."""
    return holds if holds or fails else None


def learned(scale: Scale, numbers: Numbers, cell: Cell, k: int, arm: str) -> bool:
    """Whether an objective learned the samples of that k that need no far token."""
    value = numbers[cell.key, arm, k, "loss_untouched", None].value
    return value is not None and value <= _entropy(scale) + LEARNED


def _entropy(scale: Scale) -> float:
    """Of the noise: the least cross entropy, in nats."""
    return math.log(2) - planted_price(1.0, scale.noise)


PLANTED = Part(run=run, sections=sections, scales=SCALES, folder="planted", heading="Planted tasks")
