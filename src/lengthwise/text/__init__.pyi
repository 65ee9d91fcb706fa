"""What `lengthwise.text` exports, as `lengthwise/__init__.pyi`."""

from lengthwise.text.corpus import Corpus as Corpus
from lengthwise.text.corpus import Split as Split
from lengthwise.text.corpus import TextLike as TextLike
from lengthwise.text.corpus import as_corpus as as_corpus
from lengthwise.text.corpus import left_out_note as left_out_note
from lengthwise.text.corpus import load_corpus as load_corpus
from lengthwise.text.embedded_texts import EMBEDDED_CORPORA as EMBEDDED_CORPORA
from lengthwise.text.tokens import Bos as Bos
from lengthwise.text.tokens import MoreText as MoreText
from lengthwise.text.tokens import TokenDocument as TokenDocument
from lengthwise.text.tokens import TokenDocuments as TokenDocuments
from lengthwise.text.tokens import part_note as part_note
from lengthwise.text.tokens import resolve_bos as resolve_bos
from lengthwise.text.tokens import token_parts as token_parts
from lengthwise.text.tokens import tokenize as tokenize
from lengthwise.text.tokens import tokenizer_fingerprint as tokenizer_fingerprint
from lengthwise.text.windows import Window as Window
from lengthwise.text.windows import WindowSampler as WindowSampler
from lengthwise.text.windows import pack_documents as pack_documents
from lengthwise.text.windows import sample_windows as sample_windows
from lengthwise.text.windows import view as view
