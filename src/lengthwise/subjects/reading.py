"""What a measurement wants read, and what came back: the same of weights, an endpoint and llama.cpp.

A measurement makes `Reading`s. A `Predictor` reads them its own way and along its own path: in one pass or in pieces,
sharing what they have in common or not, in one batch or in several. What comes back does not depend on that.

Importing this loads no torch.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Required, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from lengthwise.errors import UsageError, require_kind, shown
from lengthwise.settings import Subject

if TYPE_CHECKING:
    from torch import Tensor

    from lengthwise.subjects.rows import Rows

Tokens = tuple[int, ...]
"""Token ids of a prompt."""
_NONE = np.empty(0, dtype=np.int64)


CHUNK = 256
"""Tokens of a pass through a cache, where the user does not say."""
DECODE = 128
"""Tokens that are read one by one, where the user does not say."""


@dataclass(frozen=True)
class ReadingPath:
    """Which tokens of a sequence one forward pass reads."""

    chunk: int | None = None
    """Tokens of a pass; None reads all of them in one."""
    decode: int = 0
    """How many tokens at the end are read one at a time, after a prefill."""
    cache: Callable[[Any, int], Any] | None = None
    """(configuration of the text model, most tokens) -> the Cache that is read through; None: the model's own."""
    option: str = ""
    """How the user named it."""

    @property
    def in_one_pass(self) -> bool:
        """Whether nothing is read back from a cache."""
        return self.chunk is None and not self.decode

    def pieces(self, length: int, begin: int = 0) -> list[int]:
        """The tokens of each pass over a sequence of `length` tokens, from `begin` on, where one ends."""
        decoded = min(self.decode, length)
        size = self.chunk or max(1, length - decoded)
        full, rest = divmod(length - decoded, size)
        passes = [size] * full + [rest] * (rest > 0) + [1] * decoded
        return passes[np.searchsorted(np.cumsum(passes), begin, side="right") :] if begin else passes


def reading_path(subject: Subject) -> ReadingPath:
    """The path of a subject: what it names; default one pass, or chunks where a cache is named.

    UsageError for an unknown path, one pass with a cache, which it would never read, or as `chosen_cache`.
    """
    # llama.cpp reads every token from its cache.
    if subject.kind != "weights" or (subject.kv_cache or subject.cache) is None:
        return _passes(subject, cached=False)
    from lengthwise.subjects.caches import chosen_cache

    option, cache = chosen_cache(subject)
    return replace(_passes(subject, cached=True), cache=cache, option=option)


def _passes(subject: Subject, *, cached: bool) -> ReadingPath:
    if subject.read is None:
        return ReadingPath(chunk=CHUNK if cached else None)
    parsed = re.fullmatch(r"(prefill)|chunks=0*([1-9]\d{0,17})|decode(?:=0*([1-9]\d{0,17}))?", subject.read)
    if parsed is None:
        raise UsageError(
            f"read is {shown(subject.read)}",
            expected="prefill (one pass), chunks=N (passes of N tokens), decode or decode=N (the last N one by one)",
        )
    prefill, chunk, decode = parsed.groups()
    if chunk and subject.kind == "endpoint":
        raise UsageError(
            f"read is {subject.read!r}, and {subject.model} is an endpoint, whose server decides on its chunks",
            expected="prefill, decode or decode=N",
        )
    if prefill and cached:
        raise UsageError(
            "one pass never reads from a cache",
            expected=f"read=chunks={CHUNK} or read=decode with kv_cache or cache",
        )
    if prefill or chunk:
        return ReadingPath(chunk=int(chunk) if chunk else None)
    return ReadingPath(decode=int(decode or DECODE))


def check_chunk(chunk: int, tokens: int) -> None:
    """Raise UsageError where one pass of `chunk` tokens reads a whole text of `tokens`: it reads no cache."""
    if tokens <= chunk:
        raise UsageError(
            f"{tokens} tokens are read in one pass of {chunk}: no cache is read",
            expected=f"lengths of more than {chunk} tokens, or a smaller read=chunks=N",
        )


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

    def __post_init__(self) -> None:
        _check_ids(self)

    def after(self, text: NDArray[Any]) -> NDArray[Any]:
        """Its tokens, and before them those of a text that it continues."""
        return np.concatenate([text[: self.place], self.tokens])


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

    def __post_init__(self) -> None:
        _check_ids(self)
        require_kind("what is wanted of a reading", self.want, Want, "Want.LOSS, Want.NEXT or Want.ROWS")
        if beyond := [each.place for each in self.branches if not 0 <= each.place <= len(self.tokens)]:
            raise UsageError(
                f"a branch begins after {beyond[0]} tokens of a text of {len(self.tokens)}",
                expected=f"a place in 0 .. {len(self.tokens)}",
            )


def _check_ids(read: Reading | Branch) -> None:
    """Refuse what torch would cut off, or leave out of a loss: fractions, and -100."""
    for name in ("tokens", "labels"):
        ids: Any = getattr(read, name)
        whole = isinstance(ids, np.ndarray) and ids.ndim == 1 and ids.dtype.kind in "iu"
        if not whole or (ids.size and ids.min() < 0):
            raise UsageError(
                f"the {name} of a reading are {shown(ids)}", expected="an array [N] of ids: integers from 0"
            )
    if len(read.labels) > len(read.tokens):
        problem = f"{len(read.labels)} labels of {len(read.tokens)} tokens"
        raise UsageError(problem, expected="at most one for each token")


def _no_losses() -> Tensor:
    import torch

    return torch.empty(0, dtype=torch.float64)


@dataclass(eq=False, kw_only=True)
class Read:
    """What a reading gave."""

    losses: Tensor = field(default_factory=_no_losses)
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

    def check_unchanged(self) -> None:
        """Raise UsageError if it is not what it was when `check_ready` was asked."""

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

    def fingerprint(self) -> dict[str, Any]:
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
