"""Shortcuts of reading, each proven on a model to give what one plain pass gives, up to a number of tokens.

A shortcut that is not proven is not taken: the texts are read plainly, and a warning says so once, with the reason.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from lengthwise.errors import LengthwiseError, is_out_of_memory, reason

logger = logging.getLogger(__name__)

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 6e-2}
"""Largest difference allowed between two ways to read the same tokens, as a share of the largest hidden value."""

_ROWS = 4096


@dataclass
class Proofs:
    """What is known of the shortcuts of one model."""

    up_to: dict[str, int] = field(default_factory=dict)
    """Over how many tokens each shortcut was proven; 0 if it failed."""
    padded: dict[str, int] = field(default_factory=dict)
    """The most padding of a row in that proof."""
    blind_up_to: int = 0
    """The longest text whose beginning was seen not to depend on its end."""

    def failed(self, shortcut: str) -> bool:
        """Whether the shortcut was given up."""
        return self.up_to.get(shortcut) == 0

    def covers(self, shortcut: str, tokens: int, padding: int = 0) -> bool:
        """Whether it was proven over at least so many tokens, with at least so much padding among them."""
        return tokens <= self.up_to.get(shortcut, 0) and padding <= self.padded.get(shortcut, 0)

    def refuse(self, shortcut: str, why: str, *, name: str) -> None:
        """Give a shortcut up, and say so. `shortcut` says what is not done, `name` is the model's."""
        self.up_to[shortcut] = 0
        logger.warning("%s: no %s, which is slower: %s", name, shortcut, why)

    def take(
        self,
        shortcut: str,
        tokens: int,
        fast: Callable[[], Tensor],
        plain: Callable[[], Tensor],
        *,
        name: str,
        padding: int = 0,
    ) -> bool:
        """Run `fast`, and say whether what it gave may be used.

        Over more `tokens` or `padding` than ever before, it may if it is what `plain` gives, up to rounding. `fast`
        returns what is compared, and keeps the rest for the caller.

        Where `fast` raises a `LengthwiseError`, or the model's or its cache's code raises anything, the shortcut is
        refused for that reason. Other errors propagate: those of `plain`, bugs of this package, and exhausted memory,
        which a smaller batch mends.
        """
        if self.failed(shortcut):
            return False
        try:
            found = fast()
        # A model may fail in many ways under masks, positions and caches that it was not made for.
        except Exception as error:
            if is_out_of_memory(error) or is_bug(error):
                raise
            self.refuse(shortcut, reason(error), name=name)
            return False
        new = not self.covers(shortcut, tokens, padding)
        if new and (why := differs(found, plain())) is not None:
            self.refuse(shortcut, why, name=name)
            return False
        if new:
            # Of this proof alone: more tokens with less padding are another one.
            self.up_to[shortcut], self.padded[shortcut] = tokens, padding
        return True


def is_bug(error: Exception) -> bool:
    """Whether this package raised it, and not as a sentence for the user."""
    *_, (innermost, _) = traceback.walk_tb(error.__traceback__)
    package = __name__.partition(".")[0] + "."
    return not isinstance(error, LengthwiseError) and innermost.f_globals["__name__"].startswith(package)


def differs(found: Tensor, expected: Tensor) -> str | None:
    """`it differs by ...` where two readings of the same tokens [T, ...] differ by more than rounding."""
    assert found.shape == expected.shape
    # A few rows at a time: in float64, the hidden states of a long text are large.
    pairs = zip(found.split(_ROWS), expected.split(_ROWS), strict=True)
    sizes = [(one.double().sub(other).abs().max(), other.double().abs().max()) for one, other in pairs]
    difference, largest = torch.tensor(sizes).amax(dim=0).tolist()
    allowed = TOLERANCE.get(found.dtype, 1e-3) * largest
    # NaN is a difference.
    if difference <= allowed:
        return None
    return f"it differs by {difference:.3g} where {allowed:.1g} is rounding"
