"""When does the term help? The objective from starts that can profit, and with a learning rate for each arm.

Two numbers describe the start of a setting. One is its inverse temperature: the factor of the logits with the lowest
loss, above 1 where the model is less sure than it should be. The other is what plain cross entropy gains on it. A
term that is mostly entropy sharpens, so it can help where the first is above 1.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lengthwise_studies.claims import Claim
from lengthwise_studies.paired_claims import Paired, Quantity
from lengthwise_studies.paper.methods import (
    CLEX,
    CONTROLLED,
    CREAM,
    EABF,
    ENTROPY,
    LONGQLORA,
    RAW,
    SCE,
    term,
    weights,
)
from lengthwise_studies.paper.paper_table import PaperTable
from lengthwise_studies.paper.sizes import TWENTY, loss
from lengthwise_studies.paper.statements import OURS, Setting, claim
from lengthwise_studies.paper.tables import AFTER_50, PG19_AFTER_50, early
from lengthwise_studies.paper.yardsticks import no_second_books
from lengthwise_studies.skeleton import Study

AS_PRINTED = "as printed 0.1"
_PRINTED = (*CONTROLLED, term(AS_PRINTED, "printed_sce", 0.1))
# Each with its best learning rate of 3e-5, 1e-4, 3e-4 and 1e-3, which is the 1e-4 of all tables for all but one. It
# was chosen by the loss at 2T on the training split, over which less than one pass was made.
_SLOWER = term("SCE 0.3", "sce", 0.3, "optimizer.learning_rate=3e-05")
_TUNED = (*CONTROLLED, *weights(0.01, 0.03), _SLOWER)
USUAL = Setting(name="CLEX", adjustment=CLEX, arms=_PRINTED)
UNSURE = replace(
    USUAL, name="CLEX, unsure", start=(("logit_scale", 0.8),), arms=(*_PRINTED, *weights(0.03, 0.3))
)
EARLY = replace(USUAL, name="CLEX, early", start=(("steps", 300),))
_ON_TWENTY: dict[str, Any] = {"corpus": TWENTY, "start": (("text", TWENTY),)}
ON_TWENTY = (
    Setting(name="EABF", adjustment=EABF, arms=_TUNED, **_ON_TWENTY),
    Setting(name="CLEX", adjustment=CLEX, **_ON_TWENTY),
    Setting(name="LongQLoRA", adjustment=LONGQLORA, **_ON_TWENTY),
)
ON_CODE = Setting(name="CLEX, PG19", adjustment=CLEX, corpus="pg19", start=_ON_TWENTY["start"])
STARTS = tuple(
    Setting(name=f"start of {name}", adjustment=one, corpus=corpus, arms=CONTROLLED[:1])
    for name, one, corpus in (
        ("CLEX on code", CLEX, "pg19"),
        ("no adjustment", RAW, "books"),
        ("CREAM", CREAM, "books"),
    )
)
"""What the settings of other tables start from, read without training."""


def _lower(says: str, quantity: Quantity, *, of: Setting, **about: Any) -> Claim[Paired]:
    """A statement of ours. It has the size of the paper's gain: Table 4's with CLEX, Table 3's with windows of 2T."""
    like = "Table 3" if of.adjustment.longer else "Table 4"
    return claim(OURS, says, quantity, "lower", of=of, like=like, **about)


def _claims(setting: Setting, *arms: str) -> tuple[Claim[Paired], ...]:
    return tuple(
        _lower(f"{arm} lowers the loss at {times}T", loss(times), arm=arm, of=setting)
        for arm in arms
        for times in (2, 4)
    )


def _early(setting: Setting) -> tuple[Claim[Paired], ...]:
    """Before training has made the model sure, a term that sharpens may help."""
    says = f"{SCE} lowers the loss at 2T after {{}} of the paper's steps"
    return tuple(_lower(says.format(steps), loss(2), of=setting, steps=steps) for steps in (25, 50, 66))


WHEN = PaperTable(
    name="when",
    label="Ours, starts",
    title="When does the term help?",
    shows="The term from three starts of CLEX. The third start's logits are scaled by 0.8, so that it is less sure "
    "than it should be.",
    settings=(USUAL, EARLY, UNSURE, *STARTS),
    claims=(
        *_early(USUAL),
        *_early(UNSURE),
        *_claims(USUAL, SCE, AS_PRINTED),
        *_claims(EARLY, SCE, AS_PRINTED),
        *_claims(UNSURE, SCE, AS_PRINTED, ENTROPY, "SCE 0.03", "SCE 0.3"),
    ),
    follows=True,
)
TWENTY_TABLE = PaperTable(
    name="twenty",
    in_study="when",
    label="Ours, twenty books",
    title="Does the term help on twenty held-out books?",
    shows="The pretrained models did not read these twenty books. With EABF each arm has its best "
    "learning rate of four; the other settings have the rate of all tables. The rebuttal also has numbers for "
    "PG19 after 50 steps. Here Python source replaces PG19.",
    settings=(*ON_TWENTY, ON_CODE),
    claims=(
        *_claims(ON_TWENTY[0], SCE, "SCE 0.01", "SCE 0.03", "SCE 0.3"),
        *(one for setting in ON_TWENTY[1:] for one in _claims(setting, SCE)),
        *(early(setting, AFTER_50) for setting in (ON_TWENTY[0], ON_TWENTY[2])),
        early(ON_CODE, PG19_AFTER_50, unless=no_second_books),
    ),
    follows=True,
)
STUDY = Study(
    title=WHEN.title,
    parts=(WHEN.part(), TWENTY_TABLE.part("parts/twenty")),
    lead=("Three starts of CLEX on the books of all tables, and other settings on twenty held-out books.",),
    takes=("seeds", "steps", "data"),
)
