"""Table 11: the term without an adjustment, and adjustments without the term."""

from __future__ import annotations

from lengthwise.studies.paired_claims import PairedClaim, Quantity
from lengthwise.studies.paper.measures import loss, scored
from lengthwise.studies.paper.methods import RAW, SCE
from lengthwise.studies.paper.paper_table import PaperTable, Setting
from lengthwise.studies.paper.table3 import ENTROPY_ABF, QLORA

ALONE = Setting(name="no adjustment", adjustment=RAW)


def _claim(says: str, quantity: Quantity, direction: str) -> PairedClaim:
    return PairedClaim(
        place="Table 11",
        source="App. G, page 21, line 1124",
        says=says,
        quantity=quantity,
        arm=ALONE.arm(SCE),
        against=ALONE.arm("plain CE"),
        direction=direction,  # type: ignore[arg-type]
    )


TABLE = PaperTable(
    name="table11",
    title="Table 11: does the term help by itself?",
    shows=(
        "The paper fine-tunes on windows of 2T tokens with nothing but the term and finds it better than plain "
        "fine-tuning, and worse than LongQLoRA or EABF. Each adjustment's own table compares it with the term.",
    ),
    settings=(ALONE, QLORA, ENTROPY_ABF),
    claims=(
        _claim("the term alone lowers the perplexity of plain fine-tuning", loss(2), "lower"),
        _claim("the term alone raises LongBench-E of plain fine-tuning", scored(), "higher"),
    ),
)
STUDY = TABLE.study
