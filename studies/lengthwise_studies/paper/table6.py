"""Table 6: BABILong at T, 2T and 4T (CLEX, books). The printed version has it as Table 4."""

from __future__ import annotations

from lengthwise_studies.paired_claims import PairedClaim
from lengthwise_studies.paper.measures import answered
from lengthwise_studies.paper.methods import CLEX, PLAIN, SCE
from lengthwise_studies.paper.paper_table import PaperTable, Setting

_GAINS = {1: None, 2: 2.0, 4: 2.2}
"""T -> the gain that the text names, in points of accuracy."""

TABLE = PaperTable(
    name="table6",
    title="Table 6: does the term help on BABILong?",
    shows=(
        "The paper finds higher accuracy at 4K, 8K and 16K tokens, by 2.0 points at 8K and 2.2 at 16K. It scores "
        "greedy replies over several tasks; we rank the answers of QA1 by likelihood, which small models can do.",
    ),
    settings=(Setting(adjustment=CLEX),),
    claims=tuple(
        PairedClaim(
            place="Table 6",
            source="Sec. 5.4, page 9, line 472",
            says=f"the term raises the accuracy at {times}T"
            + (f" (by {gain:g} points)" if gain is not None else ""),
            quantity=answered(times),
            arm=SCE,
            against=PLAIN,
            direction="higher",
        )
        for times, gain in _GAINS.items()
    ),
)
STUDY = TABLE.study
