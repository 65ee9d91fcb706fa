"""The tables of the rebuttal: the settings of each, and what it claims of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lengthwise_studies.arms import Arm
from lengthwise_studies.claims import HARMLESS, HELPS, OTHER, Claim
from lengthwise_studies.paired_claims import Direction, Paired, Quantity
from lengthwise_studies.paper.methods import (
    CLEX,
    CONTROLLED,
    CREAM,
    CREAM_EABF,
    EABF,
    LONGQLORA,
    PLAIN,
    SCE,
    term,
)
from lengthwise_studies.paper.paper_table import PaperTable
from lengthwise_studies.paper.sizes import SCORED, SIZES, loss, loss_against
from lengthwise_studies.paper.statements import Setting, claim
from lengthwise_studies.paper.tables import ALL_TOKENS, BETTER_BY, RANGES

_ABF = Setting(name="EABF", adjustment=EABF)
_CREAM = Setting(name="CREAM", adjustment=CREAM)
_CREAM_ABF = Setting(name="CREAM on EABF", adjustment=CREAM_EABF)
CREAM_TABLE = PaperTable(
    name="cream",
    label="Rebuttal, CREAM",
    title="Rebuttal: the term beside CREAM",
    shows="After 100 steps the rebuttal gives CREAM 23.6 points of LongBench-E and a perplexity of 6.62, EABF with "
    "the term 24.0 and 6.43, and CREAM with the term 25.2 and 5.94. It says that its CREAM builds on EABF; CREAM's "
    "own code builds on position interpolation. Here are both.",
    settings=(_ABF, _CREAM, _CREAM_ABF),
    claims=tuple(
        claim(
            "Rebuttal, CREAM",
            f"{says} than {cream.name}",
            of,
            way,
            one.arm(SCE),
            cream.arm(PLAIN),
            paper=paper,
            # Between two extensions: whatever comes out, the term alone did not do it.
            term=HELPS if one is cream else OTHER,
        )
        for cream in (_CREAM_ABF, _CREAM)
        for one, printed in ((_ABF, ((6.43, 6.62), (24.0, 23.6))), (cream, ((5.94, 6.62), (25.2, 23.6))))
        for (what, of, way), paper in zip(BETTER_BY, printed, strict=True)
        for says in [f"{one.name} with the term has a {way} {what}"]
    ),
    # The paper's 100 of 200 steps, on windows in which CREAM's head and tail leave a middle.
    sizes={
        name: replace(size, steps=max(2, size.steps // 2), window=max(128, size.window))
        for name, size in SIZES.items()
    },
)
CLOSE, FULL = "SCE, e to L/20", "SCE, full overlap"


_CLOSE_RANGES = (
    term(CLOSE, "sce", 0.1, "offsets=[1, {L/20}]"),
    term(FULL, "sce", 0.1, "offsets=[1, {L/2}]", ALL_TOKENS),
)
"""The rebuttal's narrow range, and Sec. 4.2's reading of the overlap."""
_RAISES = "e to 0.05 L raises the perplexity"
_WORSE = "e to 0.05 L does worse than e to L/2"
RANGES_TABLE = PaperTable(
    name="ranges",
    label="Rebuttal, ranges",
    title="Rebuttal: nearly equal lengths, and two readings of the overlap",
    shows="The rebuttal draws e from 1 to 0.05 L with LongQLoRA. The paper defines the overlap in two ways: Sec. 4.2 "
    "takes all tokens that both windows share, Appendix D those with at least L/2 tokens of context.",
    settings=(Setting(adjustment=LONGQLORA, arms=(*CONTROLLED, *_CLOSE_RANGES)),),
    claims=(
        claim(RANGES, _RAISES, loss(2), "higher", CLOSE, paper=(5.87, 5.82), term=OTHER),
        claim(RANGES, _WORSE, loss(2), "higher", CLOSE, SCE, paper=(5.87, 5.77), term=OTHER),
        claim(RANGES, "e to 0.05 L raises LongBench-E", SCORED, "higher", CLOSE, paper=(23.9, 23.4)),
        claim("Sec. 4.2 and App. D", "both readings do the same", loss(2), "same", FULL, SCE),
    ),
)
AS_IS, CUT = "as it is", "as it is, last T tokens of prompts"
_CUT_AS: dict[str, Any] = {"across": ("max_length", "truncation")}
_NO_TERM: dict[str, Any] = {"term": OTHER}
TRUNCATION = "Rebuttal, truncation"
_WHOLE = "on whole prompts the term raises LongBench-E"
_FARTHER = "reading 4T tokens with the term, the loss is below that of the model as it is reading T"
_NEARER = "as it is, the model has a lower loss reading T tokens than reading 4T"
_UNMEASURED = "not measured"


_AS_IT_IS = (
    Arm(name=AS_IS),
    Arm(name=CUT, measures={"eval longbench_e": {"max_length": "T", "truncation": "left"}}),
)
"""The model without an extension, on whole prompts and on the last T tokens of each."""
_TRUNCATED: tuple[tuple[str, Quantity, Direction, tuple[str, str], Any, dict[str, Any]], ...] = (
    (_WHOLE, SCORED, "higher", (SCE, AS_IS), (26.6, 8.9), {}),
    (f"{_WHOLE} above that of cut ones", SCORED, "higher", (SCE, CUT), (26.6, 18.2), _CUT_AS),
    ("without it cut prompts do better", SCORED, "higher", (CUT, AS_IS), (18.2, 8.9), _CUT_AS | _NO_TERM),
    ("reading 4T tokens, the term lowers the loss", loss(4), "lower", (SCE, PLAIN), _UNMEASURED, {}),
    (_FARTHER, loss_against(4, 1), "lower", (SCE, AS_IS), _UNMEASURED, {}),
    (_NEARER, loss_against(1, 4), "lower", (AS_IS, AS_IS), _UNMEASURED, _NO_TERM),
)
"""What is said, of which number, in which direction and of which two arms, with the paper's numbers."""
TRUNCATION_TABLE = PaperTable(
    name="truncation",
    label="Rebuttal, truncation",
    title="Rebuttal: read everything, or only the end?",
    shows="The rebuttal compares the baseline on the last T tokens of prompts (18.2 points of LongBench-E), on whole "
    "prompts (8.9), and its own model, which has an extension too, on whole prompts (26.6). Without labels: the same "
    "targets with windows of T and of 4T tokens.",
    settings=(Setting(adjustment=CLEX, arms=(*CONTROLLED, *_AS_IT_IS)),),
    claims=tuple(
        claim(TRUNCATION, says, of, way, arm, against, paper=paper, **about)
        for says, of, way, (arm, against), paper, about in _TRUNCATED
    ),
)
_WITHIN = {0.25: (6.62, 6.67), 0.5: (6.08, 6.12), 1.0: (5.81, 5.74)}
"""Length / T -> perplexity with and without the term, after 200 steps."""


def within(times: float, of: Setting | None = None, steps: int | None = None) -> Claim[Paired]:
    """The rebuttal's answer at one length: no degradation. It has a higher perplexity at T, and calls it none.

    After so many `steps` of fewer tokens than the paper's it has no number.
    """
    says = f"the term does not degrade the perplexity at {times:g}T"
    return claim(
        "Rebuttal, within T",
        says if steps is None else f"{says} after {steps} steps",
        loss(times),
        "not higher",
        of=of,
        paper=_WITHIN[times] if steps is None else "no number of this many tokens",
        term=HARMLESS,
        steps=steps,
    )


WITHIN_TABLE = PaperTable(
    name="within",
    label="Rebuttal, within T",
    title="Rebuttal: what does the term cost within the training length?",
    shows="The rebuttal finds a lower perplexity at T/4 and T/2 and a higher one at T, by 0.012 nats. It calls this "
    "no degradation, so that much is allowed here.",
    settings=(Setting(adjustment=CLEX),),
    claims=tuple(map(within, _WITHIN)),
    # The paper's lengths.
    sizes={name: replace(size, lengths=(0.25, 0.5, 1)) for name, size in SIZES.items()},
)
