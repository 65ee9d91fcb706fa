"""A part of a study of far context: its claims, and the tables and pictures of what it measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

from matplotlib.axes import Axes

from lengthwise.report.drawing import Picture, curve_picture, curves_of
from lengthwise.report.html import Section
from lengthwise.report.tables import Estimate, Table
from lengthwise.results import Results, Row, rows_with
from lengthwise_studies.arms import Measures, Scale
from lengthwise_studies.claims import Claim, judge, rules_table, verdict_table
from lengthwise_studies.experiments import Experiment
from lengthwise_studies.far.claims import Comparison, at_depth, depths_of, numbers, tasks_of
from lengthwise_studies.paired_claims import (
    NOTE,
    Measured,
    Paired,
    arms_table,
    by_line,
    estimate_over_seeds,
    range_over_seeds,
)
from lengthwise_studies.skeleton import Part


@dataclass(frozen=True)
class FarPart:
    """Arms and what is asked of them, with claims on pairs of them. The kind of its results names it."""

    heading: str
    experiment: Experiment
    scales: dict[str, Scale]
    claims: tuple[Comparison, ...] = ()

    def part(self) -> Part:
        """As a part of a study, in a folder of the kind's name."""
        kind = self.experiment.kind
        return self.experiment.part(
            self.sections,
            self.scales,
            folder=kind,
            heading=self.heading,
            claims=lambda scale: self.claims_on(scale.measures),
        )

    def claims_on(self, measures: Measures) -> list[Claim[Paired]]:
        """What is claimed of the numbers of these measures."""
        return [
            claim
            for form, control, demands in self.claims
            for demand in demands
            for claim in demand.claims(form.name, control.name, measures)
        ]

    def sections(self, results: Results, folder: Path) -> list[Section]:
        """What was done, verdicts, tables and pictures."""
        recipe = results.config["recipe"]
        screen = " One seed: a screen." if results.config["seeds"] == 1 else ""
        return [
            Section(
                title=self.heading,
                paragraphs=[
                    f"`{results.model_name}` before and after {recipe['steps']} steps on windows of "
                    f"{recipe['length']:,} tokens, on text that it was not trained on.{screen}"
                ],
                tables=list(self.tables(results).values()),
                figures=depth_pictures(results),
                notes=results.notes,
                details=[rules_table(self.claims_on(results.config["measures"]))] if self.claims else [],
            )
        ]

    def tables(self, results: Results) -> dict[str, Table]:
        """Every table that the results can fill: the verdicts; every arm and its differences, and these by depth."""
        reference, measures = self.experiment.reference, results.config["measures"]
        shown, tasks = numbers(measures), tasks_of(measures)
        asked = [one for one in shown if one.task in tasks]
        by_depth = [at_depth(one, depth) for one in asked for depth in depths_of(measures)]
        found: dict[str, Table] = {}
        if self.claims:
            judged = judge(self.claims_on(measures), Measured(rows=results.rows))
            found["verdicts"] = verdict_table(judged, caption="What a form has to do", notes=[NOTE])

        def pair(row: Row) -> str | None:
            other = None if row.reference == reference else row.reference
            return " minus ".join(filter(None, (row.arm, other))) if row.reference else None

        arms = by_line(rows_with(results.rows, reference=None), lambda row: row.arm)
        differences = by_line(results.rows, pair)
        for name, lines, cell, caption in (
            ("arms", arms, range_over_seeds, "Every arm"),
            ("differences", differences, _difference, f"Paired difference from {reference}, or from another"),
        ):
            found[name] = arms_table(lines, shown, cell, caption=caption, notes=[_CELLS])
            found |= {f"{name} by depth": arms_table(lines, by_depth, cell, caption=f"{caption}, by depth")}
        return {name: table for name, table in found.items() if table.rows or name == "arms"}


_CELLS = (
    "Brackets of an arm hold the lowest and the highest seed, of one seed the 95 % interval over documents. Those of "
    "a difference are 95 % intervals over seeds and documents. Gold is the right answer's probability among the "
    "ranked answers, gold loss -log of it (nats)."
)


def _difference(rows: Sequence[Row]) -> Estimate | None:
    """Over seeds, which need three; of one seed as it is."""
    return range_over_seeds(rows, signed=True) if len(rows) == 1 else estimate_over_seeds(rows)


def depth_pictures(results: Results) -> list[Picture]:
    """Accuracy by depth: a picture for each task, a panel for each length."""

    measures = results.config["measures"]
    depths = depths_of(measures)

    def dress(axes: Axes, _: str, __: object) -> None:
        axes.set_xticks(depths, [f"{depth:g} %" for depth in depths])
        axes.set_ylim(0, 1.02)

    pictures: list[Picture | None] = []
    for task in tasks_of(measures):
        rows = rows_with(results.rows, task=task, metric="accuracy", reference=None)
        panels = by_line(
            sorted((row for row in rows if row.depth is not None), key=lambda row: row.length or 0),
            lambda row: None if row.length is None else f"{row.length:,} tokens",
        )
        pictures.append(
            curve_picture(
                {name: curves_of(of_length, attrgetter("depth")) for name, of_length in panels.items()},
                name=f"{results.kind}-{task}",
                title=f"{task}: accuracy by depth",
                across="depth of the answer (%)",
                up="accuracy",
                caption="0 % is the beginning of the prompt. Thin lines are seeds. Bars and bands are 95 % "
                "intervals over contexts, of arms with one seed.",
                dress=dress,
            )
        )
    return [picture for picture in pictures if picture is not None]
