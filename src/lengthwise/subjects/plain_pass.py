"""What a plain pass must be, or no number of it means anything: the same each time, and blind to later tokens.

Both are looked at where a text is read, at its length: hashing, sorting or pooling of tokens often begins beyond a
length, and a model may look ahead farther than any short text is long.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lengthwise.checkpoints.head import looks_ahead
from lengthwise.errors import LengthwiseError, UsageError, is_out_of_memory, reason
from lengthwise.subjects.proof import Proofs, differs, is_bug

BEGINNING = 64
"""Tokens that are read again alone: of a long text next to nothing."""


@contextmanager
def one_pass(name: str, tokens: int, through: str = "") -> Iterator[None]:
    """A forward pass over `tokens` tokens that draws no random numbers, `through` a cache or without.

    Raises:
        UsageError: it drew some (what is drawn and changes nothing is refused, too), or the model's own code fails.
    """
    before = _random_states()
    try:
        yield
    except Exception as error:
        if isinstance(error, LengthwiseError) or is_out_of_memory(error) or is_bug(error):
            raise
        expected, fix = "a model that reads texts of any length", None
        if through:
            expected = "a cache that its layers can continue"
            fix = "leave out what asks for a cache (kv_cache, cache, read), or name another"
        problem = f"{name} cannot read {tokens:,} tokens{through}: {reason(error)}"
        raise UsageError(problem, expected=expected, fix=fix) from error
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
    ids: Tensor, rows: Tensor, run: Callable[[Tensor], Tensor], proofs: Proofs, *, coarse: bool, name: str
) -> None:
    """Compare the first rows of the longest texts so far with those of their beginning, which is read alone.

    Args:
        ids: whole texts, [B, T].
        rows: what the head takes for them, [B, T, ...].
        run: one pass: ids -> rows.
        proofs: what is known of the model.
        coarse: whether what is read at once is rounded together, so that differences as in 16 bits are none.
        name: the model's.

    Raises:
        UsageError: it is not rounding that they differ by: rows change with the tokens that follow them.
    """
    length = ids.shape[1]
    size = min(BEGINNING, length // 2)
    if not size or length <= proofs.blind_up_to:
        return

    def first(rows: Tensor) -> Tensor:
        # What is not finite is refused where it is scored.
        found = rows[0, :size].nan_to_num(0.0, 0.0, 0.0)
        return found.bfloat16() if coarse else found

    text = ids[:1]
    if differs(first(rows), first(run(text[:, :size]))) is not None:
        # In one shape, kernels round alike.
        other = torch.cat([text[:, :size], text[:, :1].expand(1, length - size)], dim=1)
        if differs(first(run(text)), first(run(other))) is not None:
            raise looks_ahead(name, length)
    proofs.blind_up_to = length
