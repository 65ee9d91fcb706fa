"""Old name of `corpus_sources`."""

from lengthwise.text.corpus_sources import EMBEDDED_CORPORA as EMBEDDED_CORPORA
from lengthwise.text.corpus_sources import as_corpus as as_corpus
from lengthwise.text.corpus_sources import as_documents as as_documents
from lengthwise.text.corpus_sources import load_corpus as load_corpus
