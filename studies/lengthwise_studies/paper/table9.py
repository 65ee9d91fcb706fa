"""Table 9: table 2 at equal computation time."""

from __future__ import annotations

from lengthwise_studies.paper.paper_table import PaperTable
from lengthwise_studies.paper.table2 import BOOKS, PG19, claims

TABLE = PaperTable(
    name="table9",
    title="Table 9: does the term help in equal time?",
    shows=(
        "The paper finds 3 to 5 % more time a step, and trains the baseline for 50, 100 and 200 steps and its method "
        "for 47, 95 and 190. We measure the time of a step of each arm in the same run, and every arm trains for as "
        "long as plain CE.",
    ),
    settings=(BOOKS, PG19),
    claims=claims("Table 9", "App. E, Table 9, page 20, lines 1026 and 1056"),
    follows=True,
    equal_time=True,
)
STUDY = TABLE.study
