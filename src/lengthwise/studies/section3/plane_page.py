"""The page of the plane: two pictures, the tasks in numbers, what goes with what, and what that can say."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import matplotlib as mpl
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize

from lengthwise.report.drawing import Picture, drawn, picture
from lengthwise.report.html import Section
from lengthwise.report.tables import Table
from lengthwise.results import Results
from lengthwise.samples import SampleLog
from lengthwise.studies.section3.panel_pictures import LABELS
from lengthwise.studies.section3.plane import (
    CLASSES,
    FITTED,
    FIXED,
    GROWING,
    SCALES,
    SOLVED,
    Association,
    Correlation,
    Placed,
    associations,
    exactness_in,
    place,
    run_plane,
)
from lengthwise.studies.skeleton import Part, Study

LEAD = (
    "A reviewer of the paper doubted that the support of the output decides: Transformers struggle with many tasks "
    "whose support does not change. The authors answered that it is one factor. Here every task has a place on a "
    "plane of both explanations, coloured by its accuracy beyond the training length.",
)
_ROWS = (None, *reversed(CLASSES))
"""From the foot of the picture up."""


def sections(results: Results, folder: Path) -> list[Section]:
    """The one section of the page."""
    placed = place(exactness_in(SampleLog(folder / "samples.jsonl")))
    found = associations(placed)
    return [
        Section(
            title="Support or complexity?",
            paragraphs=verdict(placed, found),
            tables=[task_table(placed), association_table(found)],
            figures=[plane_picture(placed), task_picture(placed)],
            notes=results.notes,
        )
    ]


def verdict(placed: Sequence[Placed], found: Sequence[Association]) -> list[str]:
    """What the numbers say, and what they cannot: counts first, then correlations, then the limits."""
    fitted = [one for one in placed if one.fitted]
    said = [f"{len(fitted)} of {len(placed)} tasks fit their training range; only these count."]
    for support in (FIXED, GROWING):
        group = [one for one in fitted if one.support == support]
        solved, failed = [one.task for one in group if one.solved], [o.task for o in group if not o.solved]
        said.append(
            f"Support {support}: {len(solved)} of {len(group)} hold beyond training (at least {SOLVED} above "
            f"chance): {', '.join(solved) or 'none'}. Not: {', '.join(failed) or 'none'}."
        )
    failures = [one for one in fitted if one.support == FIXED and not one.solved]
    successes = [one for one in fitted if one.support == GROWING and one.solved]
    unchanged = "not enough" if failures else "enough in every task that fits"
    grown = "does not prevent generalization" if successes else "went with failure in every task that fits"
    said.append(f"So an unchanged support is {unchanged}, and a grown one {grown}.")
    numbers = [one for one in fitted if one.number]
    if numbers:
        off = max(abs(one.generalization - (1 - one.outside)) for one in numbers)
        said.append(
            f"The accuracy on numbers equals the share inside of the support, to {off:.2f}: "
            + "; ".join(
                f"{one.task} {one.generalization:.2f}, {1 - one.outside:.2f} inside" for one in numbers
            )
            + ". (Noticed in the numbers, not a hypothesis beforehand.)"
        )
    by_support, _, by_class, axes = found[:4]
    said.append(
        f"Rank correlation of generalization with support left: {correlation_text(by_support.correlation)}; with "
        f"class: {correlation_text(by_class.correlation)}; of the axes with each other: "
        f"{correlation_text(axes.correlation)}. {_weight(by_support.correlation, by_class.correlation)}"
    )
    said.append(
        "The data cannot separate support from the length of an answer: in all tasks of strings with a grown support "
        "the answer itself gets longer. Nor can they separate it from class within Deletang's tasks: all "
        "regular ones answer with one symbol. Every point comes from one small architecture with short training."
    )
    return said


def _weight(support: Correlation, hierarchy: Correlation) -> str:
    """Which of the two intervals leaves out 0."""
    firm = [
        name
        for name, one in (("support", support), ("class", hierarchy))
        if one.low is not None and one.high is not None and (one.low > 0 or one.high < 0)
    ]
    if not firm:
        return (
            "Neither interval leaves out 0: these tasks do not say which of the two goes with generalization."
        )
    if len(firm) == 2:
        return "Both intervals leave out 0."
    return f"Only the interval of {firm[0]} leaves out 0."


def correlation_text(one: Correlation) -> str:
    """`-0.52 [-0.80, -0.10], n = 12`."""
    if one.value is None:
        return f"undefined, n = {one.n}"
    interval = (
        " (no interval)" if one.low is None or one.high is None else f" [{one.low:.2f}, {one.high:.2f}]"
    )
    return f"{one.value:.2f}{interval}, n = {one.n}"


def shares_text(by_seed: Sequence[float]) -> str:
    """`0.95 [1.00, 0.90]`: median, best and worst seed."""
    return f"{median(by_seed):.2f} [{max(by_seed):.2f}, {min(by_seed):.2f}]"


def task_table(placed: Sequence[Placed]) -> Table:
    """Every task: its place, whether it was learned, and what holds."""
    order = sorted(placed, key=lambda one: (_ROWS.index(one.hierarchy) * -1, one.outside, one.task))
    return Table(
        columns=[
            "task",
            "class",
            "answers outside of training's support",
            "shift of one symbol",
            "encoding",
            "exact in training range",
            "exact beyond",
            "symbols right beyond",
            "chance (exact) beyond",
            "fits",
        ],
        rows=[
            [
                one.task,
                one.hierarchy or "not placed",
                f"{one.outside:.2f}",
                "" if one.shift is None else f"{one.shift:.2f}",
                LABELS.get(one.encoding, one.encoding),
                shares_text(one.fit),
                shares_text(one.beyond),
                "" if one.symbols is None else f"{one.symbols:.2f}",
                f"{one.chance:.2f}",
                "yes" if one.fitted else "no",
            ]
            for one in order
        ],
        caption="Tasks: exact answers above chance (0 guessing, 1 all), median over seeds [best, worst]",
    )


def association_table(found: Sequence[Association]) -> Table:
    """Every rank correlation with its interval and n."""
    return Table(
        columns=["Spearman's rho of", "tasks", "rho [95 %], n"],
        rows=[[one.of, one.tasks, correlation_text(one.correlation)] for one in found],
        caption="What goes with what",
    )


def plane_picture(placed: Sequence[Placed]) -> Picture:
    """Support left by class, colour for generalization; crosses for tasks that were not learned."""
    norm, colors = Normalize(0, 1), mpl.colormaps["viridis"]
    places: dict[tuple[str | None, int], list[Placed]] = defaultdict(list)
    for one in sorted(placed, key=lambda one: one.task):
        places[one.hierarchy, round(one.outside * 6)].append(one)
    with drawn(height=6.4) as (figure, axes):
        axis = axes[0][0]
        for (hierarchy, _), group in places.items():
            row = _ROWS.index(hierarchy)
            for at, one in enumerate(group):
                up = row + 0.8 * ((at + 1) / (len(group) + 1) - 0.5)
                if one.fitted:
                    axis.scatter(
                        one.outside, up, s=70, color=[colors(norm(one.generalization))], edgecolor="#333333"
                    )
                else:
                    axis.scatter(one.outside, up, s=45, marker="x", color="#777777")
                left = one.outside > 0.5
                axis.annotate(
                    f"{one.task} {one.generalization:.2f}" if one.fitted else one.task,
                    (one.outside, up),
                    xytext=(-8 if left else 8, 0),
                    textcoords="offset points",
                    ha="right" if left else "left",
                    va="center",
                    fontsize=8,
                    color="#222222" if one.fitted else "#777777",
                )
        axis.set_yticks(range(len(_ROWS)), ["not placed" if one is None else one for one in _ROWS])
        axis.set_ylim(-0.5, len(_ROWS) - 0.5)
        for border in range(1, len(_ROWS)):
            axis.axhline(border - 0.5, color="#999999", linewidth=0.6)
        axis.grid(visible=False, axis="y")
        axis.set_xlim(-0.05, 1.05)
        axis.set_xlabel("share of test answers outside of the support of training answers")
        axis.set_ylabel("Chomsky class (Deletang et al.)")
        bar = figure.colorbar(ScalarMappable(norm, colors), ax=axis, shrink=0.6)
        bar.set_label("exact beyond training (0: chance, 1: all)")
        return picture(
            figure,
            name="plane",
            title="Tasks by output support and by complexity",
            alt="Tasks on a plane of output support and Chomsky class. "
            + "; ".join(
                f"{one.task}: {one.generalization:.2f}" if one.fitted else f"{one.task}: not learned"
                for one in placed
            )
            + ".",
            caption=f"The number is the colour: exact answers at lengths beyond training, above chance, median over "
            f"seeds, better encoding. Crosses: tasks that less than {FITTED} of the training range was learned of.",
        )


def task_picture(placed: Sequence[Placed]) -> Picture:
    """One line for each task: every seed beyond training, the median in training range, chance at 0."""
    order = sorted(placed, key=lambda one: (one.fitted, one.generalization, one.task))
    with drawn(height=0.6 + 0.25 * len(order)) as (figure, axes):
        axis = axes[0][0]
        for up, one in enumerate(order):
            axis.plot([median(one.fit)], [up], marker="s", color="#0072B2", fillstyle="none", linestyle="")
            axis.plot(
                one.beyond, [up] * len(one.beyond), marker="o", color="#D55E00", linestyle="", alpha=0.6
            )
            axis.plot([one.generalization], [up], marker="|", markersize=13, color="#D55E00", linestyle="")
        axis.axvline(0, color="#777777", linestyle="--", linewidth=1.3)
        axis.axvline(FITTED, color="#777777", linestyle=":", linewidth=1.0)
        names = [f"{one.task} ({one.support})" for one in order]
        axis.set_yticks(range(len(order)), names)
        axis.set_xlim(-0.05, 1.05)
        axis.set_xlabel("exact answers above chance")
        return picture(
            figure,
            name="plane-tasks",
            title="In training range and beyond, task by task",
            alt="Exact answers in training range and beyond for every task. "
            + "; ".join(f"{one.task}: {median(one.fit):.2f}, {one.generalization:.2f}" for one in order)
            + ".",
            caption="Squares: median in training range. Dots: every seed beyond it; bar: their median. "
            f"Dashed: chance; dotted: {FITTED}, below which a task is not learned. In brackets: the support.",
        )


PLANE = Study(
    title="Synthetic studies: tasks by output support and Chomsky class",
    lead=LEAD,
    parts=(Part(run=run_plane, sections=sections, scales=SCALES),),
    takes=("seeds", "steps"),
)
