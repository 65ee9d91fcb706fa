"""Table 4: the weight alpha of the term (CLEX, books). The printed version has it as Table 6."""

from __future__ import annotations

from collections.abc import Sequence

from lengthwise_studies.arms import Arm
from lengthwise_studies.paired_claims import PairedClaim
from lengthwise_studies.paper.measures import loss, scored
from lengthwise_studies.paper.methods import CLEX, PLAIN, Adjustment, standard_arms, term
from lengthwise_studies.paper.paper_table import PaperTable, Setting
from lengthwise_studies.paper.sizes import Size

_SOURCE = "Sec. 5.3, Table 4, page 9, line 432"
_PRINTED: dict[float, dict[int, tuple[float, float]]] = {
    0.0: {50: (22.7, 7.21), 100: (23.8, 6.56), 200: (24.7, 6.12)},
    0.1: {50: (23.1, 6.89), 100: (25.2, 6.24), 200: (26.6, 5.88)},
    0.3: {50: (23.4, 6.95), 100: (25.8, 6.35), 200: (27.1, 5.98)},
    0.5: {50: (21.9, 7.44), 100: (23.7, 7.01), 200: (24.7, 6.54)},
    1.0: {50: (18.2, 16.21), 100: (19.4, 14.12), 200: (19.9, 12.92)},
}
"""alpha -> steps -> (LongBench-E, perplexity)."""


def arms(adjustment: Adjustment, size: Size) -> Sequence[Arm]:
    """The standard arms, and SCE at the table's other weights."""
    more = (term(f"SCE {alpha:g}", "sce", alpha) for alpha in _PRINTED if alpha not in (0.0, 0.1))
    return (*standard_arms(adjustment, size), *more)


def _claims() -> tuple[PairedClaim, ...]:
    found = []
    for alpha in (0.1, 0.3, 0.5, 1.0):
        for steps in (50, 100, 200):
            better = alpha <= 0.3
            (score, perplexity), (plain_score, plain) = _PRINTED[alpha][steps], _PRINTED[0.0][steps]
            found.append(
                PairedClaim(
                    place="Table 4",
                    source=_SOURCE,
                    says=f"alpha {alpha:g} {'lowers' if better else 'raises'} the perplexity after {steps} steps",
                    quantity=loss(2),
                    arm=f"SCE {alpha:g}",
                    against=PLAIN,
                    direction="lower" if better else "higher",
                    paper=(perplexity, plain),
                    paper_metric="perplexity",
                    steps=steps,
                )
            )
            if steps == 200 and score != plain_score:
                found.append(
                    PairedClaim(
                        place="Table 4",
                        source=_SOURCE,
                        says=f"alpha {alpha:g} {'raises' if better else 'lowers'} LongBench-E",
                        quantity=scored(),
                        arm=f"SCE {alpha:g}",
                        against=PLAIN,
                        direction="higher" if better else "lower",
                        paper=(score, plain_score),
                        paper_metric="LongBench-E",
                    )
                )
    return tuple(found)


TABLE = PaperTable(
    name="table4",
    title="Table 4: how much weight does the term take?",
    shows=(
        "The paper trains Llama-2-7B with CLEX on windows of T tokens and finds the best perplexity and "
        "LongBench-E at alpha 0.1 to 0.3, and harm from 0.5 on.",
    ),
    settings=(Setting(adjustment=CLEX, arms=arms),),
    claims=_claims(),
    follows=True,
)
STUDY = TABLE.study
