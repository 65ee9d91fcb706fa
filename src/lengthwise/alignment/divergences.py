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
from typing import TYPE_CHECKING, Any, Literal, TypedDict, get_args

from lengthwise.errors import UsageError, nearest

if TYPE_CHECKING:
    from torch import Tensor

DivergenceName = Literal[
    "sce",
    "jeffreys",
    "js",
    "kl",
    "reverse_kl",
    "entropy",
]

Detach = Literal["none", "long", "short", "both-targets"]
"""What the divergence sends no gradient to. Its value, and the gradients of the cross entropies, do not change.

"long" and "short" are one side as a whole: its hidden states and its path into the head. "both-targets" is the
first argument of each of the two terms of a symmetric divergence, which leaves the gradient p - q for the logits
of the long view and q - p for those of the short view.
"""

CrossEntropyOn = Literal["both", "long", "short"]
"""The views whose cross entropy is trained on."""


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


_ONE_TEACHER = {
    "none": "the detached view is the teacher, so one view must be detached",
    "both-targets": "the detached view is the teacher, so it is one of the two",
}

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
        "KL(teacher || student), the detached view being the teacher: the student covers the teacher's mass",
        TARGETS_FIXED,
        detach=("long", "short"),
        refused=_ONE_TEACHER,
    ),
    "reverse_kl": Divergence(
        "KL(student || teacher), the detached view being the teacher: the student seeks the teacher's modes",
        Rule("difference", k=(0, 0), sign=(1, -1)),
        detach=("long", "short"),
        refused=_ONE_TEACHER,
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
    """The objective of Eq. 4: cross entropy + alpha * divergence, the latter over the paired positions.

    The cross entropy is (CE_long + CE_short) / 2, or with `ce_on` that of one view.

    Raises:
        UsageError: an unknown divergence, detach or ce_on, a divergence and detach without meaning, alpha negative
            or not finite.
    """

    alpha: float
    """Weight of the divergence, 0 or more. The paper uses 0.1 to 0.3 with "sce"."""
    divergence: DivergenceName = "sce"
    """A name in `DIVERGENCES` (`lengthwise ls methods`); "sce" is the paper's (Eq. 1)."""
    detach: Detach = "none"
    """What the divergence sends no gradient to; see `Detach`."""
    min_context: int | None = None
    """Least context of a paired token in the short view; None is that of the geometry (L // 2, Appendix D)."""
    ce_on: CrossEntropyOn = "both"
    """The view whose cross entropy is trained on: both (their mean), long or short."""

    def __post_init__(self) -> None:
        self.check()

    def check(self) -> None:
        """Refuse what cannot be trained on."""
        for name, value, known in (
            ("divergence", self.divergence, DIVERGENCES),
            ("detach", self.detach, get_args(Detach)),
            ("ce_on", self.ce_on, get_args(CrossEntropyOn)),
        ):
            if value not in known:
                raise UsageError(f"unknown {name} {value!r}", expected=nearest(str(value), known))
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

    @property
    def ce_shares(self) -> tuple[float, float]:
        """The factors of CE_long and CE_short in the loss."""
        return {"both": (0.5, 0.5), "long": (1.0, 0.0), "short": (0.0, 1.0)}[self.ce_on]

    @property
    def reads(self) -> tuple[bool, bool]:
        """Whether the long and the short view have a part in the loss."""
        both = self.alpha > 0
        return both or self.ce_on != "short", both or self.ce_on != "long"

    @property
    def trains(self) -> tuple[bool, bool]:
        """Whether the logits of the long and of the short view get a gradient: from CE or from the divergence."""
        rule, (long, short) = self.rule, self.ce_shares
        by_divergence = [
            self.alpha > 0 and (k != 0 or sign != 0) for k, sign in zip(rule.k, rule.sign, strict=True)
        ]
        return long > 0 or by_divergence[0], short > 0 or by_divergence[1]

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
        return 1 / 3 if any(DIVERGENCES[self.divergence].rule.k) else 0.0

    def warn_of_sharpening(self) -> None:
        """Warn, once a process for each setting, of an alpha of `sharpening_limit` or more."""
        limit = self.sharpening_limit
        if self.alpha > 0 and self.alpha >= limit:
            _warn_of_sharpening(self.divergence, self.alpha, self.ce_on, limit)


class OtherTerms(TypedDict, total=False):
    """The fields of `Objective` beside alpha that the public functions take."""

    divergence: DivergenceName
    detach: Detach
    ce_on: CrossEntropyOn


class ObjectiveTerms(OtherTerms, total=False):
    """`Objective` by keywords, as the public functions take it in place of `objective`."""

    alpha: float


def as_objective(objective: Objective | None, terms: Mapping[str, Any]) -> Objective:
    """The objective, or the one that `terms` (the keywords of `Objective`) describe.

    Raises:
        UsageError: both or neither are given; as `Objective`.
    """
    if objective is None and "alpha" in terms:
        return Objective(**terms)
    if objective is None or terms:
        raise UsageError(
            f"objective is {objective!r}, and the other terms are {dict(terms)!r}",
            expected="either an Objective or alpha (with other fields of it)",
        )
    return objective


@functools.cache
def _warn_of_sharpening(divergence: str, alpha: float, ce_on: str, limit: float) -> None:
    if limit == 1 / 2:
        settles = "at the inverse temperature 1/(1 - 2 alpha), which is finite only below alpha = 0.5"
    elif limit > 0:
        settles = (
            "at the inverse temperatures 1/(1 - 3 alpha) and 2/(1 - 3 alpha), finite only below alpha = 1/3"
        )
    else:
        settles = "nowhere"
    cause = "" if limit == 1 / 2 else f", and ce_on {ce_on!r} leaves one of them without a cross entropy"
    warnings.warn(
        f"alpha = {alpha:g} with divergence {divergence!r}: the term contains the entropy of both "
        f"predictions{cause}. A calibrated model that follows it settles {settles}. "
        "Expect ever sharper, overconfident predictions. Use alpha of 0.1 to 0.3 with the cross entropies of both "
        "views, or divergence 'jeffreys', which aligns without sharpening.",
        SharpeningWarning,
        stacklevel=4,
    )


def is_number(value: object) -> bool:
    """Whether `value` is a finite int or float, and no bool."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
