"""Pairs of windows that end alike: read once, they give losses by position and the benefit of repeated passages.

Two neighbouring stretches x and y of one document, n tokens each, get the same tail. It repeats a passage of x and
one of y for each distance:

    S_x = x | x[passage 1] y[passage 1] x[passage 2] y[passage 2] ...
    S_y = y | x[passage 1] y[passage 1] x[passage 2] y[passage 2] ...

A passage of x stands at the same place of both, after the same tokens of the tail. In S_x it came before, `distance`
tokens back; in S_y it did not. Its benefit is

    loss(end of the passage | the other window) - loss(end of the passage | its own window)

in nats a token. So every token is read once, and the benefit costs the tail alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np
from annotated_types import Ge
from cyclopts import Parameter

from lengthwise.errors import UsageError
from lengthwise.measure.measurement import Item, WindowMeasurement
from lengthwise.settings import PYTHON_ONLY, Count, Seed, Whole
from lengthwise.text import Corpus, TokenDocuments
from lengthwise.text.tokens import added_tokens

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lengthwise.subjects import Predictor, Reader

_FIRST_EDGE = 64
"""The first tokens are one bin: rounding is twice as large there, and a bin of few tokens exceeds the tolerance."""
_PASSAGE = 64
"""Tokens of a passage; fewer in short windows."""
_DISTANCES = 4
_SCORED = 3 / 4
"""The share of a passage whose loss counts, at its end; what is before is the cue for the copy."""
SHORTEST = 64
DEFAULT_LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096)
"""Tokens of the windows where the user does not say: the greatest that fits, or all that have room for decoding."""


@dataclass(frozen=True)
class Layout:
    """Where things are in a window of `length` tokens, of which the last `decode` are read one by one (0: none).

    Row i is the prediction of token i + 1, so a window is made of `length` + 1 tokens.
    """

    length: int
    decode: int = 0

    @property
    def passage(self) -> int:
        """Tokens of a passage."""
        return max(2, min(_PASSAGE, self.decode // 4 if self.decode else self.length // 32))

    @property
    def text(self) -> int:
        """n, the tokens of text before the tail."""
        return self.length + 1 - self.tail

    @property
    def tail(self) -> int:
        """Tokens of the tail. Where a window's end is decoded, it repeats one distance alone."""
        return 2 * self.passage * (1 if self.decode else _DISTANCES)

    @property
    def distances(self) -> list[int]:
        """Tokens from a passage to its repetition."""
        if self.decode:
            return [self.text - 1]
        spread = np.geomspace(self.tail, self.text - 1, _DISTANCES)
        return [int(each) // self.passage * self.passage for each in spread[:-1]] + [self.text - 1]

    @property
    def first(self) -> int:
        """The first row that counts."""
        return self.length - self.decode if self.decode else 0

    @property
    def edges(self) -> list[int]:
        """Edges of the bins of rows: 0, 64, 96, 128, 192, ..., two to each doubling; of decoded rows one bin."""
        return [self.first, self.length] if self.decode else position_edges(self.length)

    def passages(self) -> list[tuple[int, int, slice]]:
        """(distance, half that it is from, its scored rows) of every passage of the tail."""
        ends = range(self.text + self.passage - 1, self.length + self.passage, self.passage)
        places = itertools.product(self.distances, range(2))
        return [
            (distance, half, slice(end - round(_SCORED * self.passage), end))
            for (distance, half), end in zip(places, ends, strict=True)
        ]

    def sequences(self, stretch: NDArray[Any]) -> NDArray[np.int64]:
        """Both windows, [2, length + 1], of a stretch of 2 n tokens."""
        halves = stretch[: 2 * self.text].reshape(2, self.text)
        first = [(half, rows.stop + 1 - self.passage - distance) for distance, half, rows in self.passages()]
        parts = [halves[half, start : start + self.passage] for half, start in first]
        tail = np.concatenate(parts)
        return np.concatenate([halves, np.broadcast_to(tail, (2, len(tail)))], axis=1).astype(np.int64)


class RepeatedWindows(WindowMeasurement):
    """What measurements of such pairs share: their lengths, and the items."""

    lengths: Annotated[
        tuple[Annotated[Whole, Ge(SHORTEST)], ...] | None, Parameter("--length", metavar="TOKENS")
    ] = None
    """Tokens of the windows; repeat it for several. Default: 4096; with read=decode 256, 512, ..., 4096."""
    windows: Annotated[Count, Parameter("--limit")] = 4
    """Pairs of windows, from as many documents; each is read at every length."""
    decode: Annotated[Seed, Parameter(metavar="TOKENS")] = 0
    """Only the last tokens of each window count, as with read=decode=N, which sets it."""
    cached_from: Annotated[Seed, PYTHON_ONLY] = 0
    """Tokens of the first pass of a side that reads in chunks: only from there on it reads from its cache."""

    def resolved(self, model: Reader, other: Reader) -> Self:
        """With `decode` of the sides, and lengths that both have positions for."""
        paths = (model.path, other.path)
        decode = max(self.decode, *(path.decode for path in paths))
        cached_from = max(self.cached_from, *(path.chunk or 0 for path in paths))
        lengths = self.lengths
        if lengths is None:
            limits = [each.max_positions for each in (model, other) if each.max_positions is not None]
            fit = [length for length in DEFAULT_LENGTHS if length <= min([DEFAULT_LENGTHS[-1], *limits])]
            lengths = tuple(length for length in fit if length >= 2 * decode) if decode else tuple(fit[-1:])
        if not lengths or (decode and min(lengths) < 2 * decode):
            raise UsageError(
                f"{decode} tokens of windows of {min(lengths, default=0)} would be read one by one",
                expected=f"windows of {2 * decode} tokens or more (--length), or a smaller read=decode=N",
            )
        if cached_from >= min(lengths):
            raise UsageError(
                f"windows of {min(lengths)} tokens are read in one pass of {cached_from}: no cache is read",
                expected=f"windows of more than {cached_from} tokens (--length), or a smaller read=chunks=N",
            )
        resolved = {"decode": decode, "cached_from": cached_from, "lengths": tuple(sorted(set(lengths)))}
        return self.model_copy(update=resolved)

    def layouts(self) -> dict[int, Layout]:
        """The layout of each length, ascending."""
        return {length: Layout(length, self.decode) for length in self.lengths or ()}

    def items(self, model: Reader, text: Any, other: Reader) -> list[Item]:
        """Every pair at every length.

        Raises:
            UsageError: the tokenizers of both sides make other ids of the text.
        """
        corpus, text = text
        if other is not model:
            check_same_ids(model.tokenizer, other.tokenizer, _raw_texts(corpus, text, model.tokenizer))
        layouts = self.layouts()
        stretches = self.sampled(text, 2 * layouts[max(layouts)].text)
        found = []
        for length, index, stretch in self.by_size(stretches, layouts):
            about = {"content": layouts[length].sequences(stretch.ids), "length": length}
            found.append(self.item(f"L{length}/w{index:04d}", stretch, length, tokens=2 * length, **about))
        return found

    def check_models(self, model: Predictor, other: Predictor, items: Sequence[Item]) -> None:
        """Raise UsageError unless llama.cpp itself makes the ids of the windows' text."""
        from lengthwise.subjects.llama_cpp import LlamaCpp

        shortest = min(each.text for each in self.layouts().values())
        for item in items[:3]:
            ids = item.content[0, :shortest]
            text = model.tokenizer.decode(ids)
            plain = list(model.tokenizer(text, add_special_tokens=False).input_ids)
            for side in (model, other):
                if isinstance(side, LlamaCpp) and (made := side.ids_of(text)) != plain:
                    raise _other_ids(len(plain), len(made))

    def facts(self, model: Reader, other: Reader) -> dict[str, Any]:
        """The settings. The BOS is a fact of each side."""
        return {name: value for name, value in super().facts(model, other).items() if name != "bos_id"}

    def windows_of(self, items: Sequence[Item]) -> tuple[Layout, NDArray[np.int64]]:
        """The layout of a batch, and its windows [B, T + 1], two of each item."""
        return Layout(items[0].longest, self.decode), np.concatenate([item.content for item in items])

    def views_of(self, model: Reader, windows: NDArray[np.int64]) -> NDArray[np.int64]:
        """What a side reads of windows [B, T + 1]: all but the last token, with its own BOS; [B, T]."""
        views = windows[:, :-1].copy()
        if (bos_id := self.bos_id(model)) is not None:
            views[:, 0] = bos_id
        return views


def position_edges(length: int) -> list[int]:
    """Edges of the bins of positions: 0, 64, 96, 128, 192, ..., two to each doubling, and `length`."""
    edges = [0]
    step = _FIRST_EDGE
    while step < length:
        edges += [edge for edge in (step, step + step // 2) if edge < length]
        step *= 2
    return [*edges, length]


_CHECKED_DOCUMENTS, _CHECKED_CHARACTERS = 8, 20_000


def check_same_ids(one: Any, other: Any, texts: Sequence[str]) -> None:
    """Raise UsageError unless two tokenizers make the same ids of texts, and add no more than a BOS of their own."""
    for text in texts:
        made = [list(each(text, add_special_tokens=False).input_ids) for each in (one, other)]
        if made[0] != made[1]:
            raise _other_ids(*map(len, made))
    added = [added_tokens(each) for each in (one, other)]
    plain = [
        (before if list(before) != [each.bos_token_id] else (), after)
        for each, (before, after) in zip((one, other), added, strict=True)
    ]
    if plain[0] != plain[1]:
        raise UsageError(
            f"the tokenizers put other special tokens around a text: {added[0]} and {added[1]}, before and after it",
            expected="none, or a BOS: a window of a text has at most a BOS",
        )


def _other_ids(one: int, other: int) -> UsageError:
    return UsageError(
        f"the tokenizers make other ids of the same text ({one} and {other} tokens)",
        expected="one tokenizer: log-probabilities of other tokens cannot be compared",
        fix="compare answers: `lengthwise eval` of each with --out, then both runs",
    )


def _raw_texts(corpus: Any, documents: TokenDocuments, tokenizer: Any) -> list[str]:
    """Beginnings of documents as they are; of tokens without a text, what they decode to."""
    if isinstance(corpus, Corpus):
        some = itertools.islice(corpus.documents.values(), _CHECKED_DOCUMENTS)
        return [text[:_CHECKED_CHARACTERS] for text in some]
    some = (document.ids[: _CHECKED_CHARACTERS // 4] for document in documents[:_CHECKED_DOCUMENTS])
    return [tokenizer.decode(ids) for ids in some]
