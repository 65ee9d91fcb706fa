"""Table 3: the term on windows of 2T tokens, with LongQLoRA and with EABF."""

from __future__ import annotations

from lengthwise_studies.paired_claims import PairedClaim
from lengthwise_studies.paper.measures import loss, scored
from lengthwise_studies.paper.methods import EABF, LONGQLORA, PLAIN, SCE
from lengthwise_studies.paper.paper_table import PaperTable, Setting
from lengthwise_studies.paper.table2 import STRONG, arms

QLORA = Setting(name="LongQLoRA", adjustment=LONGQLORA, arms=arms)
ENTROPY_ABF = Setting(name="EABF", adjustment=EABF, arms=arms)


def claims(place: str, source: str) -> tuple[PairedClaim, ...]:
    """What the paper says of both adjustments."""
    found = []
    for setting in (QLORA, ENTROPY_ABF):
        for says, quantity, direction in (
            ("the term lowers the perplexity", loss(2), "lower"),
            ("the term raises LongBench-E", scored(), "higher"),
        ):
            found.append(
                PairedClaim(
                    place=place,
                    source=source,
                    says=f"{setting.name}: {says}",
                    quantity=quantity,
                    arm=setting.arm(SCE),
                    against=setting.arm(PLAIN),
                    direction=direction,  # type: ignore[arg-type]
                )
            )
        found.append(
            PairedClaim(
                place=place,
                source=source,
                says=f"{setting.name}: too great a weight has a higher perplexity",
                quantity=loss(2),
                arm=setting.arm(STRONG),
                against=setting.arm(SCE),
                direction="higher",
            )
        )
    return tuple(found)


TABLE = PaperTable(
    name="table3",
    title="Table 3: does the term help with longer training windows?",
    shows=(
        "The paper trains Llama-2-7B on windows of 2T tokens with LongQLoRA and with EABF and finds up to 2.4 points "
        "of LongBench-E more. The table's numbers are not in the text that we have.",
    ),
    settings=(QLORA, ENTROPY_ABF),
    claims=claims("Table 3", "Sec. 5.2, Table 3, page 8, lines 378 and 404"),
    follows=True,
)
STUDY = TABLE.study
