"""The page of a table: what was run beside the paper, the paper's table with our numbers, a picture, the verdicts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lengthwise.measure.perplexity import KNOTS
from lengthwise.report.drawing import COLORS, Picture, drawn, picture
from lengthwise.report.html import Section
from lengthwise.report.tables import Cell, Estimate, Table
from lengthwise.results import Results
from lengthwise_studies.arms import arm_after
from lengthwise_studies.claims import (
    OPPOSITE,
    OUTSIDE,
    REPRODUCED,
    Judged,
    by_term,
    verdict_table,
)
from lengthwise_studies.paired_claims import NOTE, Quantity, range_of
from lengthwise_studies.paper.methods import PLAIN, UNTRAINED
from lengthwise_studies.paper.sizes import PAPER, STEPS, Size, inverse_temperature, loss
from lengthwise_studies.paper.statements import OURS, Setting

if TYPE_CHECKING:
    from lengthwise_studies.paper.paper_table import PaperTable

_PAPERS_TEXTS = {"books": "RedPajama-Book", "pg19": "PG19"}
_CONTRARY = (OPPOSITE, OUTSIDE)
_DIFFERENCES = (
    "Ours is the difference of the two arms. In brackets, beside what the paper prints, is its own."
)
Number = tuple[Quantity, int | None]
"""What a claim is about, and after how many of the paper's steps; None: after all."""


def table_sections(
    table: PaperTable, judged: Sequence[Judged], results: Results, details: Sequence[Table]
) -> list[Section]:
    """What an author looks for first; `details` are folded away."""
    size = Size.of(results.config["size"])
    shown = (what_was_run(table, results, size), beside_the_paper(table, results, size))
    drawn_claims = claims_picture(table, judged)
    return [
        Section(
            title=f"{table.label}: the paper's numbers and ours",
            paragraphs=[" ".join(filter(None, (table.shows, by_term(judged))))],
            tables=[one for one in shown if one.rows],
            figures=[drawn_claims] if drawn_claims else [],
        ),
        Section(
            title=f"{table.label}: the claims",
            tables=[verdict_table(judged, caption="", notes=[_DIFFERENCES, NOTE], one_place=True)],
            notes=results.notes,
            details=[one for one in details if one.rows],
        ),
    ]


def what_was_run(table: PaperTable, results: Results, size: Size) -> Table:
    """Model, training and text: the paper's, and ours; what plain CE gains on the start, and how sure that is."""
    described, rows = results.provenance.get("model") or {}, results.rows
    both = (table.sizes.get("paper", PAPER), size)
    parameters = f", {described['parameters']:,} parameters" if described else ""
    # A run names the folder of its start, a kept one the last part of it.
    names = {Path(described.get("name", "")).name, *(row.model for row in rows)}
    lengths = ", ".join(f"{times:g}T" for times in size.lengths)

    def each(say: Callable[[Setting], str]) -> str:
        """What is said of the settings, once where it is the same of all that have it."""
        every = {one.name or one.adjustment.name: say(one) for one in table.settings}
        said = {name: text for name, text in every.items() if text} or {"": ""}
        alike = len({*said.values()}) == 1
        return next(iter(said.values())) if alike else "; ".join(map(": ".join, said.items()))

    def number(quantity: Quantity, arm: str, reference: str | None = None) -> str:
        found = range_of(rows, quantity, size.trained, arm, reference)
        return "" if found is None else found.text

    def temperature(setting: Setting) -> str:
        found = range_of(rows, inverse_temperature(2), size.trained, setting.arm(UNTRAINED))
        if found is None or found.value is None:
            return ""
        # No factor beyond these is tried, and the best may lie there.
        if found.value <= KNOTS[0] * (1 + 1e-9):
            return f"{KNOTS[0]:g} or less"
        return found.text if found.value < KNOTS[-1] * (1 - 1e-9) else f"{KNOTS[-1]:g} or more"

    def documents(setting: Setting) -> str:
        own = (row for row in rows if setting.arm(PLAIN) in (row.arm, row.reference))
        found = {row.documents for row in own if row.task == "perplexity" and row.documents}
        return str(max(found)) if found else ""

    def pretraining(setting: Setting) -> str:
        """Of a model that is ours."""
        start = setting.own_start(table.sizes["default"]) or table.sizes["default"].start
        return f"{start.steps:,} steps on {start.text}" if start and start.name in names else ""

    lines = [
        ("model", PAPER.model, f"{results.model_name}{parameters}"),
        ("context of the model, T", *(f"{of.trained:,} tokens" for of in both)),
        ("pretraining", "", each(pretraining)),
        (
            "extension",
            _extensions((one for one in table.settings if not one.adjustment.ours), both[0]),
            _extensions(table.settings, size),
        ),
        (
            "fine-tuning",
            *(
                each(
                    lambda one, of=of: (
                        f"{of.steps} steps of {of.batch} window{'s' * (of.batch != 1)} of "
                        f"{one.adjustment.window(of):,} tokens"
                    )
                )
                for of in both
            ),
        ),
        (
            "on",
            each(lambda one: _PAPERS_TEXTS.get(one.corpus, one.corpus)),
            each(lambda one: size.text_of(one.corpus)),
        ),
        ("seeds", "one number a cell", str(size.seeds)),
        ("losses at", "2T", lengths),
        ("held-out documents", "", each(documents)),
        (
            "plain CE gains at 2T, nats",
            "",
            each(lambda one: number(loss(2), one.arm(UNTRAINED), one.arm(PLAIN))),
        ),
        (
            "inverse temperature of the start",
            "",
            each(temperature),
        ),
    ]
    columns = dict(zip(("", "the paper", "ours"), zip(*lines, strict=True), strict=True))
    if all(claim.place == OURS for claim in table.claims):
        del columns["the paper"]
    lines = [row for row in zip(*columns.values(), strict=True) if row[-1]]
    return Table(columns=[*columns], rows=lines)


