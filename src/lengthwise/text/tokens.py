"""Documents as token ids, cached so that a text is tokenised once per tokenizer."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from lengthwise.cache import cache_dir
from lengthwise.errors import LengthwiseError
from lengthwise.files import atomic_write_bytes
from lengthwise.progress import progress
from lengthwise.text.corpus import Corpus

if TYPE_CHECKING:
    from numpy.typing import NDArray

logger = logging.getLogger(__name__)

_FORMAT = 1
_BATCH = 16
_LARGE = 2_000_000
"""Characters from which on tokenising shows its progress: seconds of prose, a minute of text without spaces."""


@dataclass(frozen=True)
class TokenDocument:
    """The token ids of one document, without special tokens."""

    id: str
    ids: NDArray[np.int32]


@dataclass(frozen=True)
class TokenDocuments(Sequence[TokenDocument]):
    """The documents of a corpus as tokens, with the fingerprints of the corpus and of the tokenizer."""

    documents: tuple[TokenDocument, ...]
    corpus: str
    corpus_fingerprint: str
    tokenizer_fingerprint: str

    @property
    def total_tokens(self) -> int:
        """Tokens in all documents."""
        return sum(len(document.ids) for document in self.documents)

    def left_out(self, lengths: Iterable[int]) -> dict[str, int]:
        """Documents that are shorter than each of `lengths` tokens, by that reason; without zeros."""
        shorter = {
            length: sum(len(document.ids) < length for document in self) for length in sorted(set(lengths))
        }
        return {f"shorter than {length} tokens": count for length, count in shorter.items() if count}

    @property
    def longest(self) -> int:
        """Tokens in the longest document."""
        return max((len(document.ids) for document in self.documents), default=0)

    def __len__(self) -> int:
        return len(self.documents)

    @overload
    def __getitem__(self, index: int) -> TokenDocument: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[TokenDocument]: ...
    def __getitem__(self, index: int | slice) -> TokenDocument | Sequence[TokenDocument]:
        return self.documents[index]

    def __iter__(self) -> Iterator[TokenDocument]:
        return iter(self.documents)


def tokenize(corpus: Corpus, tokenizer: Any, *, cache: bool = True) -> TokenDocuments:
    """Token ids of every document, without special tokens.

    With `cache`, the ids come from the cache folder if this text was tokenised by this tokenizer before. Damaged
    entries are replaced; if the cache cannot be written, nothing is cached.
    """
    tokenizer_key = tokenizer_fingerprint(tokenizer)
    key = hashlib.sha256(f"{_FORMAT} {tokenizer_key} {corpus.fingerprint}".encode()).hexdigest()
    path = cache_dir() / "tokens" / f"{key[:32]}.tokens"
    documents = _read(path, corpus) if cache else None
    if documents is None:
        documents = _encode(corpus, tokenizer)
        if cache:
            try:
                atomic_write_bytes(path, _pack(documents))
            except LengthwiseError as error:
                logger.warning("the tokens are not kept: %s", error.problem)
    return TokenDocuments(documents, corpus.name, corpus.fingerprint, tokenizer_key)


def tokenizer_fingerprint(tokenizer: Any) -> str:
    """A hash of everything that decides the ids of plain text (not of padding, truncation or templates)."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        state = json.loads(backend.to_str())
        for passing in ("truncation", "padding"):
            state.pop(passing, None)
    else:
        state = {"class": type(tokenizer).__name__, "vocabulary": tokenizer.get_vocab()}
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


def token_pieces(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """The characters that each token adds to the text; of a character in several tokens the last has all of it."""
    pieces = []
    for index in range(len(ids)):
        begin = max(0, index - 4)
        before = tokenizer.decode(ids[begin:index]).rstrip("\ufffd") if index else ""
        pieces.append(tokenizer.decode(ids[begin : index + 1]).rstrip("\ufffd")[len(before) :])
    return pieces


def _encode(corpus: Corpus, tokenizer: Any) -> tuple[TokenDocument, ...]:
    documents: list[TokenDocument] = []
    size = sum(len(document.text) for document in corpus.documents)
    longest = max(len(document.text) for document in corpus.documents)
    # A document is tokenised whole, so the bar moves by documents. Pieces would have other tokens at their ends.
    what = f"tokenize (longest document: {longest:,} characters)"
    bar = progress((), what=what, total=size) if size > _LARGE else None
    for start in range(0, len(corpus.documents), _BATCH):
        batch = corpus.documents[start : start + _BATCH]
        # verbose=False: the warning "longer than the maximum" does not apply to whole documents.
        encoded = tokenizer(
            [document.text for document in batch],
            add_special_tokens=False,
            return_attention_mask=False,
            verbose=False,
        )
        for document, ids in zip(batch, encoded["input_ids"], strict=True):
            documents.append(TokenDocument(document.id, np.array(ids, dtype=np.int32)))
        if bar is not None:
            bar.update(sum(len(document.text) for document in batch))
    if bar is not None:
        bar.close()
    return tuple(documents)


def _pack(documents: tuple[TokenDocument, ...]) -> bytes:
    ids = np.concatenate([document.ids for document in documents]).astype("<i4").tobytes()
    sizes = [len(document.ids) for document in documents]
    header = {"format": _FORMAT, "sizes": sizes, "sha256": hashlib.sha256(ids).hexdigest()}
    return json.dumps(header).encode() + b"\n" + ids


def _read(path: Path, corpus: Corpus) -> tuple[TokenDocument, ...] | None:
    """The entry at `path`; None if there is none or it is damaged."""
    try:
        header_line, _, payload = path.read_bytes().partition(b"\n")
    except FileNotFoundError:
        return None
    except OSError as error:
        logger.warning("cannot read the token cache %s: %s", path, error)
        return None
    try:
        header = json.loads(header_line)
        sizes: list[int] = header["sizes"]
        whole = (
            header["format"] == _FORMAT
            and header["sha256"] == hashlib.sha256(payload).hexdigest()
            and len(sizes) == len(corpus.documents)
            and 4 * sum(sizes) == len(payload)
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        whole = False
        sizes = []
    if not whole:
        logger.warning("the token cache %s is damaged; the text is tokenised again", path)
        return None
    ids = np.frombuffer(payload, dtype="<i4").astype(np.int32, copy=False)
    ends = np.cumsum(sizes)
    return tuple(
        TokenDocument(document.id, ids[end - size : end])
        for document, size, end in zip(corpus.documents, sizes, ends, strict=True)
    )
