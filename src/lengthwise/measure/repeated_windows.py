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
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self

import numpy as np
from annotated_types import Ge
from cyclopts import Parameter
from numpy.typing import NDArray

from lengthwise.errors import UsageError
from lengthwise.measure.measurement import About, Item, Record, WindowMeasurement, grouped, in_groups
from lengthwise.measure.statistics import Statistic
from lengthwise.settings import PYTHON_ONLY, Count, Seed, Whole
from lengthwise.subjects.reading import Predictor, Read, Reader, Reading, Want, check_chunk
from lengthwise.text import view
from lengthwise.text.same_ids import check_same_ids, other_ids

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


class KeptPredictions(WindowMeasurement):
    """Keep the predictions of one configuration of a model on such pairs, to compare them with another one later.

    The log holds, of every token, the log-probability and the likeliest tokens: 520 bytes, a third more as text.
    """

    about = About(
        kind="predictions",
        task="kept_predictions",
        title="Predictions of one side",
        metrics={"loss": "cross entropy of the next token"},
        reads="either",
        no_facts=("cached_from",),
    )

    lengths: Annotated[tuple[Annotated[Whole, Ge(SHORTEST)], ...] | None, Parameter(metavar="TOKENS")] = None
    """Tokens of the windows. Default: 4096; with read=decode 256, 512, ..., 4096."""
    windows: Count = 4
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
                expected=f"windows of {2 * decode} tokens or more (--lengths), or a smaller read=decode=N",
            )
        check_chunk(cached_from, min(lengths))
        resolved = {"decode": decode, "cached_from": cached_from, "lengths": tuple(sorted(set(lengths)))}
        return self.model_copy(update=resolved)

    def layouts(self) -> dict[int, Layout]:
        """The layout of each length, ascending."""
        return {length: Layout(length, self.decode) for length in self.lengths or ()}

    def items(self, model: Reader, text: Any, other: Reader) -> list[Item]:
        """Every pair at every length; UsageError if the tokenizers of both sides make other ids of the text."""
        corpus, text = text
        layouts = self.layouts()
        stretches = self.sampled(text, 2 * layouts[max(layouts)].text)
        if other is not model:
            check_same_ids(model.tokenizer, other.tokenizer, corpus, text, stretches)
        found = []
        for length, index, stretch in self.by_size(stretches, layouts):
            about = {"content": layouts[length].sequences(stretch.ids), "length": length}
            found.append(self.item(f"L{length}/w{index:04d}", stretch, length, tokens=2 * length, **about))
        return found

    def check_models(self, model: Predictor, other: Predictor, items: Sequence[Item]) -> None:
        """Raise UsageError unless the software of both sides makes the same ids of the windows' text."""
        # They have the text of the shorter ones.
        longest = [item for item in items if item.longest == max(self.layouts())]
        for half in (half for item in longest for half in item.content[:, : self.layout_of([item]).text]):
            text = model.tokenizer.decode(half)
            plain = list(model.tokenizer(text, add_special_tokens=False).input_ids)
            for side in (model, other):
                if (made := side.ids_of(text)) != plain:
                    raise other_ids(len(plain), len(made))

    def facts(self, model: Reader, other: Reader) -> dict[str, Any]:
        """The settings. The BOS is a fact of each side."""
        return {name: value for name, value in super().facts(model, other).items() if name != "bos_id"}

    def predicted(self, model: Predictor, items: Sequence[Item]) -> list[tuple[Reading, Read]]:
        """What a side reads of the windows of a batch, two of each item, and what it gives.

        All but the last token, with its own BOS; whole distributions, of a model that gives them.
        """
        layout, bos_id, readings = self.layout_of(items), self.bos_id(model), []
        want = Want.ROWS if Want.ROWS in model.gives else Want.LOSS
        for window in np.concatenate([item.content for item in items]):
            tokens = view(window, 0, layout.length, bos_id)
            readings.append(Reading(tokens=tokens, labels=window[layout.first + 1 :], want=want))
        return list(zip(readings, self.read(model, items, readings), strict=True))

    def side(
        self, model: Predictor, item: Item, reading: Reading, read: Read, *, beside: Predictor | None
    ) -> Record:
        """What is known of a side beside its predictions, which kept ones need too.

        Of the first pair, also how far the side differs from itself: as its dtype rounds, or beside other software as
        16 bits do. Both, where the other side is not known yet (`beside` is None).
        """
        from lengthwise.measure.distributions import own_rounding
        from lengthwise.subjects.rounding import LEAST, LEAST_ELSEWHERE, MOST, MOST_ELSEWHERE

        facts: Record = {
            "bos": self.bos_id(model),
            "weights": model.dtype is not None,
            "least": LEAST.get(model.dtype or "", LEAST_ELSEWHERE),
            "most": MOST.get(model.dtype or "", MOST_ELSEWHERE),
            "vocabulary": model.vocab_size,
            "template": zlib.crc32(str(model.tokenizer.chat_template).encode()),
        }
        if item.key.endswith("w0000"):
            layout = self.layout_of([item])
            elsewhere = beside is not None and beside.dtype is None
            if model.dtype is None or not elsewhere:
                facts["floor"] = own_rounding(model, reading, read, layout.edges)
            if model.dtype is not None and (beside is None or elsewhere):
                facts["floor_16"] = own_rounding(model, reading, read, layout.edges, dtype="bfloat16")
        return facts

    def layout_of(self, items: Sequence[Item]) -> Layout:
        """The layout of the windows of a batch."""
        return Layout(items[0].longest, self.decode)

    def describe(self, items: Sequence[Item], records: Mapping[str, Record]) -> dict[str, Any]:
        """From where on the side reads a cache, which may differ between sides."""
        return {"cached_from": self.cached_from}

    def score(self, model: Predictor, items: Sequence[Item], other: Predictor) -> Iterator[Record]:
        """The losses and the likeliest tokens of both windows of each pair, and what else is known of the side."""
        from lengthwise.measure.distributions import kept

        layout, found = self.layout_of(items), self.predicted(model, items)
        for item, (one, two) in zip(items, in_groups(found, 2), strict=True):
            yield {
                "halves": [kept(read, reading.labels, first=layout.first) for reading, read in (one, two)],
                "pieces": [token_pieces(model.tokenizer, window) for window in item.content],
                "side": self.side(model, item, *one, beside=None),
                "targets": 2 * (layout.length - layout.first),
            }

    def statistics(self, records: Sequence[Record]) -> list[Statistic]:
        """The loss of each length."""
        from lengthwise.measure.distributions import read_kept

        def totals(record: Record) -> list[float]:
            return [sum(read_kept(half).losses.sum().item() for half in record["halves"]), record["targets"]]

        return [
            self.statistic(some, totals, metric="loss", length=length, n=sum(r["targets"] for r in some))
            for length, some in grouped(records, "length")
        ]


def position_edges(length: int) -> list[int]:
    """Edges of the bins of positions: 0, 64, 96, 128, 192, ..., two to each doubling, and `length`."""
    edges = [0]
    step = _FIRST_EDGE
    while step < length:
        edges += [edge for edge in (step, step + step // 2) if edge < length]
        step *= 2
    return [*edges, length]


def token_pieces(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """The characters that each token adds to the text; of a character in several tokens the last has all of it."""
    pieces = []
    for index in range(len(ids)):
        begin = max(0, index - 4)
        before = tokenizer.decode(ids[begin:index]).rstrip("\ufffd") if index else ""
        pieces.append(tokenizer.decode(ids[begin : index + 1]).rstrip("\ufffd")[len(before) :])
    return pieces
