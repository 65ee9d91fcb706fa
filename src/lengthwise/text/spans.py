"""Spans of characters, and the tokens within them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def joined(offsets: NDArray[np.int64]) -> list[list[int]]:
    """Spans of characters in order, those that touch made one."""
    spans: list[list[int]] = []
    for begin, end in offsets.tolist():
        if spans and begin <= spans[-1][1]:
            spans[-1][1] = max(end, spans[-1][1])
        else:
            spans.append([begin, end])
    return spans


def tokens_within(offsets: NDArray[np.int64], spans: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    """Indices of the tokens whose characters lie wholly inside one span."""
    if not spans:
        return np.empty(0, dtype=np.int64)
    begins, ends = np.asarray(spans, dtype=np.int64).T
    place = np.searchsorted(begins, offsets[:, 0], side="right") - 1
    inside = (place >= 0) & (offsets[:, 1] <= ends[place.clip(0)]) & (offsets[:, 0] < offsets[:, 1])
    # The first token of a text has no prediction.
    inside[:1] = False
    return np.flatnonzero(inside)
