"""Documents as token ids, cached so that a text is tokenised once per tokenizer."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lengthwise.errors import LengthwiseError
from lengthwise.files import build_once, cache_dir
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

    With `cache`, the ids come from the cache folder if this text was tokenised by this tokenizer before. If the cache
    cannot be written, nothing is cached.
    """
    tokenizer_key = tokenizer_fingerprint(tokenizer)
    key = hashlib.sha256(f"{tokenizer_key} {corpus.fingerprint}".encode()).hexdigest()

    def build(folder: Path) -> None:
        encoded = _encode(corpus, tokenizer)
        np.save(folder / "ids.npy", np.concatenate(encoded))
        np.save(folder / "ends.npy", np.cumsum([len(own) for own in encoded]))

    ids = None
    if cache:
        try:
            folder = build_once(cache_dir() / "tokens" / key[:32], build, what=f"the tokens of {corpus.name}")
            ids = np.split(np.load(folder / "ids.npy"), np.load(folder / "ends.npy")[:-1])
        except LengthwiseError as error:
            logger.warning("the tokens are not kept: %s", error.problem)
    documents = zip(corpus.documents, ids or _encode(corpus, tokenizer), strict=True)
    return TokenDocuments(
        tuple(TokenDocument(*document) for document in documents),
        corpus.name,
        corpus.fingerprint,
        tokenizer_key,
    )


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


def _encode(corpus: Corpus, tokenizer: Any) -> list[NDArray[np.int32]]:
    texts, ids = list(corpus.documents.values()), []
    starts: Iterable[int] = range(0, len(texts), _BATCH)
    if sum(map(len, texts)) > _LARGE:
        starts = progress(starts, what="tokenize")
    for start in starts:
        # verbose=False: the warning "longer than the maximum" does not apply to whole documents.
        encoded = tokenizer(
            texts[start : start + _BATCH],
            add_special_tokens=False,
            return_attention_mask=False,
            verbose=False,
        )
        ids += [np.array(own, dtype=np.int32) for own in encoded["input_ids"]]
    return ids
