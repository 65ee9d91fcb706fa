"""Table 2: the term on windows of T tokens, on two corpora (CLEX)."""

from __future__ import annotations

from collections.abc import Sequence

from lengthwise_studies.arms import Arm
from lengthwise_studies.paired_claims import PairedClaim, Quantity
from lengthwise_studies.paper.measures import loss, scored
from lengthwise_studies.paper.methods import CLEX, PLAIN, SCE, Adjustment, standard_arms, term
from lengthwise_studies.paper.paper_table import PaperTable, Setting
from lengthwise_studies.paper.sizes import Size

STRONG = "SCE 0.5"
SAME = 0.01
"""Nats: "similar" perplexity. Our choice, as in Table 5."""


def arms(adjustment: Adjustment, size: Size) -> Sequence[Arm]:
    """The standard arms, and the paper's greater weight."""
    return (*standard_arms(adjustment, size), term(STRONG, "sce", 0.5))


BOOKS = Setting(name="books", adjustment=CLEX, corpus="books", arms=arms)
PG19 = Setting(name="PG19", adjustment=CLEX, corpus="pg19", arms=arms)


def claims(place: str, source: str) -> tuple[PairedClaim, ...]:
    """What the paper says of both corpora; the numbers of the tables are not in the text that we have."""

    def claim(setting: Setting, says: str, quantity: Quantity, direction: str, **more: float) -> PairedClaim:
        return PairedClaim(
            place=place,
            source=source,
            says=f"{setting.name}: {says}",
            quantity=quantity,
            arm=setting.arm(SCE),
            against=setting.arm(PLAIN),
            direction=direction,  # type: ignore[arg-type]
            **more,  # type: ignore[arg-type]
        )

    return (
        claim(BOOKS, "the term lowers the perplexity", loss(2), "lower"),
        claim(PG19, "the term leaves the perplexity as it is", loss(2), "same", margin=SAME),
        claim(BOOKS, "the term raises LongBench-E", scored(), "higher"),
        claim(PG19, "the term raises LongBench-E", scored(), "higher"),
        PairedClaim(
            place=place,
            source=source,
            says="books: a greater weight does not always help more",
            quantity=loss(2),
            arm=BOOKS.arm(STRONG),
            against=BOOKS.arm(SCE),
            direction="higher",
        ),
    )


TABLE = PaperTable(
    name="table2",
    title="Table 2: does the term help beyond the training windows?",
    shows=(
        "The paper trains Llama-2-7B with CLEX on windows of T tokens for 50, 100 and 200 steps on RedPajama-Book "
        "and PG19. At the laptop's scale the second corpus is Python source.",
    ),
    settings=(BOOKS, PG19),
    claims=claims("Table 2", "Sec. 5.1, Table 2, page 7, lines 324 and 361"),
    follows=True,
)
STUDY = TABLE.study
