"""The columns of a row that windows are cut from: which are read, left out, or refused.

Some change what a token sees. A packed row holds several texts, a padded one tokens that are no text. The two
windows of a pair are cut from one text, so neither fits. To let a column pass where it says nothing, add its entry to
`PLAIN`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from lengthwise.errors import UsageError, shown

MASKS = ("completion_mask", "assistant_masks")
"""Columns that leave tokens out as targets where they are 0, as TRL writes them."""
READ = ("input_ids", "labels", "draw", *MASKS)
"""What the collator reads of an item."""

CUT = "pair_windows(dataset, tokenizer, view) cuts rows of any length"
WHOLE_ROWS = "cut padding and packed rows into stretches of one text each"
_Rule = tuple[str, Callable[[np.ndarray, int], bool]]
_ONES: _Rule = ("1 at every token", lambda value, n: value.shape == (n,) and bool((value == 1).all()))
_ZEROS: _Rule = ("0 at every token", lambda value, n: value.shape == (n,) and not value.any())
_COUNT: _Rule = ("0 .. n - 1", lambda value, n: np.array_equal(value, np.arange(n)))
_ONE_TEXT: _Rule = (
    "one id for the whole row",
    lambda value, n: value.shape == (n,) and len({*value.tolist()}) == 1,
)
_SIZE: _Rule = ("n, the tokens of the row", lambda value, n: value.tolist() in (n, [n]))
_EDGES: _Rule = ("0 and n", lambda value, n: value.tolist() == [0, n])

PLAIN: dict[str, _Rule] = {
    "position_ids": _COUNT,
    "attention_mask": _ONES,
    "token_type_ids": _ZEROS,
    **dict.fromkeys(
        ("seq_lengths", "seq_lens", "seqlens", "max_length_q", "max_length_k", "max_seqlen"), _SIZE
    ),
    **dict.fromkeys(("cu_seqlens", "cu_seq_lens", "cu_seq_lens_q", "cu_seq_lens_k"), _EDGES),
    **dict.fromkeys(("seq_idx", "sequence_ids", "segment_ids", "document_ids"), _ONE_TEXT),
}
"""Columns that change what a token sees unless they say that a row of n tokens is one text: how they say so."""


def check_has_tokens(columns: Iterable[str]) -> None:
    """Raise UsageError unless these columns of a row have its tokens."""
    if "input_ids" not in columns:
        raise UsageError(
            f"a data set with the columns {', '.join(columns) or 'none'}", expected="input_ids", fix=CUT
        )


def check_columns(items: Iterable[Mapping[str, Any]]) -> set[str]:
    """The columns of items that hold words, and single numbers, which no token sees.

    UsageError for a column that changes what a token sees, or may do so.
    """
    left_out: set[str] = set()
    for item in items:
        check_has_tokens(item)
        for name in item.keys() - READ:
            value = item[name]
            if name in PLAIN and value is not None:
                _check_plain(name, value, len(item["input_ids"]))
            elif name not in PLAIN and not _is_words(value):
                raise UsageError(
                    f"samples have a column {name!r}, which the collator does not know",
                    expected=f"{', '.join(each for each in READ if each != 'draw')}, or columns of words",
                    fix="remove the column, if it changes neither what a token sees nor which tokens are targets",
                )
            elif name not in PLAIN:
                left_out.add(name)
    return left_out


def _check_plain(name: str, value: Any, n: int) -> None:
    meaning, holds = PLAIN[name]
    try:
        plain = holds(np.asarray(value), n)
    except (TypeError, ValueError):
        plain = False
    if not plain:
        raise UsageError(
            f"{name} of a sample is {shown(value)}, so its {n} tokens are several texts, or have padding",
            expected=f"stretches of one text without padding: {name} is then {meaning}",
            fix=WHOLE_ROWS,
        )


def _is_words(value: Any) -> bool:
    """Whether a value holds words and single numbers alone; a list of numbers may be of tokens."""
    if isinstance(value, Mapping):
        return all(_is_words(each) for each in value.values())
    if isinstance(value, list | tuple):
        return all(not isinstance(each, int | float) and _is_words(each) for each in value)
    return value is None or isinstance(value, str | bytes | int | float)
