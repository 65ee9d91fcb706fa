"""Text as tokens: documents, cached so that a text is tokenised once per tokenizer; special tokens around a text."""

from __future__ import annotations

import hashlib
import json
import logging
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from lengthwise.errors import LengthwiseError, UsageError, require, require_known, shown
from lengthwise.files import build_once, cache_dir, sha256, writing
from lengthwise.progress import progress
from lengthwise.text.corpus import Corpus, TextLike, as_corpus

Bos = Literal["auto", "always", "never"]

logger = logging.getLogger(__name__)

FIRST = 8_000_000
"""Characters of the first part of a large text; each further one has four times as many."""
_BATCH = 16
LONG = 1 << 19
"""Characters of a document from which on it is tokenised in pieces."""
_LARGE = 2_000_000
"""Characters from which on tokenising shows its progress."""
_DOCUMENTS = 32
"""Documents that a part is of at least, if there are so many."""
_APART = {
    "name_or_path", "vocab_file", "merges_file", "tokenizer_file", "is_local", "local_files_only", "revision",
    "model_max_length", "padding_side", "truncation_side", "chat_template", "clean_up_tokenization_spaces",
}  # fmt: skip
"""Settings of a tokenizer that decide no id of a text: its place, templates, limits and how it decodes."""


@dataclass(frozen=True)
class TokenDocument:
    """The token ids of one document, without special tokens. UsageError unless they are a row of whole numbers."""

    id: str
    ids: NDArray[np.int32]

    def __post_init__(self) -> None:
        row = isinstance(self.ids, np.ndarray) and self.ids.ndim == 1 and self.ids.dtype.kind in "iu"
        require(
            row, f"the ids of document {self.id} are {shown(self.ids)}", "np.array([...], dtype=np.int32)"
        )


class MoreText(Exception):
    """The part of a text that was tokenized so far has too few windows."""


@dataclass(frozen=True)
class TokenDocuments(Sequence[TokenDocument]):
    """The documents of a corpus as tokens, with the fingerprints of the corpus and of the tokenizer.

    An empty fingerprint of the tokenizer says that it is not known; then any model may read them.
    """

    documents: tuple[TokenDocument, ...]
    corpus: str
    corpus_fingerprint: str
    tokenizer_fingerprint: str
    part: str = ""
    """In words, which part of its source the text is; "" for all of it."""
    more: bool = False
    """Whether these tokens are only the beginning of the text: `MoreText` then asks for the rest."""

    @property
    def total_tokens(self) -> int:
        """Tokens in all documents."""
        return sum(len(document.ids) for document in self.documents)

    def left_out(self, lengths: Iterable[int]) -> dict[str, int]:
        """Documents that are shorter than each of `lengths` tokens, by that reason; without zeros."""
        return {
            f"shorter than {length} tokens": count
            for length in sorted(set(lengths))
            if (count := sum(len(document.ids) < length for document in self))
        }

    @property
    def longest(self) -> int:
        """Tokens in the longest document."""
        return max((len(document.ids) for document in self.documents), default=0)

    def __len__(self) -> int:
        return len(self.documents)

    def __getitem__(self, index: Any) -> Any:
        return self.documents[index]