def _extensions(settings: Iterable[Setting], size: Size) -> str:
    own = [one.adjustment for one in settings]
    return "; ".join(dict.fromkeys(f"{one.name} to {one.factor(size):g}T" for one in own))


def beside_the_paper(table: PaperTable, results: Results, size: Size) -> Table:
    """The paper's table: a line for each arm that it names, its number and ours side by side."""
    printed: dict[tuple[str, Number], float] = {}
    numbers: dict[Number, None] = {}
    for claim in table.claims:
        test = claim.test
        if test.quantity.times_other is None:
            number = (test.quantity, None if test.steps == STEPS else test.steps)
            numbers[number] = None
            printed |= {(arm, number): value for arm, value in claim.levels.items()}
    named = {arm for claim in table.claims for arm in (claim.test.arm, claim.test.against)}
    arms = [arm for arm in table.arm_settings(size) if arm in named]
    columns: dict[str, list[Cell]] = {"": [*arms]}
    for quantity, steps in numbers:
        after = "" if steps is None else f", {steps} steps"
        mark = None if steps is None else size.steps * steps // STEPS
        heading = f"{_named(quantity)}{after}"
        values = [printed.get((arm, (quantity, steps))) for arm in arms]
        columns[f"{heading}: paper"] = [None if value is None else f"{value:g}" for value in values]
        columns[f"{heading}: ours"] = [
            _printed_as(quantity, range_of(results.rows, quantity, size.trained, arm_after(arm, mark)))
            for arm in arms
        ]
    shown = {name: cells for name, cells in columns.items() if any(cell is not None for cell in cells)}
    note = (
        "Ours: the mean over seeds; in brackets the lowest and the highest seed."
        if size.seeds > 1
        else "Ours: one seed, with its 95 % interval over documents."
    )
    rows = [row for row in zip(*shown.values(), strict=True) if any(cell is not None for cell in row[1:])]
    return Table(columns=[*shown], rows=rows, notes=[note])


def _named(quantity: Quantity) -> str:
    return f"perplexity at {quantity.times:g}T" if quantity.task == "perplexity" else quantity.heading


def _printed_as(quantity: Quantity, found: Estimate | None) -> Estimate | None:
    """As the paper prints it: a perplexity for a loss, points for a share."""
    if found is None or found.value is None:
        return None

    def shown(value: float | None) -> Any:
        if value is None:
            return None
        return math.exp(value) if quantity.task == "perplexity" else 100 * value

    return Estimate(shown(found.value), shown(found.low), shown(found.high))


def claims_picture(table: PaperTable, judged: Sequence[Judged]) -> Picture | None:
    """Our difference for every claim with its interval, beside the paper's, a panel for each unit."""
    measured = [one for one in judged if isinstance(one.found.ours, Estimate)]
    units = [*dict.fromkeys(one.found.unit for one in measured)]
    if not measured:
        return None
    said: list[str] = []
    with drawn(height=0.28 * len(measured) + 0.9 * len(units) + 0.3, panels=(len(units), 1)) as (
        figure,
        grid,
    ):
        for axes, unit in zip(grid[:, 0], units, strict=True):
            own = [one for one in measured if one.found.unit == unit]
            for at, one in enumerate(own):
                ours, size = one.found.ours, one.claim.test.size
                assert isinstance(ours, Estimate)
                color = (
                    COLORS[2]
                    if one.verdict == REPRODUCED
                    else COLORS[1]
                    if one.verdict in _CONTRARY
                    else "#666666"
                )
                if one.detectable is not None:
                    axes.barh(
                        at, 2 * one.detectable, left=-one.detectable, height=0.7, color="#eeeeee", zorder=0
                    )
                axes.plot([ours.low, ours.high], [at, at], color=color, linewidth=1.6)
                axes.plot([ours.value], [at], marker="o", color=color, linestyle="")
                if size is not None:
                    axes.plot([size], [at], marker="D", color="black", markerfacecolor="none", linestyle="")
                said.append(f"{one.claim.says}: {ours.text}, {one.verdict}")
            axes.axvline(0, color="#888888", linewidth=0.8)
            axes.set_yticks(range(len(own)), [one.claim.says for one in own], fontsize=8)
            axes.set(ylim=(len(own) - 0.4, -0.6), xlabel=f"difference, {unit}")
            axes.grid(visible=False, axis="y")
        return picture(
            figure,
            name=f"claims-{table.name}",
            title="What each claim is about: ours and the paper's",
            alt="; ".join(said),
            caption="Dots: our difference with its 95 % interval, green where the claim is reproduced, orange where "
            "the opposite is found. Diamonds: the paper's. Grey bars: differences too small to be seen here.",
        )
