"""How the paper adjusts a model before it aligns it, and the arms that every table has."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from lengthwise.training.recipe import shipped_recipes
from lengthwise.yaml_text import read_yaml
from lengthwise_studies.arms import Arm
from lengthwise_studies.paper.sizes import Size

PLAIN, SCE, ENTROPY, JEFFREYS = "plain CE", "SCE 0.1", "entropy 0.1", "Jeffreys 10"
UNTRAINED = "untrained"


@dataclass(frozen=True, kw_only=True)
class Adjustment:
    """One way to extend a model, by the paper's name; the recipe that trains it names the source of each value.

    The untrained arm has its rope method. `longer`: windows of 2T (Sec. 5.2) instead of T (Sec. 5.1). `own_rate`: an
    adapter with the size's learning rate for one, where it has one. `ours`: not one of the paper's.
    """

    name: str
    recipe: str
    method: str | None
    longer: bool = False
    own_rate: bool = False
    ours: bool = False

    def window(self, size: Size) -> int:
        """L: tokens of a training window."""
        return 2 * size.window if self.longer else size.window

    def factor(self, size: Size) -> float:
        """How many times T the extension reaches."""
        return 2 if self.longer else size.factor

    def changes(self, size: Size, corpus: str) -> tuple[str, ...]:
        """What the recipe needs at this scale."""
        shipped, factor = _shipped(self.recipe), self.factor(size)
        changes = {
            "data.corpus": corpus,
            "length": self.window(size),
            "steps": size.steps,
            "batch.size": size.batch,
            "batch.micro": "null" if size.micro is None else size.micro,
            "save_every": size.steps,
        }
        if self.method is None:
            changes["extend"] = "null"
        else:
            changes["extend.method"] = self.method
            changes |= {"extend.factor": factor, "extend.original_length": size.trained}
        if "positions" in shipped:
            changes["positions.target_length"] = round(factor * size.trained)
        if "quantize" in shipped and not size.quantized:
            changes["quantize"] = "null"
        rate = () if size.adapter_rate is None else (f"optimizer.learning_rate={size.adapter_rate:g}",)
        plain = (f"{name}={value}" for name, value in changes.items())
        return (*plain, *size.changes, *(rate if self.own_rate else ()))


CLEX = Adjustment(name="CLEX", recipe="clex", method="clex")
EABF = Adjustment(name="EABF", recipe="eabf", method="eabf", longer=True)
LONGQLORA = Adjustment(name="LongQLoRA", recipe="longqlora", method="pi", longer=True)
LORA = replace(LONGQLORA, own_rate=True)
CREAM = Adjustment(name="CREAM", recipe="cream", method="pi")
CREAM_EABF = Adjustment(name="CREAM on EABF", recipe="cream", method="eabf")
RAW = Adjustment(name="no adjustment", recipe="eabf", method=None, longer=True)
"""Plain fine-tuning: the recipe of EABF without its extension."""


def term(name: str, divergence: str, alpha: float, *more: str, question: str = "") -> Arm:
    """An arm with another weighted divergence, on the same windows and offsets."""
    return Arm(name, question, (f"objective.divergence={divergence}", f"objective.alpha={alpha}", *more))


def weights(*alphas: float) -> tuple[Arm, ...]:
    """SCE at other weights."""
    return tuple(term(f"SCE {alpha:g}", "sce", alpha) for alpha in alphas)


CONTROLLED = (
    Arm(name=UNTRAINED),
    term(PLAIN, "sce", 0.0),
    term(SCE, "sce", 0.1),
    term(ENTROPY, "entropy", 0.1),
    term(JEFFREYS, "jeffreys", 10.0),
)
"""The extension alone; plain CE, the baseline; the paper's term at its lower weight; its two parts as controls.

The entropy: is SCE more than sharpening? The disagreement alone is weighted to matter.
"""


@lru_cache
def _shipped(name: str) -> dict[str, Any]:
    return dict(read_yaml(shipped_recipes()[name]))
