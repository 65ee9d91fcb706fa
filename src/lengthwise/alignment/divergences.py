"""The objective's settings, and the table of its divergences. Needs no torch.

To add a divergence, add its entry here and its formula in `formulas.py`. All else reads these two tables: checks,
`lengthwise ls methods`, the fused objective and its tests.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, Self, get_args

from pydantic import model_validator

from lengthwise.errors import UsageError, require_known
from lengthwise.settings import NotNegative, Settings

if TYPE_CHECKING:
    from torch import Tensor

NO_LABEL = -100
"""The label of a row without a target, as in transformers."""

Detach = Literal["none", "long", "short", "both-targets"]
"""What the divergence sends no gradient to. Its value, and the gradients of the cross entropies, do not change.

"long" and "short" are one side as a whole: its hidden states and its path into the head. "both-targets" is the
first argument of each of the two terms of a symmetric divergence, which leaves the gradient p - q for the logits
of the long view and q - p for those of the short view.
"""


_NO_TARGETS = {"both-targets": "it is not a sum of two terms with a target each"}
_ONE_TEACHER = {
    "none": "the detached view is the teacher, so one view must be detached",
    "both-targets": "the detached view is the teacher, so it is one of the two",
}


@dataclass(frozen=True)
class Divergence:
    """What users and the objective need to know of a divergence; p is the long view's softmax, q the short one's.

    Its gradient with respect to the logits of a side is p * (k + s - <p, s>) - k * q, with s = sign * source, p the
    side's own softmax and q its partner's. The pairs are (long, short). A side with k = 0 and sign = 0 gets no
    gradient.
    """

    what: str
    """One sentence for users, in nats per paired position."""
    source: str
    """ "own" and "other" are a side's own logits and its partner's; for both sides "long" is z_long and "difference"
    z_long - z_short. Any other name is a score in `formulas.SCORES`."""
    k: tuple[int, int]
    sign: tuple[int, int]
    refused: Mapping[str, str] = field(default_factory=lambda: _NO_TARGETS)
    """Values of `detach` under which it has no meaning of its own, and why."""
    has_entropy: bool = False
    """Whether it contains H(p) + H(q), so that training on it sharpens."""

    @property
    def detach(self) -> tuple[Detach, ...]:
        """The values of `detach` under which it has a meaning of its own."""
        return tuple(each for each in get_args(Detach) if each not in self.refused)

    def keep(self, long: bool, short: bool) -> Divergence:
        """The same with the gradient of one side or both left out."""
        (k, other_k), (sign, other_sign) = self.k, self.sign
        return replace(self, k=(k * long, other_k * short), sign=(sign * long, other_sign * short))


DIVERGENCES: dict[str, Divergence] = {
    "sce": Divergence(
        "H(p,q) + H(q,p), the paper's Eq. 1; mostly entropy, so training on it sharpens",
        "other",
        k=(1, 1),
        sign=(-1, -1),
        refused={},
        has_entropy=True,
    ),
    "printed_sce": Divergence(
        "H(q,p) + H(p), as Appendix D prints Eq. 1: one direction and the long view's entropy",
        "long",
        k=(1, 0),
        sign=(-1, -1),
        has_entropy=True,
    ),
    "jeffreys": Divergence(
        "KL(p||q) + KL(q||p), the disagreement alone; aligns without sharpening",
        "difference",
        k=(1, 1),
        sign=(1, -1),
        refused={},
    ),
    "js": Divergence(
        "Jensen-Shannon divergence: like jeffreys / 8 when small, bounded by log 2",
        "mixture",
        k=(0, 0),
        sign=(1, 1),
    ),
    "kl": Divergence(
        "KL(teacher || student), the detached view being the teacher: the student covers the teacher's mass",
        "own",
        k=(1, 1),
        sign=(0, 0),
        refused=_ONE_TEACHER,
    ),
    "reverse_kl": Divergence(
        "KL(student || teacher), the detached view being the teacher: the student seeks the teacher's modes",
        "difference",
        k=(0, 0),
        sign=(1, -1),
        refused=_ONE_TEACHER,
    ),
    "entropy": Divergence(
        "H(p) + H(q): the control that only sharpens",
        "own",
        k=(0, 0),
        sign=(-1, -1),
        has_entropy=True,
    ),
}


class Objective(Settings):
    """Eq. 4: cross entropy + alpha * divergence of the two views of the same tokens.

    The cross entropy is (CE_long + CE_short) / 2, or with `ce_on` that of one view. The divergence is taken at the
    paired positions.

    Raises:
        UsageError: a value out of its range, or a divergence that has no meaning with this detach.
    """

    alpha: NotNegative = 0.0
    """Weight of the divergence. 0 is plain CE on the same windows; the paper uses 0.1 to 0.3 with sce."""
    divergence: str = "sce"
    """A divergence of `lengthwise ls methods`; sce is the paper's (Eq. 1)."""
    detach: Detach = "none"
    """What the divergence sends no gradient to; see `Detach`."""
    ce_on: Literal["both", "long", "short"] = "both"
    """The view whose cross entropy is trained on: both (their mean), long or short."""

    @model_validator(mode="after")
    def _has_a_meaning(self) -> Self:
        require_known(self.divergence, DIVERGENCES, "unknown divergence")
        entry = DIVERGENCES[self.divergence]
        if self.detach not in entry.detach:
            raise UsageError(
                f"divergence {self.divergence!r} with detach {self.detach!r}: {entry.refused[self.detach]}",
                expected="detach as one of: " + ", ".join(entry.detach),
            )
        return self

    @property
    def rule(self) -> Divergence:
        """The divergence by whose gradient the loss is trained: without that of a side that is detached."""
        if self.detach == "both-targets":
            # p - q, as of any divergence whose targets are fixed.
            return DIVERGENCES["kl"]
        return DIVERGENCES[self.divergence].keep(self.detach != "long", self.detach != "short")

    @property
    def ce_shares(self) -> tuple[float, float]:
        """The factors of CE_long and CE_short in the loss."""
        return {"both": (0.5, 0.5), "long": (1.0, 0.0), "short": (0.0, 1.0)}[self.ce_on]

    @property
    def reads(self) -> tuple[bool, bool]:
        """Whether the long and the short view have a part in the loss."""
        return self.alpha > 0 or self.ce_on != "short", self.alpha > 0 or self.ce_on != "long"

    @property
    def trains(self) -> tuple[bool, bool]:
        """Whether the logits of the long and of the short view get a gradient: from CE or from the divergence."""
        rule, (long, short) = self.rule, self.ce_shares
        by_long, by_short = (self.alpha > 0 and any(side) for side in zip(rule.k, rule.sign, strict=True))
        return long > 0 or by_long, short > 0 or by_short

    def trained_cross_entropy(self, long: Tensor, short: Tensor) -> Tensor:
        """The cross entropy of the loss from those of the two views; a view left out cannot spoil it with NaN."""
        if self.ce_on == "both":
            return (long + short) / 2
        return long if self.ce_on == "long" else short

    @property
    def sharpening_limit(self) -> float:
        """The alpha from which the entropy in the term has no finite optimum; infinite for a term without entropy.

        Take a calibrated model and let only its inverse temperature b move. Its cross entropy is quadratic in
        b - 1 and its entropy falls linearly, both with the variance of the logits as the factor. With half a
        cross entropy and alpha entropies on each side the two balance at b = 1/(1 - 2 alpha): 1.25 at alpha =
        0.1, 2.5 at 0.3, and nowhere from 0.5 on. With "both-targets" no entropy gradient is left.

        With CE on one view this holds while both views have one temperature: a whole cross entropy against alpha
        (H(p) + H(q)). But only the divergence holds the other view's. If the two part, "sce" balances at
        1/(1 - 3 alpha) for the trained view and at twice that for the other, so nowhere from 1/3 on; "entropy"
        balances nowhere at all. If the untrained view is detached it does not move, and the limit is that of both.
        """
        if not DIVERGENCES[self.divergence].has_entropy or self.detach == "both-targets":
            return math.inf
        untrained = {"both": None, "long": "short", "short": "long"}[self.ce_on]
        if untrained in (None, self.detach):
            return 1 / 2
        # Cross entropies between the views hold the untrained one.
        return 1 / 3 if any(DIVERGENCES[self.divergence].k) else 0.0

    def warn_of_sharpening(self) -> None:
        """Warn of an alpha of `sharpening_limit` or more."""
        limit = self.sharpening_limit
        if self.alpha == 0 or self.alpha < limit:
            return
        warnings.warn(
            f"alpha = {self.alpha:g} with divergence {self.divergence!r} and ce_on {self.ce_on!r}: the term contains "
            f"the entropy of both predictions, and from alpha = {limit:.3g} on no temperature balances it. Expect "
            "ever sharper, overconfident predictions. Use alpha of 0.1 to 0.3 with the cross entropies of both "
            "views, or divergence 'jeffreys', which aligns without sharpening.",
            stacklevel=3,
        )
