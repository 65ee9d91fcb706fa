"""The objective's settings, and the table of its divergences. Needs no torch.

To add a divergence, add its entry here and its formula in `formulas.py`. All else reads these two tables: checks,
`lengthwise ls methods`, the fused objective and its tests.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict, get_args

from lengthwise.errors import UsageError, nearest

DivergenceName = Literal["sce", "jeffreys", "js", "kl", "entropy"]

Detach = Literal["none", "long", "short", "both-targets"]
"""What the divergence sends no gradient to. Its value, and the gradients of the cross entropies, do not change.

"long" and "short" are one side as a whole: its hidden states and its path into the head. "both-targets" is the
first argument of each of the two terms of a symmetric divergence, which leaves the gradient p - q for the logits
of the long view and q - p for those of the short view.
"""


@dataclass(frozen=True)
class Rule:
    """The gradient of a divergence with respect to the logits: p * (k + s - <p, s>) - k * q, with s = sign * source.

    p is the side's own softmax and q its partner's. The pairs are (long, short). A side with k = 0 and sign = 0
    gets no gradient.
    """

    source: str
    """ "own" and "other" are a side's own logits and its partner's, "difference" is z_long - z_short for both
    sides; any other name is a score in `formulas.SCORES`."""
    k: tuple[int, int]
    sign: tuple[int, int]

    def keep(self, long: bool, short: bool) -> Rule:
        """The same with the gradient of one side or both left out."""
        return Rule(
            self.source, (self.k[0] * long, self.k[1] * short), (self.sign[0] * long, self.sign[1] * short)
        )


# p - q: both sides have a fixed target.
TARGETS_FIXED = Rule("own", k=(1, 1), sign=(0, 0))


@dataclass(frozen=True)
class Divergence:
    """What users and the objective need to know of a divergence; p is the long view's softmax, q the short one's."""

    what: str
    """One sentence for users, in nats per paired position."""
    rule: Rule
    detach: tuple[Detach, ...] = ("none", "long", "short")
    """The values under which it has a meaning of its own."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Why it has none under the others."""
    has_entropy: bool = False
    """Whether it contains H(p) + H(q), so that training on it sharpens."""


_ONE_TEACHER = "kl is the divergence from a detached teacher, so one side must be detached"

DIVERGENCES: dict[str, Divergence] = {
    "sce": Divergence(
        "H(p,q) + H(q,p), the paper's Eq. 1; mostly entropy, so training on it sharpens",
        Rule("other", k=(1, 1), sign=(-1, -1)),
        detach=get_args(Detach),
        has_entropy=True,
    ),
    "jeffreys": Divergence(
        "KL(p||q) + KL(q||p), the disagreement alone; aligns without sharpening",
        Rule("difference", k=(1, 1), sign=(1, -1)),
        detach=get_args(Detach),
    ),
    "js": Divergence(
        "Jensen-Shannon divergence: like jeffreys / 8 when small, bounded by log 2",
        Rule("mixture", k=(0, 0), sign=(1, 1)),
        refused={"both-targets": "with both targets held fixed Jensen-Shannon has no gradient"},
    ),
    "kl": Divergence(
        "KL from a detached view, the teacher, to the other",
        TARGETS_FIXED,
        detach=("long", "short"),
        refused={"none": _ONE_TEACHER, "both-targets": _ONE_TEACHER},
    ),
    "entropy": Divergence(
        "H(p) + H(q): the control that only sharpens",
        Rule("own", k=(0, 0), sign=(-1, -1)),
        refused={"both-targets": "an entropy has no target to detach"},
        has_entropy=True,
    ),
}


def gradient_rule(divergence: str, detach: str) -> Rule:
    """The rule of `divergence` with what `detach` leaves of it."""
    if detach == "both-targets":
        return TARGETS_FIXED
    return DIVERGENCES[divergence].rule.keep(detach != "long", detach != "short")


class SharpeningWarning(UserWarning):
    """The weight is so large that the entropy in the term has no finite optimum to stop at."""


