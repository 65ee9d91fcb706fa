"""Tables of the rebuttal that are not in the paper: CREAM, ranges and readings of the overlap, truncation, and the
loss within the training length. Table 7 has the rebuttal's depths and weights, `encoding_misalignment` its encodings.
"""

from __future__ import annotations

from dataclasses import replace

from lengthwise_studies.arms import Arm
from lengthwise_studies.paper.measures import loss, scored
from lengthwise_studies.paper.methods import CLEX, CREAM, EABF, LONGQLORA, PLAIN, SCE, term
from lengthwise_studies.paper.paper_table import PaperTable, Setting, claim
from lengthwise_studies.paper.sizes import SIZES
from lengthwise_studies.paper.tables import PAPER_TABLES, RANGES, SAME

_CREAM = Setting(name="CREAM", adjustment=CREAM)
_ARMS = _CREAM.arm(SCE), _CREAM.arm(PLAIN)
CREAM_TABLE = PaperTable(
    name="cream",
    title="Rebuttal: the term beside CREAM",
    shows="After 100 steps the rebuttal gives CREAM 23.6 points of LongBench-E and a perplexity of 6.62, EABF with "
    "the term 24.0 and 6.43, and CREAM with the term 25.2 and 5.94. We compare the term on both. Arms of different "
    "adjustments are in the table of values.",
    settings=(Setting(name="EABF", adjustment=EABF), _CREAM),
    claims=(
        claim(
            "Rebuttal, CREAM",
            "the term lowers CREAM's perplexity",
            loss(2),
            *_ARMS,
            "lower",
            paper=(5.94, 6.62),
        ),
        claim(
            "Rebuttal, CREAM",
            "the term raises CREAM's LongBench-E",
            scored(),
            *_ARMS,
            "higher",
            paper=(25.2, 23.6),
        ),
    ),
    # The paper's 100 of 200 steps.
    sizes={name: replace(size, steps=max(2, size.steps // 2)) for name, size in SIZES.items()},
)

CLOSE, FULL = "SCE, e to L/20", "SCE, full overlap"


def _ranges(window: int) -> tuple[Arm, ...]:
    """The rebuttal's narrow range, and Sec. 4.2's reading of the overlap."""
    return (
        term(CLOSE, "sce", 0.1, f"offsets=[1, {max(1, window // 20)}]"),
        term(FULL, "sce", 0.1, f"offsets=[1, {window // 2 - 1}]", "objective.min_context=0"),
    )


_READINGS = "Sec. 4.2 and App. D"
RANGES_TABLE = PaperTable(
    name="ranges",
    title="Rebuttal: nearly equal lengths, and two readings of the overlap",
    shows="The rebuttal draws e from 1 to 0.05 L with LongQLoRA. The paper defines the overlap in two ways: Sec. 4.2 "
    "takes all tokens that both windows share, Appendix D those with at least L/2 tokens of context.",
    settings=(Setting(adjustment=LONGQLORA, more=_ranges),),
    claims=(
        claim(
            RANGES, "e to 0.05 L raises the perplexity", loss(2), CLOSE, PLAIN, "higher", paper=(5.87, 5.82)
        ),
        claim(
            RANGES, "e to 0.05 L does worse than e to L/2", loss(2), CLOSE, SCE, "higher", paper=(5.87, 5.77)
        ),
        claim(RANGES, "e to 0.05 L raises LongBench-E", scored(), CLOSE, PLAIN, "higher", paper=(23.9, 23.4)),
        claim(_READINGS, "both readings do the same", loss(2), FULL, SCE, "same", margin=SAME),
    ),
)

AS_IS = "as it is"
_TRUNCATION = "Rebuttal, truncation"
_WHOLE = "on whole prompts the term raises LongBench-E"
_FOUR = "reading 4T tokens, the term lowers the loss"
TRUNCATION_TABLE = PaperTable(
    name="truncation",
    title="Rebuttal: read everything, or only the end?",
    shows="The rebuttal compares the baseline on prompts cut to T tokens (18.2 points of LongBench-E), on whole "
    "prompts (8.9), and its own model on whole prompts (26.6). Without labels: the same targets with windows of "
    "T and of 4T tokens.",
    settings=(Setting(adjustment=CLEX, more=lambda window: (Arm(name=AS_IS),)),),
    claims=(
        claim(_TRUNCATION, _WHOLE, scored(), SCE, AS_IS, "higher", paper=(26.6, 8.9)),
        claim(_TRUNCATION, _FOUR, loss(4), SCE, AS_IS, "lower"),
    ),
)

_WITHIN = {0.25: (6.62, 6.67), 0.5: (6.08, 6.12), 1.0: (5.81, 5.74)}
"""Length / T -> perplexity with and without the term, after 200 steps."""
WITHIN_TABLE = PaperTable(
    name="within",
    title="Rebuttal: what does the term cost within the training length?",
    shows="The rebuttal finds a lower perplexity at T/4 and T/2 and a higher one at T: no degradation, it says.",
    settings=(Setting(adjustment=CLEX),),
    claims=tuple(
        claim(
            "Rebuttal, within T",
            f"the term {'lowers' if aligned < plain else 'raises'} the perplexity at {times:g}T",
            loss(times),
            SCE,
            PLAIN,
            "lower" if aligned < plain else "higher",
            paper=(aligned, plain),
        )
        for times, (aligned, plain) in _WITHIN.items()
    ),
    # The paper's lengths, where the scale can measure them. A limit is looked for beyond T, which is not read here.
    sizes={
        name: replace(size, lengths=(0.25, 0.5, 1), limit_windows=0)
        if max(size.lengths) >= 1 and name != "laptop-smollm2"
        else size
        for name, size in SIZES.items()
    },
)
TABLES = {
    table.name: table for table in (*PAPER_TABLES, CREAM_TABLE, RANGES_TABLE, TRUNCATION_TABLE, WITHIN_TABLE)
}
"""Every table of the paper and its rebuttal, by the name of its study."""
