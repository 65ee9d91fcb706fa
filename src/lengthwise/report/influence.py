"""What `influence` shows: recovery by the number of kept tokens, the answer in the terminal, marked passages."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from lengthwise.measure.influence_rows import METHODS
from lengthwise.report.drawing import (
    Picture,
    curves_of,
    doubling_axis,
    draw_curves,
    drawn,
    legend_below,
    picture,
    series_names,
)
from lengthwise.report.passages import Passage
from lengthwise.report.tables import Estimate
from lengthwise.report.terminal_curve import WIDTH
from lengthwise.results import Row
from lengthwise.samples import SampleLog

SHOWN = 3
"""Passages of a page: one of a window, those of the targets that gain most."""


def recovered_by_kept(rows: Sequence[Row], *, name: str = "recovered-by-kept") -> Picture | None:
    """The share of the gain that k distant tokens recover, by who chose them; a panel for each model."""
    chosen = [
        row
        for row in rows
        if row.kept is not None and row.reference is None and row.metric.removeprefix("recovered_") in METHODS
    ]
    panels: dict[str, list[Row]] = {}
    for row, series in zip(chosen, series_names(chosen), strict=True):
        method = row.metric.removeprefix("recovered_").replace("_", " ")
        panels.setdefault(series, []).append(replace(row, arm=method, model=""))
    curves = {series: curves_of(ours, lambda row: row.kept or 0) for series, ours in panels.items()}
    if not any(curves.values()):
        return None
    title = "What a few distant tokens recover"
    columns = min(2, len(curves))
    lines = -(-len(curves) // columns)
    first = next(iter(curves.values()))
    with drawn(height=3.2 * lines, panels=(lines, columns), legend=first, share_y=True) as (figure, grid):
        for axes in grid.flat[len(curves) :]:
            axes.set_visible(False)
        for axes, (series, ours) in zip(grid.flat, curves.items(), strict=False):
            draw_curves(axes, ours)
            doubling_axis(axes, [x for curve in ours for x in curve.x])
            for level in (0, 1):
                axes.axhline(level, color="#555555", linewidth=0.9)
            axes.set(title=series if len(curves) > 1 else "", xlabel="distant tokens kept, k")
        for axes in grid[:, 0]:
            axes.set_ylabel("share of the gain")
        legend_below(figure, grid[0][0])
        ends = "; ".join(
            f"{series}, {curve.label}: {Estimate(curve.y[-1]).text} at {curve.x[-1]:.0f}"
            for series, ours in curves.items()
            for curve in ours
        )
        return picture(
            figure,
            name=name,
            title=title,
            alt=f"{title}. Across: distant tokens kept. Up: share of the gain from long context. {ends}.",
            caption="1 is all of the gain from long context, 0 what the near tokens give. Bars are 95 % intervals "
            "over documents. `greedy foreign` is the same choice from another text: what choosing alone is worth.",
        )


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
        f"looked at, which gain {Estimate(plain['gain'].value).text} nats each. {most} well-chosen distant tokens "
        f"recover {_share(recovered['recovered_greedy', most])} of it"
    )
    if ("recovered_net", most) in recovered:
        said += f", {_share(recovered['recovered_net', most])} beyond what choosing from a foreign text does"
    lines = textwrap.wrap(said + ".", WIDTH)
    lines += ["", f"  {'kept':<16}" + "".join(f"{k:>8}" for k in sizes) + "  per cent of the gain"]
    for method in METHODS:
        found = [recovered.get((f"recovered_{method}", k)) for k in sizes]
        if any(found):
            texts = ("" if row is None or row.value is None else f"{100 * row.value:.0f}" for row in found)
            lines.append(f"  {method.replace('_', ' '):<16}" + "".join(f"{text:>8}" for text in texts))
    return lines


def _share(row: Row) -> str:
    return Estimate(row.value, row.ci_low, row.ci_high).text


def influential_passages(samples: SampleLog, model: str) -> list[Passage]:
    """The targets that gain most, with the tokens that greedy kept for them."""
    found: list[tuple[float, Passage]] = []
    for key in samples:
        record = samples[key]
        ends = {place: (long, short) for place, long, short, _ in record["examined"]}
        if record["targets"]:
            target = max(
                record["targets"], key=lambda one: ends[one["position"]][1] - ends[one["position"]][0]
            )
            long, short = ends[target["position"]]
            found.append((short - long, _passage(record, target, long, short, model)))
    return [passage for _, passage in sorted(found, key=lambda one: -one[0])[:SHOWN]]


def _passage(
    record: Mapping[str, Any], target: Mapping[str, Any], long: float, short: float, model: str
) -> Passage:
    place, kept = target["position"], target["kept"]["greedy"]
    losses = target["losses"]["greedy"]
    near = record["near"]
    return Passage(
        pieces=record["pieces"][: place + 1],
        marked={
            token: f"kept as number {rank}, {place - token} tokens back" for rank, token in enumerate(kept, 1)
        },
        near=place - near,
        caption=f"{model}, {record['document']}: the bold token has a loss of {short:.2f} nats after the {near} "
        f"underlined ones, {long:.2f} with all context, and {losses[-1]:.2f} with the {len(kept)} marked ones, which "
        "greedy chose in the order of their numbers.",
    )
