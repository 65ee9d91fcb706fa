"""The form of a table of the paper: claims, settings, arms. It runs one experiment and judges at the end.

A setting is one block of a table: a way to adjust the model, and a corpus. Where a table has several, the arms of a
setting are named after it, and Holm's correction is over the whole table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean

from lengthwise.report.html import Section
from lengthwise.report.tables import Cell, Estimate, Table
from lengthwise.results import Results, Row
from lengthwise.runs import RunFolder
from lengthwise_studies.arms import Arm, Measures, Scale, arm_after, is_final
from lengthwise_studies.experiments import Experiment
from lengthwise_studies.paired_claims import PairedClaim, Quantity
from lengthwise_studies.paper.measures import all_measures, columns, mark_measures
from lengthwise_studies.paper.methods import PLAIN, Adjustment, standard_arms
from lengthwise_studies.paper.sizes import SIZES, Size
from lengthwise_studies.skeleton import Part, Study
from lengthwise_studies.verdicts import Judged, judge, verdict_table

STEPS = 200
"""The paper's training steps."""
ArmsOf = Callable[[Adjustment, Size], Sequence[Arm]]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One block of a table.

    Args:
        name: before the names of its arms; "" in a table with one.
        adjustment: of the model.
        corpus: the paper's: books (RedPajama-Book) or pg19.
        arms: default: `standard_arms`.
    """

    adjustment: Adjustment
    name: str = ""
    corpus: str = "books"
    arms: ArmsOf = standard_arms

    def arm(self, name: str) -> str:
        """What an arm of this setting is called in the table."""
        return f"{self.name}: {name}" if self.name else name


@dataclass(frozen=True, kw_only=True)
class PaperTable:
    """One table of the paper, or of the rebuttal.

    Args:
        name: of the study.
        title: of its page.
        shows: what it shows, in a sentence or two.
        settings: its blocks.
        claims: that it makes.
        follows: whether it measures after the paper's 50 and 100 steps too.
        equal_time: whether arms train equally long instead of equally many steps.
        extra: further measures at a size, beside those that every table has; a measure of the same name is replaced.
        reference: the arm that all others are compared with.
        sizes: by scale.
    """

    name: str
    title: str
    shows: tuple[str, ...]
    settings: tuple[Setting, ...]
    claims: tuple[PairedClaim, ...]
    follows: bool = False
    equal_time: bool = False
    extra: Callable[[Size], Measures] = lambda size: {}
    reference: str = PLAIN
    sizes: Mapping[str, Size] = field(default_factory=lambda: SIZES)

    @property
    def study(self) -> Study:
        """The table as a study."""
        part = Part(
            run=self.run,
            sections=self.sections,
            scales=self.sizes,
            plan=lambda size: [self.experiment(size)],
            has_arms=True,
        )
        return Study(title=self.title, parts=(part,), takes=("seeds", "steps"))

    def experiment(self, size: Size) -> tuple[Experiment, Scale]:
        """The arms of all settings; settings that a size cannot tell apart are run once."""
        arms: list[Arm] = []
        told_apart = {
            (setting.adjustment.name, size.corpora[setting.corpus], setting.arms): setting
            for setting in reversed(self.settings)
        }
        for setting in self.settings:
            if setting in told_apart.values():
                arms += self._arms(setting, size)
        pairs = dict.fromkeys((claim.arm, claim.against) for claim in self.claims)
        experiment = Experiment(
            kind=self.name,
            arms=tuple(arms),
            contrasts=tuple(pair for pair in pairs if {*pair} <= {arm.name for arm in arms}),
            equal_time=self.equal_time,
            seeded=True,
        )
        scale = Scale(
            model=size.model,
            measures={},
            seeds=size.seeds,
            steps=size.steps,
            starts=size.starts,
            marks=size.marks if self.follows else (),
            mark_measures=mark_measures(size) if self.follows else {},
        )
        return experiment, scale

    def _arms(self, setting: Setting, size: Size) -> list[Arm]:
        adjustment = setting.adjustment
        text = size.corpora[setting.corpus]
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
                measures={**all_measures(size, window=adjustment.window(size)), **self.extra(size)},
                against=setting.arm(self.reference),
            )
            for arm in setting.arms(adjustment, size)
        ]

    def run(self, out: Path, scale: Size, *, resume: bool = False, overwrite: bool = False) -> Results:
        """Train and measure every arm that the store lacks, and write the results to `out`.

        Raises:
            UsageError: see `RunFolder`.
            Interrupted: Ctrl-C. Finished arms and samples stay in the store.
        """
        experiment, at = self.experiment(scale)
        settings = {
            "table": self.name,
            "size": scale.to_dict(),
            "settings": {one.name or one.adjustment.name: scale.corpora[one.corpus] for one in self.settings},
        }
        with RunFolder(out, kind=self.name, config=settings, resume=resume, overwrite=overwrite) as folder:
            if finished := folder.finished:
                return finished
            results = experiment.filled(at)
            results.config = settings
            results.notes = [*results.notes, *scale.notes]
            folder.write_results(results)
            return results

    def judged(self, results: Results) -> list[Judged]:
        """The verdicts on all claims of the table, from the rows of a run."""
        size = Size.of(results.config["size"])
        at = {STEPS: ""}
        if self.follows:
            at |= {STEPS * part // 4: arm_after("", size.steps * part // 4) for part in (1, 2)}
        return judge(self.claims, results.rows, length=size.trained, at=at)

    def sections(self, results: Results, folder: Path) -> list[Section]:
        """The table as one section of a page."""
        judged = self.judged(results)
        size = Size.of(results.config["size"])
        shown = columns(size)
        tables = [
            verdict_table(judged),
            values_table(results.rows, shown, size.trained, reference=None, caption="Every arm"),
            values_table(
                results.rows,
                shown,
                size.trained,
                reference="any",
                caption="Paired difference from the reference",
            ),
        ]
        if self.equal_time:
            tables.append(times_table(results.rows, self.reference))
        return [
            Section(
                title=self.title,
                paragraphs=[" ".join(self.shows), *(one.sentence for one in judged)],
                tables=[table for table in tables if table.rows],
                notes=results.notes,
            )
        ]

    def differences_at_the_end(self, results: Results) -> Table:
        """What every arm changes after all steps: losses, parts of SCE and recall, without the other columns."""
        size = Size.of(results.config["size"])
        rows = [row for row in results.rows if is_final(row.arm)]
        shown = [one for one in columns(size) if one.metric in ("loss", "entropy", "jeffreys", "benefit")]
        return values_table(rows, shown, size.trained, reference="any", caption="")


def values_table(
    rows: Sequence[Row], shown: Sequence[Quantity], length: int, *, reference: str | None, caption: str
) -> Table:
    """One line for each arm, means over seeds with their range; of differences where `reference` is not None."""
    chosen = [row for row in rows if (row.reference is None) == (reference is None) and row.arm is not None]
    there = [one for one in shown if any(one.is_in(row, length) for row in chosen)]
    lines: list[list[Cell]] = []
    for arm, against in dict.fromkeys((row.arm, row.reference) for row in chosen):
        own = [row for row in chosen if (row.arm, row.reference) == (arm, against)]
        cells = [
            over_seeds([row for row in own if one.is_in(row, length)], signed=reference is not None)
            for one in there
        ]
        if any(cell is not None for cell in cells):
            lines.append([f"{arm}" if against is None else f"{arm} minus {against}", *cells])
    return Table(
        columns=["", *(one.heading for one in there)],
        rows=lines,
        caption=caption,
        notes=[
            "Means over seeds; in brackets the lowest and the highest seed, or with one seed the 95 % interval."
        ],
    )


def times_table(rows: Sequence[Row], reference: str) -> Table:
    """The measured time of a step of each arm, and its ratio to the reference's of the same setting."""
    found = {row.arm: row.value for row in rows if row.metric == "seconds_per_step" and row.arm and row.value}
    lines: list[list[Cell]] = []
    for arm, seconds in found.items():
        base = found[f"{arm.rpartition(': ')[0]}: {reference}".removeprefix(": ")]
        lines.append([arm, seconds, f"{seconds / base:.2f}"])
    return Table(
        columns=["", "seconds a step", f"of {reference}'s"],
        rows=lines,
        caption="Time of a training step, measured in this run",
    )


def over_seeds(rows: Sequence[Row], *, signed: bool) -> Estimate | None:
    """The mean over seeds with the lowest and the highest; the 95 % interval of one seed.

    None where a seed has no value: a mean over the others would be of other models.
    """
    values = [row.value for row in rows if row.value is not None]
    if not values or len(values) < len(rows):
        return None
    at_least = any(row.at_least for row in rows)
    if len(values) == 1:
        return Estimate(values[0], rows[0].ci_low, rows[0].ci_high, signed=signed, at_least=at_least)
    return Estimate(fmean(values), min(values), max(values), signed=signed, at_least=at_least)
