"""Every table by name, and all of them as one study."""

from __future__ import annotations

from lengthwise_studies.paper.pretraining import PRETRAINED
from lengthwise_studies.paper.rebuttal import CREAM_TABLE, RANGES_TABLE, TRUNCATION_TABLE, WITHIN_TABLE
from lengthwise_studies.paper.tables import (
    TABLE2,
    TABLE3,
    TABLE4,
    TABLE5,
    TABLE6,
    TABLE7,
    TABLE9,
    TABLE10,
    TABLE11,
)
from lengthwise_studies.paper.when import TWENTY_TABLE, WHEN
from lengthwise_studies.real.steps import REAL_STEPS
from lengthwise_studies.skeleton import Study

_PAPERS = (TABLE2, TABLE3, TABLE4, TABLE5, TABLE6, TABLE7, TABLE9, TABLE10, TABLE11)
_REBUTTALS = (CREAM_TABLE, RANGES_TABLE, TRUNCATION_TABLE, WITHIN_TABLE)
_OURS = (WHEN, TWENTY_TABLE, *PRETRAINED.values(), REAL_STEPS)
TABLES = {table.name: table for table in (*_PAPERS, *_REBUTTALS, *_OURS)}
"""Every table of the paper and its rebuttal, and those of ours, by its name."""
ALL = Study(
    title="The tables of the paper and its rebuttal",
    parts=tuple(table.part(f"parts/{table.name}") for table in (*_PAPERS, *_REBUTTALS)),
    lead=(
        "Each table of the paper and of its rebuttal: its numbers beside ours, and a verdict on each claim.",
    ),
    takes=("seeds", "steps", "data"),
)
"""All of them in one run: with LongBench's files every claim on LongBench-E has a verdict."""
