"""Weights of the tokens in the cross entropy: the table of weightings, and their formulas. Needs no torch.

To add a weighting, write its class (here, or in a file of its own) and its entry in `WEIGHTINGS`. All else reads the
table: checks, `lengthwise ls methods`, both forms of the objective and their tests.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Le

from lengthwise.config import validate
from lengthwise.errors import UsageError, nearest

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from lengthwise.alignment.geometry import PairGeometry


@dataclass(frozen=True)
class PairedTokens:
    """What a weighting sees of the P paired rows of B windows: tensors [B, P]."""

    weighted: Tensor
    """Where both views have the same label. All other rows have weight 1."""
    context: Tensor
    """Tokens that the long view has read, the row's own included, in the dtype of the losses."""
    loss_long: Tensor | None = None
    """Cross entropy of the label given the long view, in nats, without gradient; junk where not `weighted`."""
    loss_short: Tensor | None = None
    """The same given the short view."""

    @classmethod
    def of(
        cls,
        labels_long: Tensor,
        labels_short: Tensor,
        *,
        geometry: PairGeometry,
        ignore_index: int,
        dtype: torch.dtype,
    ) -> PairedTokens:
        """The paired rows of labels [B, L], without their losses."""
        long, short = labels_long[:, geometry.long_rows], labels_short[:, geometry.short_rows]
        context = long.new_ones(long.shape, dtype=dtype).cumsum(dim=1) + geometry.long_rows.start
        return cls((long == short) & (long != ignore_index), context)

    def at(self, index: tuple[Tensor, Tensor]) -> PairedTokens:
        """The rows `index` (samples and pairs, [n] each): tensors [n]."""
        return PairedTokens(self.weighted[index], self.context[index])

    def with_losses(self, long: Tensor, short: Tensor) -> PairedTokens:
        """The same with the losses of both views."""
        return replace(self, loss_long=long, loss_short=short)

    @property
    def gain(self) -> Tensor:
        """What the long view knows better: loss_short - loss_long, nats."""
        assert self.loss_long is not None
        assert self.loss_short is not None
        return self.loss_short - self.loss_long


@dataclass(frozen=True)
class Weighting(abc.ABC):
    """Weights of paired tokens. The fields of a subclass are its options."""

    what: ClassVar[str]
    """One sentence for users."""
    reads: ClassVar[Literal["context", "pair", "window"]]
    """What a weight depends on: "context" is no loss at all, "pair" the two losses of its own row, "window" those of
    all paired rows of its window. The fused objective takes an additional head product over the paired rows, without
    gradients, for "window" alone."""

    def __call__(self, tokens: PairedTokens) -> Tensor:
        """The weights, shaped like the tokens': 1 where they are not weighted."""
        return self.weights(tokens).where(tokens.weighted, 1.0)

    def count_capped(self, weights: Tensor, tokens: PairedTokens) -> Tensor:
        """How many weighted rows of `tokens` have a weight that is cut off, a scalar."""
        return ((weights >= self.largest) & tokens.weighted).sum(dtype=weights.dtype)

    @property
    def largest(self) -> float:
        """The weight at which it cuts off."""
        return math.inf

    @abc.abstractmethod
    def weights(self, tokens: PairedTokens) -> Tensor:
        """The weights [B, P] of the weighted rows; any value elsewhere.

        No window's weights depend on another window. Of "pair", the tensors are [n]: any rows of any windows.
        """


@dataclass(frozen=True)
class LongCE(Weighting):
    """w = min(exp(loss_short - loss_long), cap), as in LongCE (Fang et al., ICLR 2025, arXiv 2410.23771).

    The mean of w is not 1. The source takes the short context from sliding windows of 4,096 tokens.
    """

    what = "w = min(exp(loss_short - loss_long), cap): more for tokens that the long context tells (LongCE)"
    reads = "pair"
    cap: Annotated[float, Gt(0)] = 5.0
    """The largest weight."""

    def weights(self, tokens: PairedTokens) -> Tensor:
        """See `Weighting`."""
        return tokens.gain.exp().clamp(max=self.cap)

    @property
    def largest(self) -> float:
        """See `Weighting`."""
        return self.cap


