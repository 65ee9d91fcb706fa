"""Tables 2 to 7 and 9 to 11 of the paper: the settings of each, and what it claims of them.

Numbers that a claim lacks are not in the text that we have. Table 7 has the rebuttal's depths and weights, `table1`
its encodings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from lengthwise_studies.claims import HARMLESS, HARMS, HELPS, OTHER, Claim
from lengthwise_studies.paired_claims import Direction, Paired, Quantity
from lengthwise_studies.paper.methods import (
    CLEX,
    CONTROLLED,
    EABF,
    LONGQLORA,
    LORA,
    PLAIN,
    RAW,
    SCE,
    term,
    weights,
)
from lengthwise_studies.paper.paper_table import PaperTable
from lengthwise_studies.paper.sizes import BABILONG, DEPTHS, QA1, SCORED, SIZES, answered, loss
from lengthwise_studies.paper.statements import OURS, Setting, claim
from lengthwise_studies.paper.yardsticks import no_second_books

STRONG = "SCE 0.5"
STRONGER = (*CONTROLLED, *weights(0.5))
BOOKS = Setting(name="books", adjustment=CLEX, arms=STRONGER)
PG19 = Setting(name="PG19", adjustment=CLEX, corpus="pg19", arms=STRONGER)
QLORA = Setting(name="LongQLoRA", adjustment=LONGQLORA, arms=STRONGER)
ENTROPY_ABF = Setting(name="EABF", adjustment=EABF, arms=STRONGER)
ALONE = Setting(name="no adjustment", adjustment=RAW)
VERBS = {"lower": "lowers", "higher": "raises"}


_BY_WEIGHT: dict[float, dict[int, tuple[float, float]]] = {
    0.0: {50: (22.7, 7.21), 100: (23.8, 6.56), 200: (24.7, 6.12)},
    0.1: {50: (23.1, 6.89), 100: (25.2, 6.24), 200: (26.6, 5.88)},
    0.3: {50: (23.4, 6.95), 100: (25.8, 6.35), 200: (27.1, 5.98)},
    0.5: {50: (21.9, 7.44), 100: (23.7, 7.01), 200: (24.7, 6.54)},
    1.0: {50: (18.2, 16.21), 100: (19.4, 14.12), 200: (19.9, 12.92)},
}
"""alpha -> steps -> (LongBench-E, perplexity): Table 4, which repeats Table 2's arms on books."""
_EARLY = "after 50 steps the term raises the perplexity slightly at most"
AFTER_50, PG19_AFTER_50 = (6.92, 6.89), (8.95, 8.92)
"""Perplexity with the term and without it, of tables 3 and 2: the rebuttal's."""


def at_t(place: str) -> tuple[Claim[Paired], ...]:
    """What tables 2 and 9 say of both corpora; Table 2's numbers on books are those of Table 4."""
    greater = "a greater weight does not always help more"
    known = place == "Table 2"
    on_pg19: dict[str, Any] = {"of": PG19, "unless": no_second_books}
    losses, scores, more = ((5.88, 6.12), (26.6, 24.7), (6.54, 5.88)) if known else (None, None, None)
    return (
        claim(place, "the term lowers the perplexity", loss(2), "lower", of=BOOKS, paper=losses),
        claim(place, "the term leaves the perplexity as it is", loss(2), "same", term=HARMLESS, **on_pg19),
        claim(place, "the term raises LongBench-E", SCORED, "higher", of=BOOKS, paper=scores),
        claim(place, "the term raises LongBench-E", SCORED, "higher", **on_pg19),
        claim(place, greater, loss(2), "higher", STRONG, SCE, of=BOOKS, paper=more, term=HARMS),
    )


