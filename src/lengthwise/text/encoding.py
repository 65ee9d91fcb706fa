"""Long texts as ids: in pieces whose ids are those of the whole text.

A tokenizer works on words from left to right, and what it makes of a word depends on no other one. So if a word
begins at a cut, the ids behind it depend on nothing before it. Each piece is read some way beyond its end. A cut is
right if a token begins there, and both pieces go on with the same ids: then they have found the same words, and go on
alike. Where they do not, the pieces are joined. A tokenizer that does not work on words gets the whole text.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

PIECE = 1 << 18
"""Characters of a piece."""
_BEYOND = 2_000
"""Characters that a piece is read beyond its end."""
_AGREE, _AT_END = 16, 64
"""Tokens that two pieces have to agree in at least, without the last ones, which a piece ends in other words with."""
_AT_ONCE = 8
_SPACE = re.compile(r"(?<=[^\W\d_])(?= [^\W\d_])")
_MARK = re.compile(r"(?<=[^\W\d_])(?=[.,;:!?、。，！？])")
"""Places for a cut, between letters: before a space, or, where none is near, before a mark."""
_ACROSS = re.compile(r"[^▁]▁|[^Ġ]Ġ|\S \S")
"""A token of several words, as SentencePiece and bytes write a space."""
_WORDS = ("lake", "stone")

Encode = Callable[[Sequence[str]], Sequence[Any]]
"""Texts -> their encodings, of `tokenizers`."""


def skipped_at_a_cut(tokenizer: Any) -> int | None:
    """How many characters a tokenizer puts in itself where a text begins with a word: 1 if it adds a space.

    None if it does not work on words.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return None
    one, other = _WORDS
    split = backend.pre_tokenizer and len(backend.pre_tokenizer.pre_tokenize_str(f"{one} {other} {one}")) >= 3
    model = json.loads(backend.to_str())["model"]
    of_one_word = model.get("type") == "BPE" and not any(map(_ACROSS.search, tokenizer.get_vocab()))
    if model.get("dropout") or not (split or of_one_word):
        return None
    whole, begun, spaced, bare = (
        list(tokenizer(text, add_special_tokens=False).input_ids)
        for text in (f"{one} {other}", one, f" {other}", other)
    )
    return next((skip for skip, rest in enumerate((spaced, bare)) if whole == begun + rest), None)


def in_pieces(text: str, encode: Encode, skip: int) -> Iterator[tuple[list[int], int]]:
    """The ids of a text, piece by piece, each with its characters. `skip` is as `skipped_at_a_cut` says."""
    start, size = 0, PIECE
    while start < len(text):
        cuts = [start, *itertools.islice(_cuts(text, start, size), _AT_ONCE)]
        ends = [*cuts[1:], len(text)] if len(cuts) <= _AT_ONCE else cuts[1:]
        starts = [cut + skip * (text[cut] == " " and cut > 0) for cut in cuts]
        pieces = [text[begin : end + _BEYOND] for begin, end in zip(starts, ends, strict=False)]
        if len(cuts) > len(ends):
            # The beginning of the next piece, which is read again.
            pieces.append(text[starts[-1] :][: 2 * _BEYOND])
        found = encode(pieces)
        for index, end in enumerate(ends):
            one = found[index]
            count = len(one.ids) if end == len(text) else _agreed(one, end - starts[index], found[index + 1])
            if count is None:
                # Both pieces as one.
                size = 2 * (end - start)
                break
            yield list(one.ids[:count]), end - start
            start, size = end, PIECE


def _cuts(text: str, start: int, size: int) -> Iterator[int]:
    """Places for cuts, the first one `size` characters away, with enough text behind them."""
    while found := _SPACE.search(text, start + size, start + size + _BEYOND) or _MARK.search(
        text, start + size
    ):
        if found.start() + 2 * _BEYOND >= len(text):
            return
        yield found.start()
        start, size = found.start(), PIECE


def _agreed(one: Any, place: int, other: Any) -> int | None:
    """The tokens of a piece before the cut at `place`; None if the next piece does not go on as it does."""
    first = one.char_to_token(place)
    if first is None:
        # Some leave the space before a word out of its token.
        first = one.char_to_token(place + 1)
    if first is None or one.token_to_chars(first)[0] < place:
        return None
    rest = one.ids[first : len(one.ids) - _AT_END]
    return first if len(rest) >= _AGREE and other.ids[: len(rest)] == rest else None
