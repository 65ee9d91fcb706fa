"""Table 7 and the rebuttal's table: BABILong's QA1 at 4T by depth of the fact, and by alpha (CLEX, books).

The printed version has it as Table 5. The numbers are the rebuttal's; Table 7's are not in the text that we have.
"""

from __future__ import annotations

from collections.abc import Sequence

from lengthwise_studies.arms import Arm
from lengthwise_studies.paired_claims import Direction, PairedClaim
from lengthwise_studies.paper.measures import DEPTHS, answered
from lengthwise_studies.paper.methods import CLEX, PLAIN, Adjustment, standard_arms, term
from lengthwise_studies.paper.paper_table import PaperTable, Setting
from lengthwise_studies.paper.sizes import Size

_PRINTED: dict[float, tuple[float, ...]] = {
    0.0: (75, 64, 30, 69),
    0.1: (73, 64, 38, 74),
    0.3: (70, 62, 38, 76),
    0.5: (61, 54, 36, 72),
}
"""alpha -> accuracy at each depth, in per cent."""
_SAME = 0.05
"""Of accuracy: "comparable". Our choice."""


def arms(adjustment: Adjustment, size: Size) -> Sequence[Arm]:
    """The standard arms, and SCE at the rebuttal's other weights."""
    return (*standard_arms(adjustment, size), *(term(f"SCE {alpha:g}", "sce", alpha) for alpha in (0.3, 0.5)))


def _claim(
    alpha: float, depth: float, direction: Direction, says: str, margin: float | None = None
) -> PairedClaim:
    at = DEPTHS.index(depth)
    return PairedClaim(
        place="Table 7" if alpha == 0.1 else "Rebuttal, depth and alpha",
        source="Sec. 5.4, page 9, line 479; rebuttal, answer Q4 to the fourth reviewer",
        says=says,
        quantity=answered(4, depth),
        arm=f"SCE {alpha:g}",
        against=PLAIN,
        direction=direction,
        margin=margin,
        paper=(_PRINTED[alpha][at], _PRINTED[0.0][at]),
        paper_metric="accuracy",
    )


TABLE = PaperTable(
    name="table7",
    title="Table 7: what does the term do to early and to middle facts?",
    shows=(
        "In QA1 one fact decides. The paper finds early facts kept and middle facts found more often at alpha 0.1, "
        "and in the rebuttal that early facts are lost as alpha grows. We rank the answers by likelihood.",
    ),
    settings=(Setting(adjustment=CLEX, arms=arms),),
    claims=(
        _claim(0.1, 0.0, "same", "facts at the beginning are kept", _SAME),
        _claim(0.1, 50.0, "higher", "facts in the middle are found more often"),
        _claim(0.1, 75.0, "higher", "facts at three quarters are found more often"),
        *(
            _claim(alpha, depth, "lower", f"alpha {alpha:g} loses facts at depth {depth:g} %")
            for alpha in (0.3, 0.5)
            for depth in (0.0, 25.0)
        ),
    ),
)
STUDY = TABLE.study