def at_2t(place: str) -> tuple[Claim[Paired], ...]:
    """What tables 3 and 10 say of both adjustments; Table 3's numbers with LongQLoRA are the rebuttal's."""
    too_great = "too great a weight has a higher perplexity"
    found: list[Claim[Paired]] = []
    for setting in (QLORA, ENTROPY_ABF):
        known = place == "Table 3" and setting is QLORA
        losses, scores = ((5.77, 5.82), (25.8, 23.4)) if known else (None, None)
        found += [
            claim(place, "the term lowers the perplexity", loss(2), "lower", of=setting, paper=losses),
            claim(place, "the term raises LongBench-E", SCORED, "higher", of=setting, paper=scores),
            claim(place, too_great, loss(2), "higher", STRONG, SCE, of=setting, term=HARMS),
        ]
    return tuple(found)


def early(setting: Setting, printed: tuple[float, float], **other: Any) -> Claim[Paired]:
    """What the rebuttal answers of both tables: a slight degradation, of the size that it prints."""
    about: dict[str, Any] = {"of": setting, "paper": printed, "steps": 50, "term": HARMLESS, **other}
    return claim("Rebuttal, 50 steps", _EARLY, loss(2), "not higher", **about)


TABLE2 = PaperTable(
    name="table2",
    label="Table 2",
    title="Table 2: does the term help beyond the training windows?",
    shows="The paper trains Llama-2-7B with CLEX on windows of T tokens for 50, 100 and 200 steps on RedPajama-Book "
    "and PG19. At the laptop's scale the second corpus is Python source, so claims about PG19 are not judged.",
    settings=(BOOKS, PG19),
    claims=(*at_t("Table 2"), early(PG19, PG19_AFTER_50, unless=no_second_books)),
    follows=True,
)
TABLE3 = PaperTable(
    name="table3",
    label="Table 3",
    title="Table 3: does the term help with longer training windows?",
    shows="The paper trains Llama-2-7B on windows of 2T tokens with LongQLoRA and with EABF. It finds up to 2.4 "
    "points of LongBench-E more.",
    settings=(QLORA, ENTROPY_ABF),
    claims=(*at_2t("Table 3"), *(early(one, AFTER_50) for one in (QLORA, ENTROPY_ABF))),
    follows=True,
)


def _by_weight(alpha: float) -> list[Claim[Paired]]:
    arm, found = f"SCE {alpha:g}", []
    falls, rises = ("lower", "higher") if alpha <= 0.3 else ("higher", "lower")
    about = HELPS if alpha <= 0.3 else HARMS
    for steps, (score, perplexity) in _BY_WEIGHT[alpha].items():
        plain_score, plain = _BY_WEIGHT[0.0][steps]
        says = f"alpha {alpha:g} {VERBS[falls]} the perplexity after {steps} steps"
        both = perplexity, plain
        found.append(claim("Table 4", says, loss(2), falls, arm, paper=both, steps=steps, term=about))
        if steps == 200 and score != plain_score:
            says = f"alpha {alpha:g} {VERBS[rises]} LongBench-E"
            found.append(claim("Table 4", says, SCORED, rises, arm, paper=(score, plain_score), term=about))
    return found


TABLE4 = PaperTable(
    name="table4",
    label="Table 4",
    title="Table 4: how much weight does the term take?",
    shows="The paper trains Llama-2-7B with CLEX on windows of T tokens. Perplexity and LongBench-E are best at "
    "alpha 0.1 to 0.3, and suffer from 0.5 on.",
    settings=(Setting(adjustment=CLEX, arms=(*CONTROLLED, *weights(0.3, 0.5, 1.0))),),
    claims=tuple(one for alpha in _BY_WEIGHT if alpha for one in _by_weight(alpha)),
    follows=True,
)

NARROW, OUTER, WHOLE = "SCE, e to L/4", "SCE, e from L/4", "SCE, e to L"
ALL_TOKENS = "min_context=0"


_RANGES = (
    term(NARROW, "sce", 0.1, "offsets=[1, {L/4}]"),
    term(OUTER, "sce", 0.1, "offsets=[{L/4}, {L/2}]"),
    term(WHOLE, "sce", 0.1, "offsets=[1, {L}]", ALL_TOKENS),
)
RANGES = "Rebuttal, ranges"


