"""Old name of `corpus_sources`."""

from lengthwise.text.corpus_sources import EMBEDDED_CORPORA as EMBEDDED_CORPORA
from lengthwise.text.corpus_sources import load_corpus as load_corpus
