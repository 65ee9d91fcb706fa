"""Table 10: table 3 at equal computation time."""

from __future__ import annotations

from lengthwise_studies.paper.paper_table import PaperTable
from lengthwise_studies.paper.table3 import ENTROPY_ABF, QLORA, claims

TABLE = PaperTable(
    name="table10",
    title="Table 10: does the term help with longer windows, in equal time?",
    shows=(
        "As table 3, and every arm trains for as long as plain CE, by the time of a step measured in this run.",
    ),
    settings=(QLORA, ENTROPY_ABF),
    claims=claims("Table 10", "App. E, Table 10, page 21, line 1080"),
    follows=True,
    equal_time=True,
)
STUDY = TABLE.study
