"""Texts: corpora, their fixed split, token documents, windows."""

from lengthwise.text.corpus import Corpus, Split, left_out_note
from lengthwise.text.corpus_sources import TextLike, as_corpus, as_documents, load_corpus
from lengthwise.text.embedded_texts import EMBEDDED_CORPORA, EmbeddedCorpus
from lengthwise.text.tokens import TokenDocument, TokenDocuments, tokenize, tokenizer_fingerprint
from lengthwise.text.windows import (
    Bos,
    Window,
    WindowSampler,
    pack_documents,
    resolve_bos,
    sample_windows,
    view,
)

__all__ = [
    "EMBEDDED_CORPORA",
    "Bos",
    "Corpus",
    "EmbeddedCorpus",
    "Split",
    "TextLike",
    "TokenDocument",
    "TokenDocuments",
    "Window",
    "WindowSampler",
    "as_corpus",
    "as_documents",
    "left_out_note",
    "load_corpus",
    "pack_documents",
    "resolve_bos",
    "sample_windows",
    "tokenize",
    "tokenizer_fingerprint",
    "view",
]
