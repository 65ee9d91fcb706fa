"""Corpora: documents, the unit of splits and resampling, from a name, file, folder, table or hub data set."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from lengthwise.errors import MissingError, UsageError, nearest
from lengthwise.files import named_path, say_embedded
from lengthwise.results import percent
from lengthwise.settings import TextOptions
from lengthwise.text.chats import chat_json, render_chat

Split = Literal["test", "train", "all"]

TEST_SHARE = 0.1

EMPTY, COPIES = "empty or null", "copies of other documents"
"""Why documents are left out of a corpus: intervals take those that are there to be independent."""
HUB_PREFIX = "hf://"


@dataclass(frozen=True)
class Corpus:
    """Documents of one source and split: the text of each by its id, which is the same in every run.

    `split_rule` says in words how the split was made; `fingerprint` is a hash of all ids and texts.
    `left_out` counts the documents that the source has and the corpus has not, by reason; `whole` is how many all
    splits of it have. The documents of a `chat` are lists of messages in JSON (`rendered`).
    """

    name: str
    documents: Mapping[str, str]
    split: Split
    split_rule: str
    fingerprint: str
    left_out: Mapping[str, int] = field(default_factory=dict)
    whole: int = 0
    chat: bool = False

    @property
    def part(self) -> str:
        """In words, which part of its source the corpus is; "" for all of it."""
        if len(self.documents) >= self.whole:
            return ""
        return f"the {self.split} split has {len(self.documents)} of {self.whole} documents"

    @property
    def facts(self) -> dict[str, Any]:
        """What a result records of it, besides what is left out."""
        return {
            "corpus": self.name,
            "split": self.split,
            "split_rule": self.split_rule,
            "corpus_fingerprint": self.fingerprint,
            "documents": len(self.documents),
        }

    def rendered(self, tokenizer: Any) -> Corpus:
        """The corpus as a model reads it: each chat as the tokenizer's template writes it.

        UsageError if the tokenizer has no template, or the template refuses a chat.
        """
        if not self.chat:
            return self
        documents: dict[str, str] = {}
        for own, messages in self.documents.items():
            documents[own] = render_chat(tokenizer, json.loads(messages), own, tokenize=False)
        rule, rest = self.split_rule, {"left_out": self.left_out, "whole": self.whole}
        return Corpus.of(self.name, documents, split=self.split, split_rule=rule, **rest)

    @classmethod
    def of(
        cls,
        name: str,
        documents: Mapping[str, str],
        *,
        split: Split,
        split_rule: str | None = None,
        left_out: Mapping[str, int] | None = None,
        whole: int = 0,
        chat: bool = False,
    ) -> Corpus:
        """A corpus of the documents that hold text, with its fingerprint.

        Without `split_rule`, `documents` are those of all splits. About one in ten is held out as test, those with
        the lowest hash of their id. The split of a document depends on its id alone, so it does not change when
        others are added. A corpus of one document is used as given.

        Raises:
            UsageError: no document holds text, or one cannot be written as UTF-8.
        """
        full = {own: text for own, text in documents.items() if text.strip()}
        first = dict[bytes, str]()
        kept = {own: text for own, text in full.items() if first.setdefault(_words(text), own) == own}
        # Adding to a Counter drops what is zero.
        counts = Counter(left_out)
        counts += Counter({EMPTY: len(documents) - len(full), COPIES: len(full) - len(kept)})
        for own, text in kept.items():
            try:
                f"{own}{text}".encode()
            except UnicodeEncodeError as error:
                raise UsageError(
                    f"{own!r}: half of a surrogate pair, {error.object[error.start]!r}",
                    expected="text and name that can be written as UTF-8",
                    fix="remove it, as by text.encode(errors='ignore').decode()",
                ) from error
        if split_rule is None:
            whole = len(kept)
            kept, split_rule = _split_by_hash(kept, split)
        if not kept:
            raise UsageError(
                f"{name} ({split} split) holds no text",
                expected="at least one document that is not empty",
                fix="give another file, another text field, or split 'all'",
            )
        return cls(name, kept, split, split_rule, _fingerprint(kept), dict(counts), whole, chat)

    def without(self, texts: Collection[str]) -> Corpus:
        """The corpus without the documents that are one of these texts, or a copy."""
        held = {*map(_words, texts)}
        kept = {own: text for own, text in self.documents.items() if _words(text) not in held}
        return replace(self, documents=kept, fingerprint=_fingerprint(kept))


def _words(text: str) -> bytes:
    """What copies of a text have in common: they may differ in white space at the ends."""
    return hashlib.sha256(text.strip().encode(errors="surrogatepass")).digest()


def _fingerprint(documents: Mapping[str, str]) -> str:
    found = hashlib.sha256()
    for encoded in (part.encode() for document in documents.items() for part in document):
        found.update(len(encoded).to_bytes(8, "big"))
        found.update(encoded)
    return found.hexdigest()


def left_out_note(left_out: Mapping[str, int], documents: int) -> list[str]:
    """The documents that give nothing to measure or train on, in words; `documents` are those with text."""
    if not left_out:
        return []
    # What nobody misses comes last.
    by_interest = sorted(left_out.items(), key=lambda each: each[0].startswith("hidden"))
    counts = ", ".join(why if why.startswith("the ") else f"{count} {why}" for why, count in by_interest)
    return [f"Documents and files left out of the text ({documents} documents have text): {counts}."]


def _split_by_hash(documents: dict[str, str], split: Split) -> tuple[dict[str, str], str]:
    """The documents of a split, and its rule."""
    if split == "all":
        return documents, "all documents"
    if len(documents) < 2:
        return documents, "used as given: a single document"
    digests = {own: hashlib.sha256(own.encode()).digest() for own in documents}
    shares = {own: int.from_bytes(digest[:8], "big") / 2**64 for own, digest in digests.items()}
    # At least one document in each split.
    threshold = min(max(TEST_SHARE, min(shares.values())), sorted(shares.values())[-2])
    chosen = {own: text for own, text in documents.items() if (shares[own] <= threshold) == (split == "test")}
    return chosen, f"by hash of the document id, about {percent(TEST_SHARE)} held out as test"


TextLike = str | Path | Corpus | Sequence[str]
"""A name or path that `load_corpus` takes, a corpus, or texts."""


def load_corpus(
    spec: Path | str,
    *,
    split: Split | None = None,
    text_field: str = "text",
    encoding: str = "utf-8",
    skip_unreadable: bool = False,
    text_tokens: int = 10_000_000,
) -> Corpus:
    """Load texts by name, path or hub id.

    Args:
        spec: "books" or "code"; a file of text (.txt, .md), of rows (.jsonl, .json, .csv, .tsv) or of both in .gz,
            .bz2, .xz or .zst; a .parquet file; a folder of such files; a hub data set as
            `hf://owner/name[:config][@split]` (or `owner/name` if there is no such path). A local folder in the hub's
            layout may replace `owner/name`.
        split: the held-out documents, the others, or all. Default: all of a file, folder or @split, else test.
            `Corpus.split_rule` says how they were chosen.
        text_field: the column of tables and data sets that holds the text, or the messages of a chat.
        encoding: of files.
        skip_unreadable: leave out, and count, files that are not in this encoding and rows without the field.
        text_tokens: a data set is read up to so many tokens, of four characters each.

    Raises:
        UsageError: an unknown name, split or field, a split beside @split, a field of what has no columns, or text
            that cannot be read.
        MissingError: a file, package or data set that does not exist.
    """
    how = TextOptions(
        split=split,
        text_field=text_field,
        encoding=encoding,
        skip_unreadable=skip_unreadable,
        text_tokens=text_tokens,
    )
    path, spec = named_path(spec, what="the text"), str(spec)
    embedded = _embedded(spec)
    if embedded is not None:
        how.check_used(spec, "an embedded text", {"split"})
        if path.exists():
            say_embedded(path.absolute())
        wanted: Split = split or "test"
        documents, left_out = embedded["read"](
            lambda own: wanted == "all" or f"{own}/".startswith(embedded["held_out"]) == (wanted == "test")
        )
        rule = "all documents" if wanted == "all" else embedded["split_rule"]
        return Corpus.of(spec, documents, split=wanted, split_rule=rule, left_out=left_out)
    from lengthwise.text.local_files import is_text_file, read_files

    if path.exists():
        return _corpus_of(spec, *read_files(path, how), split=split or "all")
    known = is_text_file(path)
    if spec.startswith(HUB_PREFIX) or (re.fullmatch(r"\w[^/]*/[^/]+", spec) and not known):
        from lengthwise.text.hub import read_data_set, split_in

        name = spec.removeprefix(HUB_PREFIX)
        if (own := split_in(name)) is not None and split is not None:
            raise UsageError(
                f"split is {split!r}, and {spec} names its split {own!r}",
                expected="one of them",
                fix="leave split out (split: null in a recipe), or the @split",
            )
        wanted = "all" if own is not None else split or "test"
        how.check_used(spec, "a data set", TextOptions.model_fields.keys() - {"encoding"})
        values, left_out, rule = read_data_set(name, wanted, how)
        return _corpus_of(HUB_PREFIX + name, values, left_out, split=wanted, rule=rule)
    if "/" in spec or known:
        raise MissingError(f"there is no file or folder {spec}", fix="check the path")
    from lengthwise.text.embedded_texts import EMBEDDED_CORPORA

    raise UsageError(
        f"unknown corpus {spec!r}: it is not embedded and there is no such path",
        expected=nearest(spec, EMBEDDED_CORPORA),
        fix="give a file, a folder or hf://owner/name",
    )


def _embedded(spec: str) -> dict[str, Any] | None:
    """The text of this name. What has a dot or a slash is no such name."""
    if "." in spec or "/" in spec:
        return None
    from lengthwise.text.embedded_texts import EMBEDDED_CORPORA

    return EMBEDDED_CORPORA.get(spec)


def as_corpus(text: TextLike, **how: Any) -> Corpus:
    """A corpus as it is; that of a name or path, `how` as `load_corpus`; or of a list of texts, used as given.

    Raises:
        UsageError, MissingError: as `load_corpus`; or it is something else.
    """
    if isinstance(text, Corpus):
        return text
    if isinstance(text, str | Path):
        return load_corpus(str(text), **how)
    if not isinstance(text, Sequence) or not all(isinstance(each, str) for each in text):
        raise UsageError(
            f"a {type(text).__name__} is not a text",
            expected="a name or path, a Corpus, TokenDocuments, or a list of strings",
        )
    documents = {f"text:{number}": each for number, each in enumerate(text, start=1)}
    return Corpus.of("texts", documents, split="all", split_rule="used as given")


def _corpus_of(
    name: str,
    values: Mapping[str, Any],
    left_out: Mapping[str, int],
    *,
    split: Split,
    rule: str | None = None,
) -> Corpus:
    """A corpus of texts, or of chats."""
    given = [value for value in values.values() if value]
    chat = any(isinstance(value, list) for value in given)
    if chat and not all(isinstance(value, list) for value in given):
        problem = f"{name} has texts and chats"
        raise UsageError(problem, expected="one of them", fix="give the files of one kind")
    documents = {own: chat_json(value) if chat and value else value for own, value in values.items()}
    return Corpus.of(name, documents, split=split, split_rule=rule, left_out=left_out, chat=chat)