def _worse(says: str, arm: str) -> Claim[Paired]:
    return claim("Table 5", says, loss(2), "higher", arm, SCE, term=OTHER)


TABLE5 = PaperTable(
    name="table5",
    label="Table 5",
    title="Table 5: how far apart may the two lengths be?",
    shows="The paper draws e from four ranges, with LongQLoRA on windows of 2T tokens and alpha 0.1. The ranges 1 to "
    "L/2 and 1 to L/4 are comparable, L/4 to L/2 is slightly worse, and 1 to L clearly worse.",
    settings=(Setting(adjustment=LONGQLORA, arms=(*CONTROLLED, *_RANGES)),),
    claims=(
        claim("Table 5", "e to L/4 does as well as e to L/2", loss(2), "same", NARROW, SCE),
        _worse("e from L/4 to L/2 is slightly worse than e to L/2", OUTER),
        _worse("e to L is worse than e to L/2", WHOLE),
        claim(RANGES, "e to L/2 lowers the perplexity", loss(2), "lower", paper=(5.77, 5.82)),
        claim(RANGES, "e to L/2 raises LongBench-E", SCORED, "higher", paper=(25.8, 23.4)),
    ),
)

_ASKING = SIZES | {"smoke": replace(SIZES["smoke"], question_lengths=(8,), questions=1)}
"""The sizes of tables of questions: at `smoke` other tables have none."""
_GAINS = {times: (answered(times, task=BABILONG), gain) for times, gain in ((1, None), (2, 2.0), (4, 2.2))}
"""Times of T -> what Table 6 measures there, and the gain that the text names, in points."""
TABLE6 = PaperTable(
    name="table6",
    label="Table 6",
    title="Table 6: does the term help on BABILong?",
    shows="The paper finds higher accuracy at 4K, 8K and 16K tokens, by 2.0 points at 8K and 2.2 at 16K, over all of "
    "BABILong. It scores greedy replies, as we do at its scale; smaller models rank the answers by likelihood.",
    settings=(Setting(adjustment=CLEX),),
    claims=tuple(
        claim("Table 6", f"the term raises the accuracy at {times}T", of, "higher", paper=gain)
        for times, (of, gain) in _GAINS.items()
    ),
    sizes={name: replace(size, asked=(BABILONG,)) for name, size in _ASKING.items()},
)

_BY_DEPTH: dict[float, tuple[float, ...]] = {
    0.0: (75, 64, 30, 69),
    0.1: (73, 64, 38, 74),
    0.3: (70, 62, 38, 76),
    0.5: (61, 54, 36, 72),
}
"""alpha -> accuracy at each depth, in per cent: the rebuttal's."""
_AT_DEPTH: tuple[tuple[float, float, Direction, str, str], ...] = (
    (0.1, 0.0, "same", "facts at the beginning are kept", HARMLESS),
    (0.1, 50.0, "higher", "facts in the middle are found more often", HELPS),
    (0.1, 75.0, "higher", "facts at three quarters are found more often", HELPS),
    *(
        (alpha, depth, "lower", f"alpha {alpha:g} loses facts at depth {depth:g} %", HARMS)
        for alpha in (0.3, 0.5)
        for depth in (0.0, 25.0)
    ),
)
_EASIER = ("needle_multi_key", "tracking_one_move")
"""Tasks in which one fact decides, and which models that guess in QA1 can do."""


def _printed_at(alpha: float, depth: float) -> tuple[float, float]:
    at = DEPTHS.index(depth)
    return _BY_DEPTH[alpha][at], _BY_DEPTH[0.0][at]


def by_depth(
    task: str, times: float, *, alphas: Sequence[float], of: Setting | None = None
) -> Iterator[Claim[Paired]]:
    """What table 7 says of QA1 by depth, of another task at `times` T."""
    for alpha, depth, direction, says, of_term in _AT_DEPTH:
        if alpha in alphas:
            yield claim(
                OURS,
                f"{task}: {says}",
                answered(times, depth, task),
                direction,
                f"SCE {alpha:g}",
                of=of,
                paper=_printed_at(alpha, depth),
                like="QA1",
                term=of_term,
            )


