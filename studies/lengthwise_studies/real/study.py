"""A real model at the paper's geometry, in the form of the paper's tables.

The rows in `studies/results/real` are of the same recipes, texts and claims. There CLEX's arms were asked nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lengthwise_studies.claims import OTHER, Claim
from lengthwise_studies.paired_claims import Paired
from lengthwise_studies.paper.methods import CLEX, CONTROLLED, PLAIN, SCE, Adjustment, term
from lengthwise_studies.paper.paper_table import PaperTable
from lengthwise_studies.paper.rebuttal import TRUNCATION, within
from lengthwise_studies.paper.sizes import SHORT_LORA, SIZES, loss, loss_against
from lengthwise_studies.paper.statements import Setting, claim
from lengthwise_studies.paper.tables import by_depth

LIGHTER = term("Jeffreys 1", "jeffreys", 1.0)
"""The agreement alone with CLEX, whose windows disagree most: it begins at 0.5 to 0.9 nats, as 10 does with YaRN."""
_YARN = Adjustment(name="YaRN", recipe="smollm2-lora", method="yarn", ours=True)
ON_CLEX = Setting(name="CLEX x4", adjustment=CLEX, arms=(*CONTROLLED[:4], LIGHTER))
ON_YARN = Setting(name="YaRN x4", adjustment=_YARN)
"""CLEX is the paper's, at T; YaRN is ours, and its training is settled in the few steps of this run."""


def _claims(setting: Setting) -> Iterator[Claim[Paired]]:
    """All lengths predict the same tokens, so one arm's long text is compared with another's short one."""
    says = f"{SCE} lowers the loss at {{:g}}T"
    paper = (5.88, 6.12) if setting is ON_CLEX else None
    yield claim("Table 4", says.format(2), loss(2), "lower", of=setting, paper=paper)
    yield claim("Table 4", says.format(4), loss(4), "lower", of=setting)
    for times in (0.25, 0.5, 1.0):
        yield within(times, of=setting)
    truncated = "cross entropy reading the last T"
    yield claim(
        TRUNCATION,
        f"reading 4T with the term has a lower loss than {truncated}",
        loss_against(4, 1),
        "lower",
        of=setting,
    )
    yield claim(
        TRUNCATION,
        f"{truncated} has a lower loss than reading 4T",
        loss_against(1, 4),
        "lower",
        PLAIN,
        PLAIN,
        of=setting,
        term=OTHER,
    )


FULL = replace(
    SIZES["laptop-smollm2"],
    window=8192,
    steps=80,
    followed=(),
    lengths=(0.25, 0.5, 1, 2, 4),
    changes=SHORT_LORA,
    question_lengths=(1,),
    questions=84,
    asked=("needle_multi_key", "chains_0"),
    cards=1,
)
_SMALL = {"model": "tiny-books", "trained": 128, "window": 128, "steps": 1, "seeds": 1, "distances": (0.5,)}
REAL = PaperTable(
    name="real-geometry",
    label="SmolLM2-135M, T = 8,192",
    title="What does the term do to a real model at the paper's geometry?",
    shows="SmolLM2-135M with LoRA on windows of T = 8,192 tokens, read from T/4 to 4T. The paper trains Llama-2-7B.",
    settings=(ON_YARN, ON_CLEX),
    claims=(
        *_claims(ON_CLEX),
        *_claims(ON_YARN),
        *by_depth("needle_multi_key", 1, alphas=(0.1,), of=ON_YARN),
    ),
    sizes={
        "default": FULL,
        # As if the model had been trained for 128 tokens.
        "smoke": replace(FULL, samples=(2, 2, 2), question_lengths=(4,), questions=1, cards=None, **_SMALL),
    },
)