def tokenize(text: TextLike | TokenDocuments, tokenizer: Any, *, cache: bool = True) -> TokenDocuments:
    """Token ids of every document, without special tokens; token documents of this tokenizer stay as they are.

    With `cache`, the ids come from the cache folder if this text was tokenised by this tokenizer before. A list of
    texts is not cached, and nothing is if the cache cannot be written.

    Raises:
        UsageError: the text is in tokens of another tokenizer.
    """
    if isinstance(text, TokenDocuments):
        if text.tokenizer_fingerprint and text.tokenizer_fingerprint != tokenizer_fingerprint(tokenizer):
            problem = f"{text.corpus} is in tokens of another tokenizer than the model's"
            fix = "tokenize it with the tokenizer of this model, or give the text itself"
            raise UsageError(problem, fix=fix)
        return text
    corpus = as_corpus(text).rendered(tokenizer)
    tokenizer_key = tokenizer_fingerprint(tokenizer)
    key = hashlib.sha256(f"{tokenizer_key} {corpus.fingerprint}".encode()).hexdigest()

    def encoded() -> list[NDArray[np.int32]]:
        return encode(corpus.documents.values(), tokenizer)

    def build(folder: Path) -> None:
        found = encoded()
        np.save(folder / "ids.npy", np.concatenate(found))
        np.save(folder / "ends.npy", np.cumsum([len(own) for own in found]))

    ids = None
    if cache and isinstance(text, str | Path | Corpus):
        try:
            folder = build_once(cache_dir() / "tokens" / key[:32], build, what=f"the tokens of {corpus.name}")
            # Mapped, so that the processes of a machine share the memory. The plain view of a map is cheap to cut.
            mapped = np.asarray(np.load(folder / "ids.npy", mmap_mode="r"))
            ids = np.split(mapped, np.load(folder / "ends.npy")[:-1])
        except LengthwiseError as error:
            logger.warning("the tokens are not kept: %s", error.problem)
    documents = tuple(map(TokenDocument, corpus.documents, ids or encoded()))
    return TokenDocuments(documents, corpus.name, corpus.fingerprint, tokenizer_key, corpus.part)


def encode(documents: Iterable[str], tokenizer: Any) -> list[NDArray[np.int32]]:
    """The ids of every document, without special tokens."""

    def encoded(texts: Sequence[str]) -> Any:
        # verbose=False: the warning "longer than the maximum" does not apply to whole documents.
        return tokenizer(texts, add_special_tokens=False, return_attention_mask=False, verbose=False)

    def array(ids: Sequence[int | None]) -> NDArray[np.int32]:
        return np.array(known_ids(tokenizer, ids), dtype=np.int32)

    texts, ids, skip = list(documents), list[Any](), None
    size = sum(map(len, texts))
    if max(map(len, texts)) > LONG:
        from lengthwise.text.encoding import skipped_at_a_cut

        skip = skipped_at_a_cut(tokenizer)
    with progress((), what="tokenize", total=size, unit="char") if size > _LARGE else nullcontext() as bar:
        moved = bar.update if bar is not None else (lambda _: None)
        for start in range(0, len(texts), _BATCH):
            batch = texts[start : start + _BATCH]
            if skip is None or max(map(len, batch)) <= LONG:
                ids += map(array, encoded(batch)["input_ids"])
                moved(sum(map(len, batch)))
                continue
            from lengthwise.text.encoding import in_pieces

            for text in batch:
                pieces = list[Any]()
                for own, characters in in_pieces(text, lambda some: encoded(some).encodings, skip):
                    pieces.append(array(own))
                    moved(characters)
                ids.append(np.concatenate(pieces))
    return ids


def known_ids(tokenizer: Any, ids: Sequence[int | None]) -> Sequence[int]:
    """The ids; UsageError if the tokenizer has none for some part of a text, as one without an unknown token may."""
    if None in ids:
        name = getattr(tokenizer, "name_or_path", "") or type(tokenizer).__name__
        raise UsageError(
            f"the tokenizer {name} has no id for token {ids.index(None)} of {len(ids)} of a text",
            expected="a tokenizer that has an id for every text, or an unknown token",
        )
    return cast("Sequence[int]", ids)


def token_parts(
    text: Corpus | TokenDocuments, tokenizer: Any, *, cache: bool, whole: bool
) -> Iterator[TokenDocuments]:
    """The text in tokens; of a large one first the beginnings of some documents, then of more and longer ones.

    `sample_windows` raises `MoreText` on a part that has too few. With `whole` there are no parts.
    """
    if isinstance(text, Corpus) and not whole:
        for part in _parts(text):
            found = tokenize(part, tokenizer, cache=cache)
            yield replace(found, corpus_fingerprint=text.fingerprint, more=True)
    yield tokenize(text, tokenizer, cache=cache)


def _parts(text: Corpus) -> Iterator[Corpus]:
    """Which documents a part has depends on their ids alone."""
    size, characters = sum(map(len, text.documents.values())), FIRST
    order = sorted(text.documents, key=lambda own: hashlib.sha256(own.encode()).digest())
    while size > 4 * characters:
        most, left, begun = characters // _DOCUMENTS, characters, set[str]()
        for own in order:
            if left > 0:
                begun.add(own)
                left -= min(len(text.documents[own]), most)
        some = {own: each[:most] for own, each in text.documents.items() if own in begun}
        if any(map(str.strip, some.values())):
            yield Corpus.of(text.name, some, split=text.split, split_rule=text.split_rule)
        characters *= 4


