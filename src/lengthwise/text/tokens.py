"""Documents as token ids, cached so that a text is tokenised once per tokenizer."""

from __future__ import annotations

import hashlib
import io
import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lengthwise.cache import cache_dir
from lengthwise.errors import LengthwiseError
from lengthwise.files import atomic_write_bytes
from lengthwise.processes import progress
from lengthwise.text.corpus import Corpus

if TYPE_CHECKING:
    from numpy.typing import NDArray

logger = logging.getLogger(__name__)

_BATCH = 16
_LARGE = 2_000_000
"""Characters from which on tokenising shows its progress."""


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

    def __getitem__(self, index: Any) -> Any:
        return self.documents[index]


def tokenize(corpus: Corpus, tokenizer: Any, *, cache: bool = True) -> TokenDocuments:
    """Token ids of every document, without special tokens.

    With `cache`, the ids come from the cache folder if this text was tokenised by this tokenizer before. Damaged
    entries are replaced; if the cache cannot be written, nothing is cached.
    """
    tokenizer_key = tokenizer_fingerprint(tokenizer)
    key = hashlib.sha256(f"{tokenizer_key} {corpus.fingerprint}".encode()).hexdigest()
    path = cache_dir() / "tokens" / f"{key[:32]}.npz"
    documents = _read(path, corpus) if cache else None
    if documents is None:
        documents = _encode(corpus, tokenizer)
        if cache:
            stream = io.BytesIO()
            ids = np.concatenate([document.ids for document in documents])
            np.savez(stream, ids=ids, sizes=[len(document.ids) for document in documents])
            try:
                atomic_write_bytes(path, stream.getvalue())
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
    documents, ids = corpus.documents, []
    starts: Iterable[int] = range(0, len(documents), _BATCH)
    if sum(len(document.text) for document in documents) > _LARGE:
        starts = progress(starts, what="tokenize")
    for start in starts:
        # verbose=False: the warning "longer than the maximum" does not apply to whole documents.
        encoded = tokenizer(
            [document.text for document in documents[start : start + _BATCH]],
            add_special_tokens=False,
            return_attention_mask=False,
            verbose=False,
        )
        ids += encoded["input_ids"]
    return tuple(
        TokenDocument(document.id, np.array(own, dtype=np.int32))
        for document, own in zip(documents, ids, strict=True)
    )


def _read(path: Path, corpus: Corpus) -> tuple[TokenDocument, ...] | None:
    """The entry at `path`; None if there is none or it is damaged."""
    try:
        with np.load(io.BytesIO(path.read_bytes())) as entry:
            # Reading an array does not compare its checksum to the end.
            damaged = entry.zip.testzip()
            ids, ends = entry["ids"], np.cumsum(entry["sizes"])
        if damaged is None and len(ends) == len(corpus.documents) and ends[-1] == len(ids):
            parts = np.split(ids, ends[:-1])
            return tuple(
                TokenDocument(document.id, part)
                for document, part in zip(corpus.documents, parts, strict=True)
            )
    except FileNotFoundError:
        return None
    # A damaged archive leads zipfile and NumPy to errors of many types.
    except Exception as error:
        logger.debug("%s", error)
    logger.warning("the token cache %s is damaged; the text is tokenised again", path)
    return None
