"""A part of a study of far context: its claims, and the tables and pictures of what it measured."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path

from matplotlib.axes import Axes

from lengthwise.report.drawing import Picture, curve_picture, curves_of
from lengthwise.report.html import Section
from lengthwise.report.tables import Table
from lengthwise.results import Results, Row, rows_with
from lengthwise_studies.arms import Measures, Scale
from lengthwise_studies.claims import Claim, judge, rules_table, verdict_table
from lengthwise_studies.experiments import Experiment
from lengthwise_studies.far.claims import Comparison, at_depth, depths_of, numbers, tasks_of
from lengthwise_studies.paired_claims import (
    NOTE,
    Measured,
    Paired,
    Quantity,
    arms_table,
    by_line,
    estimate_over_seeds,
    first_estimate,
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
        """Every table that the results can fill, by the name that the documentation calls it by.

        The verdicts; every arm; the differences over seeds, also by depth of the longest prompts, and of each seed;
        the depths at every length.
        """
        reference = self.experiment.reference
        assert reference is not None
        measures = results.config["measures"]
        shown, tasks = numbers(measures), tasks_of(measures)

        def by_depth(wanted: Iterable[Quantity]) -> list[Quantity]:
            return [at_depth(one, depth) for one in wanted for depth in depths_of(measures)]

        found: dict[str, Table] = {}
        if self.claims:
            judged = judge(self.claims_on(measures), Measured(rows=results.rows))
            found["verdicts"] = verdict_table(judged, caption="What a form has to do", notes=[NOTE])
        gold = (
            "; gold is the right answer's probability among the ranked answers, gold loss -log of it (nats)"
        )
        arms = by_line(rows_with(results.rows, reference=None), _arm_and_seed)
        found["arms"] = arms_table(arms, shown, first_estimate, caption=f"Every arm{gold if tasks else ''}")
        compared = [row for row in results.rows if row.reference is not None]
        pairs = by_line(
            compared,
            lambda row: row.arm if row.reference == reference else f"{row.arm} minus {row.reference}",
        )
        longest = max((one.times or 0 for one in shown if one.task in tasks), default=0)
        deep = by_depth(one for one in shown if one.task in tasks and one.times == longest)
        for name, by, which in (("over-seeds", "", shown), ("depths-over-seeds", " by depth", deep)):
            caption = (
                f"Paired difference from {reference}{by} where no other is named, mean over seeds, "
                "95 % intervals over seeds and documents"
            )
            table = arms_table(pairs, which, estimate_over_seeds, caption=caption)
            found |= {name: table} if table.rows else {}
        for other in dict.fromkeys((reference, *(row.reference for row in compared))):
            name = "differences" if other == reference else f"differences from {other}"
            differences = by_line(rows_with(results.rows, reference=other), _arm_and_seed)
            caption = f"Paired difference from {other}"
            found[name] = arms_table(differences, shown, first_estimate, caption=caption)
        for task in tasks:
            for length in dict.fromkeys(one.times for one in shown if one.task == task):
                depths = by_depth(
                    replace(one, heading=name)
                    for name, metric in (("accuracy", "accuracy"), ("gold", "gold_probability"))
                    for one in shown
                    if (one.task, one.metric, one.times) == (task, metric, length)
                )
                name = f"depths {length}" if task == tasks[0] else f"depths {length} {task}"
                caption = f"{task} by depth, at {length:,} tokens"
                found[name] = arms_table(arms, depths, first_estimate, caption=caption)
        return found


def _arm_and_seed(row: Row) -> str:
    """The first seed has no number."""
    return str(row.arm) if row.seed in (None, 0) else f"{row.arm} (seed {row.seed})"


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
