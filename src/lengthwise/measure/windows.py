"""What measurements share that read views of windows of a text."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from lengthwise.errors import UsageError
from lengthwise.measure.measurement import Item, Measurement, Reader, Record, in_groups
from lengthwise.measure.statistics import Statistic
from lengthwise.results import Results
from lengthwise.text.windows import Window, resolve_bos, sample_windows

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from lengthwise.models import Predictor


class WindowMeasurement(Measurement):
    """A measurement that reads views of windows of a text."""

    beside_the_numbers = ("bos", "batch_size")

    wanted: ClassVar[str] = "windows"
    """The field that says how many stretches of text are wanted, and what they are called."""

    bos: Literal["auto", "always", "never"] = "auto"
    """Begin each view with BOS; auto does as the tokenizer does."""

    def bos_id(self, model: Reader) -> int | None:
        """The id that replaces the first token of each view; None without BOS."""
        return resolve_bos(model.tokenizer, self.bos)

    def facts(self, model: Reader, other: Reader) -> dict[str, Any]:
        """The BOS id."""
        return {"bos_id": self.bos_id(model)}

    def sampled(self, text: Any, tokens: int) -> list[Window]:
        """As many windows of `tokens` tokens as are wanted, or as the text holds."""
        wanted = getattr(self, self.wanted)
        return sample_windows(text, tokens, count=wanted, seed=self.seed, allow_fewer=True)

    def item(
        self, key: str, window: Window, longest: int, *, tokens: int, content: Any = None, **facts: Any
    ) -> Item:
        """The item of a window; see `Item`. `facts` are those besides the window's place."""
        place = {
            "document": window.document_id,
            "start": window.start,
            "crc": zlib.crc32(window.ids.tobytes()),
        }
        return Item(
            key=f"{self.task}/{key}",
            facts=place | facts,
            content=window if content is None else content,
            tokens=tokens,
            longest=longest,
            stretch=len(window.ids),
        )

    def words(self, item: Item) -> str:
        """The stretch of text."""
        start = item.facts["start"]
        end = item.facts.get("end", start + item.stretch)
        return f"{self.reads} {start} to {end - 1} of {item.facts['document']!r}"

    def losses(
        self,
        model: Predictor,
        items: Sequence[Item],
        views: Sequence[NDArray[Any]],
        labels: Sequence[NDArray[Any]],
    ) -> list[Tensor]:
        """`model.token_losses` of views of the items, equally many of each."""
        from lengthwise.models import naming_bad_logits

        each = len(views) // len(items)
        with naming_bad_logits(model, lambda view: self.words(items[view // each])):
            return model.token_losses(views, labels)

    def curve(
        self, records: Sequence[Record], name: str, edges: Sequence[int], **row: Any
    ) -> list[Statistic]:
        """A number by position: `record[name]` has the sum of each bin between two of the edges."""
        return [
            self.statistic(
                records,
                lambda record, i=index, size=end - begin: [record[name][i], size],
                position=begin,
                position_end=end,
                n=len(records) * (end - begin),
                **row,
            )
            for index, (begin, end) in enumerate(pairwise(edges))
        ]

    def plan(self, items: Sequence[Item]) -> dict[str, Any]:
        """How many stretches of each size the text holds, and the tokens to read."""
        samples = {
            f"{self.wanted} of {tokens} tokens": f"{available} of {getattr(self, self.wanted)}"
            for tokens, available in self._available(items)
        }
        return {"samples": samples, "tokens_to_run": sum(item.tokens for item in items)}

    def notes(self, model: Reader, other: Reader, items: Sequence[Item], results: Results) -> list[str]:
        """How views begin, and whether the text has fewer stretches than wanted."""
        bos_id, wanted = self.bos_id(model), getattr(self, self.wanted)
        begin = (
            "No BOS: every view begins with a token of the text."
            if bos_id is None
            else f"BOS: the first token of every view is replaced by token {bos_id}."
        )
        return [
            begin,
            *(
                f"The text holds {available} {self.wanted} of {tokens} tokens without overlap, fewer than the "
                f"{wanted} wanted."
                for tokens, available in self._available(items)
                if available < wanted
            ),
        ]

    def _available(self, items: Sequence[Item]) -> list[tuple[int, int]]:
        """(tokens of a stretch of text, how many of these), ascending."""
        places = {(item.stretch, item.facts["document"], item.facts["start"]) for item in items}
        return sorted(Counter(tokens for tokens, *_ in places).items())


def by_size(
    windows: Sequence[Window], sizes: Sequence[int], *, at_once: int
) -> Iterator[tuple[int, int, Window]]:
    """(size, index, window): each group of `at_once` windows at all sizes, ascending, before the next group."""
    for group in in_groups(enumerate(windows), at_once):
        for size in sorted(set(sizes)):
            for index, window in group:
                yield size, index, window


def grouped(records: Sequence[Record], fact: str) -> list[tuple[Any, list[Record]]]:
    """(value, its records) of each value of a fact, ascending."""
    values = sorted({record[fact] for record in records})
    return [(value, [record for record in records if record[fact] == value]) for value in values]


def check_passage(*, passage: int, scored: int) -> None:
    """Raise UsageError if the scored end of a repeated passage leaves no cue for the copy."""
    if scored >= passage:
        raise UsageError(
            f"scored is {scored} of a passage of {passage} tokens",
            expected=f"at most {passage - 1}: the tokens before are the cue for the copy",
        )
