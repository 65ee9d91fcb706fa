"""The form of a table of the paper: settings and claims. It runs one experiment and judges at the end."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from lengthwise.report.html import Section
from lengthwise.report.tables import Cell, Table
from lengthwise.results import Results, Row
from lengthwise_studies.arms import Arm, Scale, arm_after
from lengthwise_studies.claims import Claim, Judged, judge, rules_table
from lengthwise_studies.contrasts import Contrast
from lengthwise_studies.experiments import Experiment
from lengthwise_studies.paired_claims import (
    Measured,
    Paired,
    arms_table,
    by_line,
    range_over_seeds,
)
from lengthwise_studies.paper.methods import PLAIN
from lengthwise_studies.paper.sizes import SIZES, STEPS, Size, measure_of
from lengthwise_studies.paper.statements import Setting
from lengthwise_studies.paper.table_page import table_sections
from lengthwise_studies.skeleton import Part, Study


@dataclass(frozen=True, kw_only=True)
class PaperTable:
    """One table of the paper, or of the rebuttal. Holm's correction is over all of its claims.

    `label` names it in one line, `shows` says what the paper does and finds. A table that `follows` training measures
    after the paper's 50 and 100 steps too. With `equal_time` arms train equally long instead of equally many steps.
    `in_study` is the study that it is a part of; "" for one of its own name.
    """

    name: str
    label: str
    title: str
    shows: str
    settings: tuple[Setting, ...]
    claims: tuple[Claim[Paired], ...]
    follows: bool = False
    equal_time: bool = False
    in_study: str = ""
    sizes: Mapping[str, Size] = field(default_factory=lambda: SIZES)

    @property
    def study(self) -> Study:
        """The table as a study."""
        return Study(title=self.title, parts=(self.part(),), takes=("seeds", "steps", "data"))

    def part(self, folder: str = ".") -> Part:
        """The table as a part of a study."""
        return Part(
            run=self.run,
            sections=self.sections,
            scales=self.sizes,
            plan=lambda size: [self.experiment(size)],
            claims=lambda size: self.claims,
            folder=folder,
            heading=f"Where it comes from: {self.label}",
        )

    def experiment(self, size: Size) -> tuple[Experiment, Scale]:
        """The arms of all settings; settings that a size cannot tell apart are run once."""
        alike = [
            replace(one, name="", corpus=size.text_of(one.corpus), start=one.start if size.start else ())
            for one in self.settings
        ]
        run = [one for place, one in enumerate(self.settings) if alike.index(alike[place]) == place]
        arms = [arm for one in run for arm in self._arms(one, size)]
        contrasts = dict.fromkeys(_contrast(claim.test, size) for claim in self.claims)
        names = {arm.name for arm in arms}
        experiment = Experiment(
            kind=self.name,
            arms=tuple(arms),
            contrasts=tuple(one for one in contrasts if {one.arm, one.against} <= names),
            equal_time=self.equal_time,
            seeded=True,
            notes=size.notes,
        )
        scale = Scale(
            model=size.model, measures={}, seeds=size.seeds, steps=size.steps, pretrained=size.start
        )
        if self.follows:
            losses = size.measures(size.window)["perplexity"]
            scale = replace(scale, marks=size.marks, mark_measures={"perplexity": losses})
        return experiment, scale

    def _arms(self, setting: Setting, size: Size) -> list[Arm]:
        adjustment, text = setting.adjustment, size.text_of(setting.corpus)
        shared = adjustment.changes(size, text)
        if not self.equal_time:
            # For tables that measure after these steps: an arm is trained once for all tables.
            shared = (*shared, f"save_at={list(size.marks)}")
        return [
            replace(
                arm,
                name=setting.arm(arm.name),
                recipe=adjustment.recipe,
                changes=None if arm.changes is None else (*shared, *arm.changes),
                text=text,
                measures={
                    name: of | {key: size.trained if value == "T" else value for key, value in own.items()}
                    for name, of in size.measures(adjustment.window(size)).items()
                    for own in [(arm.measures or {}).get(name, {})]
                },
                own_start=setting.own_start(size),
                against=setting.arm(PLAIN),
            )
            for arm in setting.at(size)
        ]

    def run(self, out: Path, scale: Size, **how: bool) -> Results:
        """Train and measure every arm that the store lacks, and write the results to `out`: see `Experiment.run`."""
        experiment, at = self.experiment(scale)
        settings = {
            "table": self.name,
            "size": scale.to_dict(),
            "settings": {one.name or one.adjustment.name: scale.text_of(one.corpus) for one in self.settings},
        }
        return experiment.run(out, at, settings=settings, **how)

    def judged(self, results: Results) -> list[Judged]:
        """The verdicts on all claims of the table, from the rows of a run."""
        size = Size.of(results.config["size"])
        steps = {STEPS: ""}
        if self.follows:
            steps |= {mark: arm_after("", size.steps * mark // STEPS) for mark in size.followed}
        return judge(self.claims, Measured(rows=results.rows, length=size.trained, steps=steps), size)

    def arm_settings(self, size: Size) -> dict[str, Setting]:
        """The setting of each arm by its name in the table."""
        return {one.arm(arm.name): one for one in self.settings for arm in one.at(size)}

    def trainings(self, size: Size) -> dict[str, Hashable]:
        """What decides the weights and the losses of each arm: tables that agree in it have trained it twice."""
        return {
            setting.arm(arm.name): (
                setting.adjustment,
                setting.adjustment.changes(size, size.text_of(setting.corpus)),
                (arm.method, arm.factor) if arm.changes is None else arm.changes,
                setting.start,
                self.equal_time,
                (size.model, size.trained, size.steps, size.lengths, size.samples),
            )
            for setting in self.settings
            for arm in setting.at(size)
        }

    def times(self, results: Results) -> Table:
        """The measured time of a step of each arm, and its ratio to that of plain CE in the same setting."""
        settings = self.arm_settings(Size.of(results.config["size"]))
        timed = [row for row in results.rows if row.metric == "seconds_per_step" and row.value]
        found = {row.arm: row.value or 0.0 for row in timed if row.arm}
        lines: list[list[Cell]] = [
            [arm, seconds, f"{seconds / found[settings[arm].arm(PLAIN)]:.2f}"]
            for arm, seconds in found.items()
        ]
        columns = ["", "seconds a step", f"of {PLAIN}'s"]
        return Table(
            columns=columns, rows=lines, caption="Time of a training step, all arms measured in turns"
        )

    def sections(self, results: Results, folder: Path) -> list[Section]:
        """The table as a part of a page."""
        judged = self.judged(results)
        details = [
            rules_table(self.claims),
            self.values(results, differences=False, caption="Every arm"),
            self.values(results, differences=True, caption="Paired difference from the reference"),
            *([self.times(results)] if self.equal_time else []),
        ]
        return table_sections(self, judged, results, details)

    def values(self, results: Results, *, differences: bool, caption: str = "", short: bool = False) -> Table:
        """One line for each arm, or for each of its differences; means over seeds with their range.

        The `short` table has the arms after all steps, and of SCE its parts alone.
        """
        size = Size.of(results.config["size"])
        shown, final = size.columns(), self.arm_settings(size)
        if short:
            shown = [one for one in shown if one.metric in ("loss", "entropy", "jeffreys", "benefit")]

        def name(row: Row) -> str | None:
            if (
                row.arm is None
                or (row.reference is not None) != differences
                or (short and row.arm not in final)
            ):
                return None
            return " minus ".join(filter(None, (row.arm, row.reference)))

        note = "Means over seeds; in brackets the lowest and the highest seed, or with one seed the 95 % interval."
        mean = partial(range_over_seeds, signed=differences)
        lines = by_line(results.rows, name)
        return arms_table(lines, shown, mean, length=size.trained, caption=caption, notes=[note])


def _contrast(test: Paired, size: Size) -> Contrast:
    quantity, lengths = test.quantity, None
    if quantity.times is not None and quantity.times_other is not None:
        lengths = (round(quantity.times * size.trained), round(quantity.times_other * size.trained))
    return Contrast(
        arm=test.arm,
        against=test.against,
        measure=measure_of(quantity),
        across=test.across,
        lengths=lengths,
    )