TABLE7 = PaperTable(
    name="table7",
    label="Table 7",
    title="Table 7: what does the term do to early and to middle facts?",
    shows="In QA1 one fact decides. At alpha 0.1 the paper finds early facts kept and middle facts found more often. "
    "The rebuttal finds early facts lost as alpha grows. We rank the answers by likelihood. Models that guess in QA1 "
    "look for needles and people instead, at T/8.",
    settings=(Setting(adjustment=CLEX, arms=(*CONTROLLED[:3], *weights(0.3, 0.5)), asked={"SCE 0.3": QA1}),),
    claims=tuple(
        claim(
            "Table 7" if alpha == 0.1 else "Rebuttal, depth and alpha",
            says,
            answered(4, depth),
            direction,
            f"SCE {alpha:g}",
            paper=_printed_at(alpha, depth),
            term=term,
        )
        for alpha, depth, direction, says, term in _AT_DEPTH
    )
    + tuple(one for task in _EASIER for one in by_depth(task, 0.125, alphas=(0.1, 0.5))),
    sizes=_ASKING
    | {
        "laptop-smollm2": replace(
            SIZES["laptop-smollm2"],
            asked=_EASIER,
            # 252 at a depth over three seeds.
            questions=84,
            question_lengths=(0.125,),
            lengths=(0.125,),
            distances=(0.0625,),
        )
    },
)
TABLE9 = replace(
    TABLE2,
    name="table9",
    label="Table 9",
    title="Table 9: does the term help in equal time?",
    shows="The paper finds 3 to 5 % more time a step. It trains the baseline for 50, 100 and 200 steps and its "
    "method for 47, 95 and 190. We measure the time of a step of all arms in turns, and every arm trains for as long "
    "as plain CE.",
    claims=at_t("Table 9"),
    equal_time=True,
)
TABLE10 = replace(
    TABLE3,
    name="table10",
    label="Table 10",
    title="Table 10: does the term help with longer windows, in equal time?",
    shows="As table 3, and every arm trains for as long as plain CE, by its measured time of a step.",
    claims=at_2t("Table 10"),
    equal_time=True,
)
LORA_ALONE, EABF_ALONE = (Setting(name=one.name, adjustment=one, arms=CONTROLLED[:2]) for one in (LORA, EABF))
BETTER_BY: tuple[tuple[str, Quantity, Direction], ...] = (
    ("perplexity", loss(2), "lower"),
    ("LongBench-E", SCORED, "higher"),
)
_BETTER: tuple[tuple[str, str, str, str, dict[str, Any]], ...] = (
    ("the term alone", ALONE.arm(SCE), "plain fine-tuning", ALONE.arm(PLAIN), {}),
    ("LongQLoRA alone", LORA_ALONE.arm(PLAIN), "the term alone", ALONE.arm(SCE), {"term": OTHER}),
    ("EABF alone", EABF_ALONE.arm(PLAIN), "the term alone", ALONE.arm(SCE), {"term": OTHER}),
)
TABLE11 = PaperTable(
    name="table11",
    label="Table 11",
    title="Table 11: does the term help by itself?",
    shows="The paper fine-tunes on windows of 2T tokens with nothing but the term. It finds it better than plain "
    "fine-tuning, and worse than LongQLoRA or EABF without the term. At the laptop's scale LongQLoRA has here its "
    "best learning rate of three, chosen on training books.",
    settings=(ALONE, LORA_ALONE, EABF_ALONE),
    claims=tuple(
        claim("Table 11", f"{better} has a {way} {what} than {worse}", quantity, way, arm, against, **about)
        for better, arm, worse, against, about in _BETTER
        for what, quantity, way in BETTER_BY
    ),
)