@dataclass(frozen=True, kw_only=True)
class Objective:
    """The objective of Eq. 4: (CE_long + CE_short) / 2 + alpha * divergence, over the paired positions.

    Raises:
        UsageError: an unknown divergence or detach, a pair of them without meaning, alpha negative or not finite.
    """

    alpha: float
    """Weight of the divergence, 0 or more. The paper uses 0.1 to 0.3 with "sce"."""
    divergence: DivergenceName = "sce"
    """A name in `DIVERGENCES` (`lengthwise ls methods`); "sce" is the paper's (Eq. 1)."""
    detach: Detach = "none"
    """What the divergence sends no gradient to; see `Detach`."""
    min_context: int | None = None
    """Least context of a paired token in the short view; None is that of the geometry (L // 2, Appendix D)."""

    def __post_init__(self) -> None:
        self.check()

    def check(self) -> None:
        """Refuse what cannot be trained on."""
        if self.divergence not in DIVERGENCES:
            raise UsageError(
                f"unknown divergence {self.divergence!r}", expected=nearest(str(self.divergence), DIVERGENCES)
            )
        if self.detach not in get_args(Detach):
            raise UsageError(
                f"unknown detach {self.detach!r}", expected=nearest(str(self.detach), get_args(Detach))
            )
        entry = DIVERGENCES[self.divergence]
        if self.detach not in entry.detach:
            raise UsageError(
                f"divergence {self.divergence!r} with detach {self.detach!r}: {entry.refused[self.detach]}",
                expected="detach as one of: " + ", ".join(entry.detach),
            )
        if not is_number(self.alpha) or self.alpha < 0:
            raise UsageError(
                f"alpha is {self.alpha!r}", expected="a finite number, 0 or more (the paper uses 0.1 to 0.3)"
            )

    @property
    def rule(self) -> Rule:
        """The gradient rule of the divergence, less what is detached."""
        return gradient_rule(self.divergence, self.detach)

    def warn_of_sharpening(self) -> None:
        """Warn, once a process for each setting, of an alpha at which the entropy in the term outweighs CE.

        Take a calibrated model and let only its inverse temperature b move. Its cross entropy is quadratic in
        b - 1 and its entropy falls linearly, both with the variance of the logits as the factor. With half a
        cross entropy and alpha entropies on each side the two balance at b = 1/(1 - 2 alpha): 1.25 at alpha =
        0.1, 2.5 at 0.3, and nowhere from 0.5 on. With "both-targets" no entropy gradient is left, so there is
        nothing to warn of.
        """
        if DIVERGENCES[self.divergence].has_entropy and self.detach != "both-targets" and self.alpha >= 0.5:
            _warn_of_sharpening(self.divergence, self.alpha)


class ObjectiveTerms(TypedDict, total=False):
    """`Objective` by keywords, as the public functions take it in place of `objective`."""

    alpha: float
    divergence: DivergenceName
    detach: Detach


def as_objective(objective: Objective | None, terms: Mapping[str, Any]) -> Objective:
    """The objective, or the one that `terms` (the keywords of `Objective`) describe.

    Raises:
        UsageError: both or neither are given; as `Objective`.
    """
    if objective is None and "alpha" in terms:
        return Objective(**terms)
    if objective is None or terms:
        raise UsageError(
            f"objective is {objective!r}, and alpha, divergence, detach are {dict(terms)!r}",
            expected="either an Objective or alpha (with divergence, detach)",
        )
    return objective


@functools.cache
def _warn_of_sharpening(divergence: str, alpha: float) -> None:
    warnings.warn(
        f"alpha = {alpha:g} with divergence {divergence!r}: the term contains the entropy of both "
        "predictions. A calibrated model that follows it settles at the inverse temperature 1/(1 - 2 alpha), "
        "which is finite only below alpha = 0.5. Expect ever sharper, overconfident predictions. "
        "Use alpha of 0.1 to 0.3, or divergence 'jeffreys', which aligns without sharpening.",
        SharpeningWarning,
        stacklevel=4,
    )


def is_number(value: object) -> bool:
    """Whether `value` is a finite int or float, and no bool."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
