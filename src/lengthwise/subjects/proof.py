"""The shortcuts that are proven on a model to give what plain passes give, and what every pass must be.

A shortcut that is not proven, up to a number of tokens, is not taken: the texts are read plainly, and a warning says
so once, with the reason.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lengthwise.checkpoints.hidden import running
from lengthwise.checkpoints.probe import differs
from lengthwise.errors import UsageError, is_bug, is_out_of_memory, reason

logger = logging.getLogger(__name__)

_AGAIN = frozenset(4**power for power in range(1, 20))
"""After how many uses a shortcut is proven again: experts may be full with some texts alone."""


@dataclass
class Proofs:
    """What is known of the shortcuts of one model."""

    up_to: dict[str, int] = field(default_factory=dict)
    """Over how many tokens each shortcut was proven; 0 if it failed."""
    padded: dict[str, int] = field(default_factory=dict)
    """The most padding of a row in that proof."""
    taken: Counter[str] = field(default_factory=Counter)
    """How often each shortcut was taken."""
    blind_up_to: int = 0
    """The longest text whose beginning was seen not to depend on its end."""
    blind_behind: tuple[int, int] = 0, 0
    """The most tokens of a piece that was read behind a cache, of which the same was seen, and where it ended."""
    never: str | None = None
    """Why no shortcut gives what a plain pass gives, though the difference may look like that of 16 bits."""

    def failed(self, shortcut: str) -> bool:
        """Whether the shortcut was given up."""
        return self.up_to.get(shortcut) == 0

    def covers(self, shortcut: str, tokens: int, padding: int = 0) -> bool:
        """Whether it needs no proof over so many tokens, with so much padding among them."""
        return self.taken[shortcut] not in _AGAIN and self._knows(shortcut, tokens, padding)

    def _knows(self, shortcut: str, tokens: int, padding: int) -> bool:
        return tokens <= self.up_to.get(shortcut, 0) and padding <= self.padded.get(shortcut, 0)

    def refuse(self, shortcut: str, why: str, *, name: str) -> None:
        """Give a shortcut up, and say so. `shortcut` says what is not done, `name` is the model's."""
        self.up_to[shortcut] = 0
        logger.warning("%s: slower, without %s: %s", name, shortcut, why)

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
        if self.never is not None and not self.failed(shortcut):
            self.refuse(shortcut, self.never, name=name)
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
        known = self._knows(shortcut, tokens, padding)
        if not self.covers(shortcut, tokens, padding) and (why := differs(found, plain())) is not None:
            if known:
                raise UsageError(
                    f"{name} gives other numbers by {shortcut}, with some texts alone: it differs {why}",
                    expected="a model that reads a text alike, whatever is read with it",
                    fix="use --batch-size 1, if it is for texts side by side",
                )
            self.refuse(shortcut, f"it differs {why}", name=name)
            return False
        if not known:
            # Of this proof alone: more tokens with less padding are another one.
            self.up_to[shortcut], self.padded[shortcut] = tokens, padding
        self.taken[shortcut] += 1
        return True


@contextmanager
def one_pass(name: str, tokens: int, through: str = "") -> Iterator[None]:
    """A forward pass over `tokens` tokens that draws no random numbers, `through` a cache or without.

    Raises:
        UsageError: it drew some (what is drawn and changes nothing is refused, too), or the model's own code fails.
    """
    expected, fix, before = "a model that reads texts of any length", None, _random_states()
    if through:
        expected = "a cache that its layers can continue"
        fix = "leave out what asks for a cache (kv_cache, cache, read), or name another"
    with running(name, tokens, through=through, expected=expected, fix=fix):
        yield
    if _random_states() != before:
        raise UsageError(
            f"{name} draws random numbers when it reads {tokens:,} tokens, and does not say the same twice",
            expected="a model that gives the same numbers each time (no hashing by chance, no dropout)",
            fix="use shorter texts, if it draws only beyond a length, or another model",
        )


def _random_states() -> list[Any]:
    """Of every generator that a module uses unless it makes its own."""
    legacy: Any = np.random.get_state()
    _, keys, place, *_ = legacy
    on_gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else ()
    torchs = [each.numpy().tobytes() for each in (torch.get_rng_state(), *on_gpus)]
    return [random.getstate(), keys.tobytes(), place, *torchs]
