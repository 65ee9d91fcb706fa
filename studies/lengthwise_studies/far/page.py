"""A part of a study of far context: its claims, and the tables and pictures of what it measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path

from matplotlib.axes import Axes

from lengthwise.report.drawing import Picture, curve_picture, curves_of
from lengthwise.report.html import Section
from lengthwise.report.tables import Table
from lengthwise.results import Results, Row
from lengthwise_studies.arm_tables import arms_table, by_line, first_estimate
from lengthwise_studies.arms import Scale
from lengthwise_studies.claims import judge, verdict_table
from lengthwise_studies.experiments import Experiment
from lengthwise_studies.far.claims import Comparison, at_depth, claims_on, depths_of, numbers, tasks_of
from lengthwise_studies.paired_claims import NOTE, Measured, over_seeds
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
        return self.experiment.part(self.sections, self.scales, folder=kind, heading=self.heading)

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
            )
        ]

    def tables(self, results: Results) -> dict[str, Table]:
        """Every table that the results can fill, by the name that the documentation calls it by.

        The verdicts; every arm; the differences over seeds, also by depth of the longest prompts, and of each seed;
        the depths at every length.
        """
        reference = self.experiment.reference
        assert reference is not None
        shown, tasks = numbers(results), tasks_of(results)
        longest = max((one.times or 0 for one in shown if one.task in tasks), default=0)
        by_depth = [
            at_depth(one, depth)
            for one in shown
            if one.task in tasks and one.times == longest
            for depth in depths_of(results)
        ]
        found: dict[str, Table] = {}
        if self.claims:
            judged = judge(claims_on(results, self.claims), Measured(rows=results.rows))
            found["verdicts"] = verdict_table(judged, caption="What a form has to do", notes=[NOTE])
        gold = "gold is the right answer's probability among the ranked answers, gold loss -log of it (nats)"
        lines = _of_each_seed(results.rows, None)
        caption = f"Every arm; {gold}" if tasks else "Every arm"
        found["arms"] = arms_table(lines, shown, first_estimate, caption=caption)
        for name, by, which in (("over-seeds", "", shown), ("depths-over-seeds", " by depth", by_depth)):
            caption = (
                f"Paired difference from {reference}{by} where no other is named, mean over seeds, "
                "95 % intervals over seeds and documents"
            )
            found[name] = arms_table(
                _of_all_seeds(results.rows, reference), which, over_seeds, caption=caption
            )
        others = [row.reference for row in results.rows if row.reference not in (None, reference)]
        for other in dict.fromkeys((reference, *others)):
            name = "differences" if other == reference else f"differences from {other}"
            differences = _of_each_seed(results.rows, other)
            caption = f"Paired difference from {other}"
            found[name] = arms_table(differences, shown, first_estimate, caption=caption)
        for task in tasks:
            for length in dict.fromkeys(one.times for one in shown if one.task == task):
                depths = [
                    replace(at_depth(one, depth), heading=f"{name}, depth {depth:g} %")
                    for name, metric in (("accuracy", "accuracy"), ("gold", "gold_probability"))
                    for one in shown
                    if (one.task, one.metric, one.times) == (task, metric, length)
                    for depth in depths_of(results)
                ]
                name = f"depths {length}" if task == tasks[0] else f"depths {length} {task}"
                caption = f"{task} by depth, at {length:,} tokens"
                found[name] = arms_table(lines, depths, first_estimate, caption=caption)
        return {name: table for name, table in found.items() if table.rows or "over-seeds" not in name}


def _of_each_seed(rows: list[Row], reference: str | None) -> dict[str, list[Row]]:
    """The rows of every arm and seed; the first seed has no number."""

    def name(row: Row) -> str | None:
        if row.arm is None or row.reference != reference:
            return None
        return row.arm if row.seed in (None, 0) else f"{row.arm} (seed {row.seed})"

    return by_line(rows, name)


def _of_all_seeds(rows: list[Row], reference: str) -> dict[str, list[Row]]:
    """The differences of every compared pair; the reference is named where it is another one."""

    def name(row: Row) -> str | None:
        if row.arm is None or row.reference is None:
            return None
        return row.arm if row.reference == reference else f"{row.arm} minus {row.reference}"

    return by_line(rows, name)


def depth_pictures(results: Results) -> list[Picture]:
    """Accuracy by depth: a picture for each task, a panel for each length."""
    return list(_depth_pictures(results))


def _depth_pictures(results: Results) -> Iterator[Picture]:
    def dress(axes: Axes, _: str, depths: object) -> None:
        axes.set_xticks(depths_of(results), [f"{depth:g} %" for depth in depths_of(results)])
        axes.set_ylim(0, 1.02)

    for task in tasks_of(results):
        rows = [
            row
            for row in results.select(task=task, metric="accuracy", reference=None)
            if row.depth is not None
        ]
        lengths = sorted({row.length for row in rows if row.length is not None})
        found = curve_picture(
            {
                f"{length:,} tokens": curves_of(
                    [row for row in rows if row.length == length], attrgetter("depth")
                )
                for length in lengths
            },
            name=f"{results.kind}-{task}",
            title=f"{task}: accuracy by depth",
            across="depth of the answer (%)",
            up="accuracy",
            caption="0 % is the beginning of the prompt. Thin lines are seeds. Bars and bands are 95 % intervals "
            "over contexts, of arms with one seed.",
            dress=dress,
        )
        if found is not None:
            yield found
