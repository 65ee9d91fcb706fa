"""Each equation, table, figure, theorem and answer of the paper: where it is, the command, theirs, ours, the verdict.

The rows of tables are their claims, with the verdicts that kept results give. `tools.docs.doc_tables`
writes `docs/reference/paper-index.md` from here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lengthwise.report.tables import Cell, Estimate, Table
from lengthwise_studies.claims import Judged, judge
from lengthwise_studies.paired_claims import Measured
from lengthwise_studies.paper import table1
from lengthwise_studies.paper.all_tables import TABLES
from tools.docs.kept_results import runs_of


@dataclass(frozen=True)
class Item:
    """One item that is no table: `where` is its code, `command` shows it, `verdict` is given or links to its page."""

    item: str
    what: str
    where: str
    command: str
    verdict: str


ITEMS = (
    Item("Eq. 1", "SCE", "src/lengthwise/alignment/formulas.py", "lengthwise measure MODEL", "computed"),
    Item(
        "Eq. 2",
        "misalignment",
        "src/lengthwise/measure/misalignment.py",
        "lengthwise measure MODEL",
        "computed",
    ),
    Item(
        "Eq. 3, Theorem 1",
        "a bound on the error",
        "studies/lengthwise_studies/theorem1_check.py",
        "lengthwise reproduce theorem1",
        "[theory](../explanation/theory.md)",
    ),
    Item(
        "Eq. 4",
        "the objective",
        "src/lengthwise/alignment/objective.py",
        "lengthwise train RECIPE",
        "computed",
    ),
    Item(
        "Eq. 5-11, Theorem 2",
        "errors of linear attention",
        "studies/lengthwise_studies/theorem2_check.py",
        "lengthwise reproduce theorem2",
        "[theory](../explanation/theory.md)",
    ),
    Item(
        "Fig. 1",
        "mean, length, reparameterized length",
        "studies/lengthwise_studies/section3/panels.py",
        "lengthwise reproduce figure1",
        "[synthetic](../explanation/synthetic.md)",
    ),
    Item(
        "Fig. 2, Table 8",
        "the two windows; what both halves share",
        "studies/lengthwise_studies/paper/illustrations.py",
        "lengthwise reproduce figure2",
        "shown",
    ),
    Item(
        "Fig. 3",
        "sum and length by training length",
        "studies/lengthwise_studies/section3/panels.py",
        "lengthwise reproduce figure3",
        "[synthetic](../explanation/synthetic.md)",
    ),
    Item(
        "Fig. 4, App. C",
        "the sum",
        "studies/lengthwise_studies/section3/panels.py",
        "lengthwise reproduce figure4",
        "[synthetic](../explanation/synthetic.md)",
    ),
    Item(
        "Fig. 5, App. F",
        "the mean with a uniform count",
        "studies/lengthwise_studies/section3/panels.py",
        "lengthwise reproduce figure5",
        "[synthetic](../explanation/synthetic.md)",
    ),
    Item(
        "App. A",
        "models of the synthetic tasks",
        "studies/lengthwise_studies/synthetic/transformer.py",
        "lengthwise reproduce section3",
        "built",
    ),
    Item(
        "App. D",
        "the code of the objective",
        "src/lengthwise/alignment/geometry.py",
        "lengthwise reproduce ranges",
        "[errata](../explanation/errata.md)",
    ),
    Item(
        "Rebuttal Q6",
        "encodings and misalignment",
        "studies/lengthwise_studies/paper/models.py",
        "lengthwise reproduce encodings",
        "[paper tables](../explanation/paper-tables.md#rebuttal-positional-encodings)",
    ),
)


def items_table() -> Table:
    """The items that are no tables."""
    return Table(
        columns=["item", "what", "code", "command", "verdict"],
        rows=[[one.item, one.what, one.where, one.command, one.verdict] for one in ITEMS],
    )


def claims_index(results: Path) -> Table:
    """Every claim of the tables, with the verdict of each kept run; "not run" without one.

    A run with a variant makes claims of its own: it does not judge the paper's claim a second time.
    """
    return Table(
        columns=["place", "claim", "source", "command", "theirs", "scale", "ours", "verdict"],
        rows=[row for name in ("table1", *TABLES) for row in _claims(results, name)],
    )


def _claims(folder: Path, name: str) -> Iterator[list[Cell]]:
    for scale, variant, judged in _verdicts(folder, name):
        for one in judged:
            ours = one.found.ours.text if isinstance(one.found.ours, Estimate) else ""
            yield [
                one.claim.place,
                f"{one.claim.says}, {variant}" if variant else one.claim.says,
                one.claim.source,
                f"lengthwise reproduce {name}",
                one.claim.paper,
                scale,
                f"{ours} {one.found.unit}".strip() if ours else "",
                one.verdict,
            ]


def _verdicts(folder: Path, name: str) -> list[tuple[str, str, list[Judged]]]:
    """Scale, variant and verdicts of every kept run of a table; those of no run where none is kept."""
    runs = runs_of(folder, name)
    if name == "table1":
        found = [
            (f"{run.scale}, {who} models", run.variant, judged)
            for run in runs
            for who, judged in table1.judged(run.results).items()
        ]
        return found or [("none", "", judge(table1.CLAIMS, {}))]
    table = TABLES[name]
    found = [(run.scale, run.variant, table.judged(run.results)) for run in runs]
    return found or [("none", "", judge(table.claims, Measured(rows=[])))]
