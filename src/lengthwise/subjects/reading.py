"""What a measurement wants read, and what came back: the same of weights, an endpoint and llama.cpp.

A measurement makes `Reading`s. A `Predictor` reads them its own way and along its own path: in one pass or in pieces,
sharing what they have in common or not, in one batch or in several. What comes back does not depend on that.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Required, TypedDict, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lengthwise.checkpoints.head import NonFiniteLogits, chunk_rows, locating_bad_logits, require_finite
from lengthwise.errors import UsageError

if TYPE_CHECKING:
    from lengthwise.subjects.path import ReadingPath

Tokens = tuple[int, ...]
"""Token ids of a prompt."""
_NONE = np.empty(0, dtype=np.int64)


class Want(enum.Enum):
    """What is wanted of the tokens of a reading."""

    LOSS = "the losses of given tokens"
    NEXT = "the whole distribution of the next token"
    ROWS = "the whole distribution after every token"


@dataclass(frozen=True, eq=False, kw_only=True)
class Branch:
    """A continuation of a part of the text, as if it stood there in place of what follows."""

    place: int
    """Tokens of the text before it; 0 is a text of its own."""
    tokens: NDArray[Any]
    """[M], what is read after them."""
    labels: NDArray[Any]
    """[N], the token after each of the last N of them."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Reading:
    """Tokens that are read once, and what is wanted of them."""

    tokens: NDArray[Any]
    """[T], BOS included."""
    labels: NDArray[Any] = field(default_factory=lambda: _NONE)
    """[N], the token after each of the last N tokens; all but the last are among the tokens too."""
    branches: Sequence[Branch] = ()
    """By `place`, ascending."""
    want: Want = Want.LOSS


class Rows(ABC):
    """The distributions of the next token after the T tokens of a reading, a few rows at a time; no [T, V] is made.

    Rows are asked for in ascending order, so that a subject may read its text on the way.
    """

    vocab_size: int
    device: torch.device = torch.device("cpu")

    @abstractmethod
    def __len__(self) -> int:
        """T."""

    @abstractmethod
    def logits(self, rows: slice) -> Tensor:
        """Logits up to a constant, [n, V], in float32 (float64 of a float64 model).

        Raises:
            NonFiniteLogits: NaN or an infinity; its position counts from the first of `rows`.
        """

    def log_p(self, rows: slice) -> Tensor:
        """log p of every token, [n, V]."""
        return self.logits(rows).log_softmax(dim=-1)

    def chunks(self, first: int = 0, end: int | None = None) -> Iterator[slice]:
        """The rows from `first` on, up to `end`, as many at a time as fit in memory."""
        size, end = chunk_rows(self.vocab_size, self.device), len(self) if end is None else end
        for begin in range(first, end, size):
            yield slice(begin, min(begin + size, end))

    @torch.no_grad()
    def score(
        self, score: Callable[[Tensor, slice], Tensor], *, first: int = 0, end: int | None = None
    ) -> Tensor:
        """`score` of every row from `first` on, up to `end`: fp64 [N, ...], on the CPU.

        Args:
            score: (logits [n, V], the slice of rows that they are of) -> [n, ...].
            first, end: the rows that count.

        Raises:
            NonFiniteLogits: a score is NaN or infinite; its position is the row.
        """
        parts = []
        for rows in self.chunks(first, end):
            with locating_bad_logits(rows.start):
                scores = score(self.logits(rows), rows)
                require_finite(scores)
            parts.append(scores.cpu().double())
        return torch.cat(parts) if parts else torch.empty(0, dtype=torch.float64)

    def losses(self, labels: NDArray[Any] | Tensor, *, first: int | None = None) -> Tensor:
        """-log p of the tokens after the last N rows, or after N from `first` on: fp64 [N], nats, on the CPU."""
        # A copy: documents are read-only views of the token cache, which torch does not take.
        given = labels if isinstance(labels, Tensor) else torch.from_numpy(np.array(labels, dtype=np.int64))
        targets, begin = given.to(self.device), len(self) - len(given) if first is None else first

        def losses(logits: Tensor, rows: slice) -> Tensor:
            own = targets[rows.start - begin : rows.stop - begin]
            return torch.nn.functional.cross_entropy(logits, own, reduction="none")

        return self.score(losses, first=begin, end=begin + len(targets))