@dataclass(frozen=True)
class Dense(Weighting):
    """w = floor + (1 - floor) |gain| / mean |gain| over the window, gain = loss_short - loss_long.

    The "dense" weights of Helm et al. (Findings of NAACL 2025, arXiv 2503.09202), whose lambda is `floor`. Their mean
    over a window is 1. A window whose losses are all equal has weights of 1.
    """

    what = "w = floor + (1 - floor) |loss_short - loss_long| / its mean over the window"
    reads = "window"
    floor: Annotated[float, Ge(0), Le(1)] = 0.5
    """The weight of a token on which both views agree: 1 is no weighting."""

    def weights(self, tokens: PairedTokens) -> Tensor:
        """See `Weighting`."""
        return self.floor + (1 - self.floor) * _at_mean_one(tokens.gain.abs(), tokens.weighted)


@dataclass(frozen=True)
class Sparse(Weighting):
    """w = n / m for the m of a window's n tokens with the largest |loss_short - loss_long|, 0 for the others.

    m = share * n, rounded to the nearest whole number (half up), at least 1. So w is 1 / share up to rounding, and
    its mean over a window 1. Of equal differences the earlier token comes first. The "sparse" weights of Helm et al.
    (Findings of NAACL 2025), whose kappa is `share`.
    """

    what = (
        "w = 1 / share for the share of a window with the largest |loss_short - loss_long|, 0 for the others"
    )
    reads = "window"
    share: Annotated[float, Gt(0), Le(1)] = 0.2
    """Share of the tokens that keep a weight."""

    def weights(self, tokens: PairedTokens) -> Tensor:
        """See `Weighting`."""
        gain = tokens.gain.abs().where(tokens.weighted, -1.0)
        rank = gain.argsort(dim=-1, descending=True, stable=True).argsort(dim=-1)
        n = tokens.weighted.sum(dim=-1, keepdim=True).to(gain.dtype)
        kept = (self.share * n + 0.5).floor().clamp(min=1)
        return (n / kept).where(rank < kept, 0.0)


@dataclass(frozen=True)
class ByPosition(Weighting):
    """w proportional to 1 + floor(log2(context in tokens of the long view)), at mean 1 a window.

    It looks at no loss, so it is the control that tells the effect of the other weights from that of mere position
    (after EXACT, arXiv 2605.10544, which weighs log buckets of context by their inverse frequency).
    """

    what = "w ~ 1 + floor(log2(context)), at mean 1 a window: the control for mere position"
    reads = "context"

    def weights(self, tokens: PairedTokens) -> Tensor:
        """See `Weighting`."""
        # 1 + floor(log2(c)) is the number of powers of two up to c.
        bucket = tokens.context * 0
        for power in range(32):
            bucket += tokens.context >= 2**power
        return _at_mean_one(bucket, tokens.weighted)


WEIGHTINGS: dict[str, type[Weighting] | None] = {
    "none": None,
    "longce": LongCE,
    "dense": Dense,
    "sparse": Sparse,
    "position": ByPosition,
}


def describe(name: str) -> str:
    """One sentence for users on the weighting `name` of WEIGHTINGS."""
    kind = WEIGHTINGS[name]
    return "every token counts the same" if kind is None else kind.what


def make_weighting(name: str, options: Mapping[str, Any]) -> Weighting | None:
    """The weighting `name` of WEIGHTINGS with its options; None for "none".

    Raises:
        UsageError: no such weighting, an option that it does not have, or a value out of its range.
    """
    if name not in WEIGHTINGS:
        raise UsageError(f"unknown weighting {name!r}", expected=nearest(str(name), WEIGHTINGS))
    kind = WEIGHTINGS[name]
    if kind is not None:
        return validate(kind, options, source=f"the weighting {name}")
    if options:
        raise UsageError(
            f"weighting_options are {dict(options)!r} and weighting is 'none'",
            expected="no options",
            fix="name a weighting: " + ", ".join(other for other in WEIGHTINGS if other != "none"),
        )
    return None


def _at_mean_one(values: Tensor, weighted: Tensor) -> Tensor:
    """`values` of the weighted rows, scaled to a mean of 1 in each window; 1 where all of them are 0."""
    values = values.where(weighted, 0.0)
    count, total = weighted.sum(dim=-1, keepdim=True), values.sum(dim=-1, keepdim=True)
    return (values * count / total).where(total > 0, 1.0)
