"""What the term costs a real model after 50 and after 200 steps, on windows that a CPU trains."""

from __future__ import annotations

from dataclasses import replace

from lengthwise_studies.paper.methods import CONTROLLED
from lengthwise_studies.paper.paper_table import PaperTable
from lengthwise_studies.paper.rebuttal import within
from lengthwise_studies.paper.sizes import SIZES, STEPS
from lengthwise_studies.paper.statements import Setting
from lengthwise_studies.real.study import ON_YARN

_SHORT = Setting(name="YaRN x4, L = T/8", adjustment=ON_YARN.adjustment, arms=CONTROLLED[:3])
_SIZE = replace(SIZES["laptop-smollm2"], lengths=(0.125, 0.25), distances=(0.0625,), samples=(8, 20, 2))
REAL_STEPS = PaperTable(
    name="real-steps",
    in_study="pretraining",
    label="SmolLM2-135M, windows of T/8",
    title="Does the cost to a real model change from 50 to 200 steps?",
    shows="SmolLM2-135M with LoRA on windows of 1,024 tokens, an eighth of its T. The paper trains for 200 steps and "
    "reports 50 too.",
    settings=(_SHORT,),
    claims=tuple(within(times, _SHORT, steps) for times in _SIZE.lengths for steps in (50, STEPS)),
    follows=True,
    sizes={
        "default": _SIZE,
        "smoke": replace(
            _SIZE,
            model="tiny-books",
            trained=128,
            window=16,
            steps=4,
            seeds=1,
            samples=(2, 2, 2),
            distances=(0.5,),
        ),
    },
)
