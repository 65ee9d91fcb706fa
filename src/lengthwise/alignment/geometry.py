"""Which rows of the two views form pairs.

A sample is a stretch of L + e tokens. The *long* view is its first L tokens, the *short* view its last L
tokens, so that both views hold the tokens e .. L-1 of the stretch, and at each of these *long* has e tokens
more of context (Sec. 4.2):

    stretch   0 . . . e . . . . . . L-1 . . . L+e-1
    long      0 . . . e . . . . . . L-1
    short             0 . . . . . L-1-e . . . L-1

Row r of short faces row r + e of long: the same token seen with two contexts. A view's row r has read r + 1
tokens; its prediction is about the token after it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lengthwise.alignment.divergences import NO_LABEL
from lengthwise.errors import require, require_integer


@dataclass(frozen=True)
class PairGeometry:
    """The rows of a long and a short view that are at the same token.

    Paired rows are `short[min_context : length - offset]` and `long[min_context + offset : length]`, one to one in
    this order. Their number is `paired_positions`.

    The two views need not be cut out of one stretch: any two views whose rows face each other in this way
    fit, and `offset = 0` means two views of the same tokens. A short view that ends with the long one, so
    has only length - offset rows, fits too: no row beyond them is ever paired.

    Args:
        length: L, the rows of each view, at least 1.
        offset: e, the tokens before the common ones that only the long view has, in 0 .. length.
        min_context: rows of short left out at its start, because they have little context. The default,
            length // 2, keeps both contexts within [L/2, L] (Appendix D), over which Eq. 2 averages; 0 pairs the
            whole common part (Sec. 4.2).

    Raises:
        UsageError: a value outside its range.
    """

    length: int
    offset: int
    min_context: int | None = None

    def __post_init__(self) -> None:
        require_integer("length", self.length, low=1)
        require_integer("offset", self.offset, low=0, high=self.length)
        if self.min_context is None:
            object.__setattr__(self, "min_context", self.length // 2)
        require_integer("min_context", self.min_context, low=0, high=self.length)

    @property
    def paired_positions(self) -> int:
        """Paired rows in one sample; 0 when the views share no row with enough context."""
        assert self.min_context is not None
        return max(0, self.length - self.offset - self.min_context)

    @property
    def long_rows(self) -> slice:
        """The paired rows of the long view."""
        return slice(self.length - self.paired_positions, self.length)

    @property
    def short_rows(self) -> slice:
        """The paired rows of the short view; its i-th row faces the i-th of `long_rows`."""
        stop = self.length - self.offset
        return slice(stop - self.paired_positions, stop)

    @property
    def stretch_length(self) -> int:
        """Tokens that one sample needs if both views are cut out of one stretch: length + offset."""
        return self.length + self.offset

    @property
    def long_tokens(self) -> slice:
        """The long view's tokens in a stretch of `stretch_length`: its first L."""
        return slice(0, self.length)

    @property
    def short_tokens(self) -> slice:
        """The short view's tokens in such a stretch: its last L."""
        return slice(self.offset, self.stretch_length)


def next_token_labels(tokens: Tensor) -> Tensor:
    """Labels [..., L] aligned with the rows of one view [..., L]: row r gets token r + 1.

    The last row has -100, because its next token lies outside the view, and so has a token that is none's target.

    UsageError unless the tokens are signed whole numbers: others cannot hold -100.
    """
    signed = tokens.dtype in (torch.int16, torch.int32, torch.int64) and tokens.ndim > 0
    require(signed, f"the tokens are {list(tokens.shape)} {tokens.dtype}", "ids [..., L], int64 or int32")
    labels = torch.full_like(tokens, NO_LABEL)
    labels[..., :-1] = tokens[..., 1:]
    return labels