def part_note(documents: TokenDocuments | None) -> list[str]:
    """What was read of a text that is larger than the windows need."""
    if documents is None or not documents.more:
        return []
    read = (
        "the beginning of one document"
        if len(documents) == 1
        else f"the beginnings of {len(documents)} documents"
    )
    return [
        f"The windows are from {read} ({documents.total_tokens:,} tokens): they need no more of the text."
    ]


def tokenizer_fingerprint(tokenizer: Any) -> str:
    """A hash of everything that decides the ids of plain text (not of padding, truncation or templates)."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        state = json.loads(backend.to_str())
        for passing in ("truncation", "padding"):
            state.pop(passing, None)
    else:
        _check_tokenizer(tokenizer)
        state = _state_without_backend(tokenizer)
    if getattr(tokenizer, "split_special_tokens", False):
        # The backend's JSON has no word of it.
        state["split_special_tokens"] = True
    return hashlib.sha256(json.dumps(state, sort_keys=True, default=str).encode()).hexdigest()


def _state_without_backend(tokenizer: Any) -> dict[str, Any]:
    """What decides the ids of a tokenizer in Python: its class, its settings and what it saves of its vocabulary."""
    given = getattr(tokenizer, "init_kwargs", {})
    # One that is empty is left out by some versions of transformers when they save.
    settings = {
        name: value for name, value in given.items() if name not in _APART and value not in (None, [], {})
    }
    with tempfile.TemporaryDirectory() as folder, writing(Path(folder), fix="free space"):
        # One of the user's own has no such method, or that of transformers' base class, which saves nothing.
        with suppress(NotImplementedError):
            getattr(tokenizer, "save_vocabulary", str)(folder)
        files = {file.name: sha256(file) for file in Path(folder).iterdir()}
    added = {number: repr(token) for number, token in getattr(tokenizer, "added_tokens_decoder", {}).items()}
    return {
        "class": type(tokenizer).__name__,
        "vocabulary": tokenizer.get_vocab(),
        "settings": settings,
        "files": files,
        "added": added,
    }


def _check_tokenizer(tokenizer: Any) -> None:
    is_one = hasattr(tokenizer, "get_vocab")
    require(
        is_one,
        f"the tokenizer is {shown(tokenizer)}",
        "one of transformers: AutoTokenizer.from_pretrained(...)",
    )


def resolve_bos(tokenizer: Any, setting: Bos) -> int | None:
    """The BOS id at the start of every view, or None; "auto" follows the tokenizer's own behaviour on plain text.

    Raises:
        UsageError: an unknown setting, or "always" with a tokenizer that has no BOS token.
    """
    require_known(setting, get_args(Bos), "unknown bos")
    _check_tokenizer(tokenizer)
    bos_id = tokenizer.bos_token_id
    if setting == "always" and bos_id is None:
        raise UsageError(
            "bos is 'always', but the tokenizer has no BOS token", fix="use bos 'auto' or 'never'"
        )
    begins = setting == "always" or (setting == "auto" and tokenizer("a").input_ids[:1] == [bos_id])
    return bos_id if begins else None


def added_tokens(tokenizer: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The special tokens that a tokenizer puts before and after a text by itself."""
    plain, whole = (list(tokenizer("a", add_special_tokens=added).input_ids) for added in (False, True))
    for start in range(len(whole) - len(plain) + 1):
        if plain and whole[start : start + len(plain)] == plain:
            return tuple(whole[:start]), tuple(whole[start + len(plain) :])
    return tuple(whole), ()


def other_beginning(tokenizer: Any) -> str | None:
    """What is said of the special tokens that begin a text, unless they are BOS alone: no window begins with them."""
    before, _ = added_tokens(tokenizer)
    if before in ((), (tokenizer.bos_token_id,)):
        return None
    return f"the tokenizer begins a text with {tokenizer.decode([*before])!r}, which no window does"
