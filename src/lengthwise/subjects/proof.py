"""What a plain pass must be, and the shortcuts that are proven on a model to give what it gives.

Without this no number means anything: a pass is the same each time, and blind to later tokens. Both are looked at
where a text is read, at its length: hashing, sorting or pooling of tokens often begins beyond a length, and a model
may look ahead farther than any short text is long.

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
from lengthwise.checkpoints.probe import looks_ahead, unrepeatable
from lengthwise.errors import UsageError, is_bug, is_out_of_memory, reason

logger = logging.getLogger(__name__)

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 6e-2}
"""Largest difference allowed between two ways to read the same tokens, as a share of the largest hidden value."""

BEGINNING = 320
"""Tokens that are read again alone, at least: more than 256, which recurrent layers compute at once."""
_ROWS = 4096
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
    blind_behind: int = 0
    """The same of a piece that is read behind a cache."""

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
                    f"{name} gives other numbers by {shortcut}, with some texts alone: {why}",
                    expected="a model that reads a text alike, whatever is read with it",
                    fix="use --batch-size 1, if it is for texts side by side",
                )
            self.refuse(shortcut, why, name=name)
            return False
        if not known:
            # Of this proof alone: more tokens with less padding are another one.
            self.up_to[shortcut], self.padded[shortcut] = tokens, padding
        self.taken[shortcut] += 1
        return True


def differs(found: Tensor, expected: Tensor) -> str | None:
    """`it differs by ...` where two readings of the same tokens [T, ...] differ by more than rounding."""
    assert found.shape == expected.shape
    # A few rows at a time: in float64, the hidden states of a long text are large.
    pairs = zip(found.split(_ROWS), expected.split(_ROWS), strict=True)
    sizes = [(one.double().sub(other).abs().max(), other.double().abs().max()) for one, other in pairs]
    difference, largest = torch.tensor(sizes).amax(dim=0).tolist()
    allowed = TOLERANCE.get(found.dtype, 1e-4) * largest
    # NaN is a difference.
    if difference <= allowed:
        return None
    return f"it differs by {difference:.3g} where {allowed:.1g} is rounding"


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


def check_blind(
    ids: Tensor, rows: Tensor, run: Callable[[Tensor], Tensor], *, coarse: bool, name: str
) -> None:
    """Compare the first rows of texts with those of their beginning, which is read alone.

    `ids` are whole texts [B, T], `rows` what the head takes for them [B, T, ...], as `run` gives it in one pass.
    `coarse`: what is read at once is rounded together, so that differences as in 16 bits are none. UsageError where
    they differ by more than rounding: rows change with the tokens that follow them, or each time.
    """
    length = ids.shape[1]
    # More than half: windows and chunks end at powers of two, as lengths do. An odd number, which cuts every chunk.
    size = min(max(BEGINNING, length * 5 // 8) | 1, length - 1)
    if not size:
        return

    def first(rows: Tensor) -> Tensor:
        # What is not finite is refused where it is scored.
        found = rows[0, :size].nan_to_num(0.0, 0.0, 0.0)
        return found.bfloat16() if coarse else found

    text = ids[:1]
    if differs(first(rows), first(run(text[:, :size]))) is not None:
        # In one shape, kernels round alike.
        other = torch.cat([text[:, :size], text[:, :1].expand(1, length - size)], dim=1)
        plain = first(run(text))
        if differs(plain, first(run(other))) is not None:
            raise (looks_ahead if differs(first(run(text)), plain) is None else unrepeatable)(name, length)
