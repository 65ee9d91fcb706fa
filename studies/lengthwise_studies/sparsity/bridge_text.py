"""The bridge on real text: Jeffreys token by token, and what training forgets, by what a token needs.

The tokens that `influence` examines are compared one by one: Jeffreys against the gain from distant context, the
number of tokens needed, and LongPPL's key tokens. What trained arms change is told by what a token needs before
training.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from lengthwise.measure.statistics import estimate
from lengthwise.report.html import Section
from lengthwise.report.tables import Cell, Estimate, Table
from lengthwise.results import Results, Row
from lengthwise_studies.experiments import Experiment, Scale
from lengthwise_studies.skeleton import Claim, Part, Verdict, claims_table
from lengthwise_studies.sparsity.bridge import (
    FEW,
    GROUPS,
    SPARSE,
    Token,
    forgotten,
    group_of,
    mean_of,
    tokens_of,
)
from lengthwise_studies.sparsity.influence_page import FEWEST_DOCUMENTS, TOO_FEW
from lengthwise_studies.sparsity.token_ranks import rank_table
from lengthwise_studies.store import sample_log

Arms = dict[tuple[str, int | None], list[Token]]
"""The examined tokens of every arm and seed, in one order."""


@dataclass(frozen=True, kw_only=True)
class TextBridge:
    """Arms that examine the same tokens of real text.

    Args:
        experiment: its first arm is the model before training, which tells what a token needs.
        aligned: arms that make more and less context agree.
        others: other forms of training, each compared with the first aligned arm.
    """

    experiment: Experiment
    aligned: tuple[str, ...]
    others: tuple[str, ...]

    @property
    def start(self) -> str:
        """The model before training."""
        return self.experiment.arms[0].name

    @property
    def control(self) -> str:
        """What changes are measured against."""
        assert self.experiment.reference is not None
        return self.experiment.reference

    def part(self, scales: Mapping[str, Scale], *, folder: str = "text", heading: str = "Real text") -> Part:
        """The part of a study."""
        return self.experiment.part(self.sections, scales, folder=folder, heading=heading)

    def sections(self, results: Results, folder: Path) -> list[Section]:
        """The tokens one by one, and what training forgets."""
        threshold = results.config["measures"]["influence"]["gain"]
        arms = self.tokens(results, folder)
        text = results.config["recipe"]["data"]["corpus"]
        start = arms[self.start, None]
        rows = self.rows(arms, threshold, results.model_name)
        claims = claims_table(self.claims(), rows, ours="ours, nats a token, by seed")
        trained = [arm.name for arm in self.experiment.arms if arm.changes is not None]
        return [
            Section(
                title=f"Token by token: {results.model_name}, {text}",
                paragraphs=[
                    f"`{results.model_name}` before fine-tuning, {len(start)} examined tokens. A token is far and "
                    f"sparse if it gains more than {threshold:g} nats from distant context and {FEW} distant tokens "
                    "are enough.",
                ],
                tables=[
                    rank_table(start),
                    groups_table(rows, "jeffreys", [self.start], "Jeffreys by what a token needs"),
                ],
            ),
            Section(
                title=f"What training forgets: {results.model_name}, {text}",
                paragraphs=[
                    f"Loss with all context minus that of `{self.control}`, on the same tokens; positive is worse."
                ],
                tables=[
                    *([claims] if claims else []),
                    groups_table(
                        rows,
                        "forgotten",
                        [name for name in trained if name != self.control],
                        "Change of the loss, nats per token",
                        reference=self.control,
                    ),
                    groups_table(rows, "jeffreys", trained, "Jeffreys after training"),
                ],
                notes=results.notes,
            ),
        ]

    def tokens(self, results: Results, folder: Path) -> Arms:
        """The examined tokens of every arm and seed, from the samples of a run."""
        kept = sorted(set(results.config["measures"]["influence"]["kept"]))
        found: Arms = {}
        for arm in self.experiment.arms:
            for seed in [None] if arm.changes is None else range(results.config["seeds"]):
                log = sample_log(
                    results, arm.name if seed is None else f"{arm.name}, seed {seed}", "influence"
                )
                found[arm.name, seed] = tokens_of(log, kept, keys=sorted(log))
        return found

    def rows(self, arms: Arms, threshold: float, model: str) -> list[Row]:
        """Jeffreys and change of loss by group, for every arm and seed."""
        start = arms[self.start, None]
        statistics = []
        for (name, seed), tokens in arms.items():
            place = {"model": model, "arm": name, "seed": seed}
            for group in GROUPS:
                pairs = [
                    (token.document, token.jeffreys)
                    for token, before in zip(tokens, start, strict=True)
                    if group_of(before, threshold) == group
                ]
                if pairs:
                    statistics.append(mean_of("jeffreys", pairs, bucket=group, **place))
            against = [self.control] + ([self.aligned[0]] if name in self.others else [])
            for reference in against:
                if seed is not None and name != reference:
                    control = arms[reference, seed]
                    statistics += forgotten(tokens, control, start, threshold, reference=reference, **place)
        return [estimate(statistic) for statistic in statistics]

    def claims(self) -> tuple[Claim, ...]:
        """What alignment forgets, and whether the other forms spare it."""
        forget = [
            Claim(
                place="the bridge",
                claim=f"{arm} forgets far and sparse tokens more than those without a gain",
                paper="in neither paper",
                judge=in_every_seed(arm, self.control, "forgotten_more", None, higher=True),
                rule="change of the loss on far and sparse tokens minus that on tokens without a gain; above 0 in "
                "every seed (interval over documents)",
            )
            for arm in (*self.aligned, *self.others)
        ]
        spare = [
            Claim(
                place="the bridge",
                claim=f"{arm} spares the far and sparse tokens that {self.aligned[0]} forgets",
                paper="in neither paper",
                judge=in_every_seed(arm, self.aligned[0], "forgotten", SPARSE, higher=False),
                rule=f"its loss on far and sparse tokens minus that of {self.aligned[0]}; below 0 in every seed "
                "(interval over documents)",
            )
            for arm in self.others
        ]
        return (*forget, *spare)


def groups_table(
    rows: list[Row], metric: str, arms: list[str], caption: str, *, reference: str | None = None
) -> Table:
    """One line for each arm and seed, one column for each group."""
    lines: list[list[Cell]] = []
    for arm in arms:
        for seed in sorted(
            {row.seed for row in rows if row.arm == arm}, key=lambda one: -1 if one is None else one
        ):
            asked = (arm, seed, metric, reference)
            ours = {
                row.bucket: row for row in rows if (row.arm, row.seed, row.metric, row.reference) == asked
            }
            name = arm if seed is None else f"{arm}, seed {seed}"
            lines.append([name, *(_cell(ours.get(group), metric) for group in GROUPS)])
    return Table(columns=["", *GROUPS], rows=lines, caption=f"{caption}, 95 % intervals over documents")


def _cell(row: Row | None, metric: str) -> Cell:
    if row is None:
        return None
    return Estimate(row.value, row.ci_low, row.ci_high, signed=metric == "forgotten")


def in_every_seed(
    arm: str, reference: str, metric: str, group: str | None, *, higher: bool
) -> Callable[[list[Row]], Verdict | None]:
    """Judges whether a change lies above (or below) 0 in every seed, with its whole interval."""

    def judge(rows: list[Row]) -> Verdict | None:
        asked = (arm, reference, metric, group)
        found = [row for row in rows if (row.arm, row.reference, row.metric, row.bucket) == asked]
        if not found:
            return None
        ours = "; ".join(Estimate(row.value, row.ci_low, row.ci_high, signed=True).text for row in found)
        ends = [
            (row.ci_low, row.ci_high) if higher else (-row.ci_high, -row.ci_low)
            for row in found
            if row.ci_low is not None and row.ci_high is not None
        ]
        if len(ends) < len(found) or min(row.documents or 0 for row in found) < FEWEST_DOCUMENTS:
            return ours, TOO_FEW
        if all(low > 0 for low, _ in ends):
            return ours, "yes"
        return ours, "no" if all(high <= 0 for _, high in ends) else "not decided"

    return judge
