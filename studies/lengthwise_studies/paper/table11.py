"""Table 11: the term without an adjustment, and adjustments without the term."""

from __future__ import annotations

from dataclasses import replace

from lengthwise_studies.paired_claims import PairedClaim
from lengthwise_studies.paper.measures import loss, scored
from lengthwise_studies.paper.methods import PLAIN, RAW, SCE
from lengthwise_studies.paper.paper_table import PaperTable, Setting
from lengthwise_studies.paper.table3 import ENTROPY_ABF, QLORA

ALONE = Setting(name="no adjustment", adjustment=RAW)


def _claims(better: str, worse: str, arm: str, against: str) -> tuple[PairedClaim, ...]:
    """Two claims: `arm` has a lower perplexity and a higher LongBench-E than `against`."""
    perplexity = PairedClaim(
        place="Table 11",
        source="App. G, page 21, line 1124",
        says=f"{better} has a lower perplexity than {worse}",
        quantity=loss(2),
        arm=arm,
        against=against,
        direction="lower",
    )
    says = f"{better} has a higher LongBench-E than {worse}"
    return perplexity, replace(perplexity, says=says, quantity=scored(), direction="higher")


TABLE = PaperTable(
    name="table11",
    title="Table 11: does the term help by itself?",
    shows=(
        "The paper fine-tunes on windows of 2T tokens with nothing but the term and finds it better than plain "
        "fine-tuning, and worse than LongQLoRA or EABF without the term.",
    ),
    settings=(ALONE, QLORA, ENTROPY_ABF),
    claims=(
        *_claims("the term alone", "plain fine-tuning", ALONE.arm(SCE), ALONE.arm(PLAIN)),
        *_claims("LongQLoRA alone", "the term alone", QLORA.arm(PLAIN), ALONE.arm(SCE)),
        *_claims("EABF alone", "the term alone", ENTROPY_ABF.arm(PLAIN), ALONE.arm(SCE)),
    ),
)
STUDY = TABLE.study
