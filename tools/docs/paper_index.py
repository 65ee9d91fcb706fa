"""Each equation, table, figure, theorem and answer of the paper: where it is, the command, theirs, ours, the verdict.

The rows of tables are their claims, with the verdicts that kept results give. `tools.docs.doc_tables`
writes `docs/reference/paper-index.md` from here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lengthwise.report.tables import Cell, Estimate, Table
from lengthwise_studies.paper.dependence import relate
from lengthwise_studies.paper.rebuttal import TABLES
from lengthwise_studies.paper.table1 import RELATIONS, relations
from lengthwise_studies.verdicts import judge
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
        "studies/lengthwise_studies/synthetic/theorem1.py",
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
        "studies/lengthwise_studies/synthetic/theorem2.py",
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
        "studies/lengthwise_studies/paper/encoding_misalignment.py",
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
        rows=[*_relations(results), *(row for name in TABLES for row in _claims(results, name))],
    )


def _claims(folder: Path, name: str) -> Iterator[list[Cell]]:
    table = TABLES[name]
    runs = [(run.scale, run.variant, table.judged(run.results)) for run in runs_of(folder, name)]
    for scale, variant, judged in runs or [("none", "", judge(table.claims, [], length=1))]:
        for one in judged:
            ours = (
                ""
                if one.difference is None
                else Estimate(one.difference, one.low, one.high, signed=True).text
            )
            yield [
                one.claim.place,
                f"{one.claim.says}, {variant}" if variant else one.claim.says,
                one.claim.source,
                f"lengthwise reproduce {name}",
                one.claim.paper_text,
                scale,
                f"{ours} {one.claim.quantity.unit}" if ours else "",
                one.verdict,
            ]


def _relations(folder: Path) -> Iterator[list[Cell]]:
    runs = [
        (f"{run.scale}, {which} models", related)
        for run in runs_of(folder, "table1")
        for which, related in relations(run.results).items()
    ]
    for scale, related in runs or [("none", relate(RELATIONS, {}))]:
        for one in related:
            ours = "" if one.estimate is None else one.estimate.text
            yield [
                "Table 1" if one.relation.claimed else "Table 1, control",
                one.relation.says,
                "Sec. 4.1.2, Table 1, page 6",
                "lengthwise reproduce table1",
                "" if one.relation.paper is None else f"{one.relation.paper:g}",
                scale,
                ours,
                one.verdict,
            ]