@dataclass(eq=False, kw_only=True)
class Read:
    """What a reading gave."""

    losses: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.float64))
    """-log p of its labels, fp64 [N], nats, on the CPU; none where whole distributions are wanted."""
    branches: Sequence[Tensor] = ()
    """The same of each of its branches."""
    rows: Rows | None = None
    """Of all T rows where `Want.ROWS` is wanted, of the last one where `Want.NEXT` is."""
    cold: Tensor | None = None
    """`losses` without the prefix cache of a server, along an endpoint's decode path."""
    likeliest: tuple[Tensor, Tensor] | None = None
    """Ids and log p [N, K] of the likeliest tokens, where a log kept these in place of rows."""


class Ends(TypedDict, total=False):
    """Where a greedy reply ends: before EOS, or as is said here."""

    new_tokens: Required[int]
    """Tokens of it at most."""
    stop_ids: frozenset[int]
    """Other tokens before which it ends."""
    at_least: int
    """None of these, nor EOS, is among its first so many tokens."""
    until: Callable[[str], bool] | None
    """It ends as soon as this is true of its text."""


class Reader(Protocol):
    """What deciding on the items of a measurement needs of a model; a dry run knows it without the weights."""

    name: str
    """As the user wrote it."""
    tokenizer: Any
    path: ReadingPath
    """How it is read."""

    @property
    def max_positions(self) -> int | None:
        """Tokens of the longest text; None without a limit."""

    @property
    def trained_length(self) -> int | None:
        """Context in tokens that the model was trained for, before any extension; None if not known."""

    @property
    def rope_by_length(self) -> str | None:
        """The rope method, if its frequencies depend on how many tokens are read in one go; None if not known."""


class Predictor(Reader, Protocol):
    """A model that is measured: its weights are here (`LoadedModel`), or an endpoint or llama.cpp runs it."""

    gives: ClassVar[frozenset[Want]]
    """What can be wanted of it."""

    @property
    def dtype(self) -> str | None:
        """What weights that are here are computed in; None of other software, which does not say."""

    @property
    def vocab_size(self) -> int | None:
        """Rows of the output head; None if not known."""

    def check_ready(self, tokens: int) -> None:
        """Raise UsageError if texts of `tokens` tokens cannot be read."""

    def read(self, readings: Sequence[Reading]) -> list[Read]:
        """Read a batch. What one reading gives depends on no other one, and on nothing read before.

        Raises:
            UsageError: a reading wants what this model does not give (see `check_wants`).
            NonFiniteLogits: with the index of the reading (`view`) and the position in it.
        """
        ...

    def write(self, prompts: Sequence[Tokens], *, at_once: int = 1, **ends: Unpack[Ends]) -> list[str]:
        """Greedy replies to prompts, each of which depends on its own prompt alone.

        Args:
            prompts: token ids. What they begin with may be read once.
            at_once: how many replies may be written side by side, which takes memory.
            **ends: where a reply ends.

        Raises:
            UsageError: a prompt leaves no room for its reply, or the model cannot end one so.
            NonFiniteLogits: logits that are NaN or infinite.
        """
        ...

    def again(self, reading: Reading, read: Read, *, dtype: str | None = None) -> list[tuple[Read, Read]]:
        """Pairs of reads of these tokens, or of the first of them, that differ by rounding alone; none: not known.

        Args:
            reading, read: one reading, and what it gave.
            dtype: round as in it, in place of the model's own.
        """
        ...

    def ids_of(self, text: str) -> list[int]:
        """The ids that its own software makes of a text, without BOS."""
        ...

    def fingerprint(self) -> dict[str, str]:
        """What a resumed run must find unchanged."""
        ...

    def describe(self) -> dict[str, Any]:
        """What a result records about its model; JSON values only."""
        ...


def check_wants(model: Predictor, want: Want, *, needs: str, fix: str) -> None:
    """Raise UsageError if a model does not give what is wanted; says what `needs` it, and the `fix`."""
    if want not in model.gives:
        raise UsageError(
            f"{model.name} does not give {want.value}, and {needs}",
            expected="a model whose weights are loaded here, or that llama.cpp reads",
            fix=fix,
        )


@contextmanager
def naming_bad_logits(model: Predictor, text: str | Callable[[int], str]) -> Iterator[None]:
    """Add the model's name and the text to a `NonFiniteLogits` raised inside, unless it has them.

    `text` is in words, or a function of the reading where several are read together.
    """
    try:
        yield
    except NonFiniteLogits as error:
        if error.text is not None:
            raise
        words = text if isinstance(text, str) else text(error.view or 0)
        raise NonFiniteLogits(error.position, model=model.name, text=words) from error
