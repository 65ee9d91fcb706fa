from __future__ import annotations

import numpy as np
import pytest
from tokenizers.processors import TemplateProcessing

from lengthwise.errors import UsageError
from lengthwise.testing import tiny_tokenizer
from lengthwise.text import resolve_bos, view


def bos_adding_tokenizer():
    tokenizer = tiny_tokenizer(bos_token="<s>")
    template = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", tokenizer.bos_token_id)])
    tokenizer.backend_tokenizer.post_processor = template
    return tokenizer


def test_auto_does_what_the_tokenizer_does():
    adding = bos_adding_tokenizer()
    assert resolve_bos(adding, "auto") == adding.bos_token_id == 1
    assert resolve_bos(tiny_tokenizer(bos_token="<s>"), "auto") is None
    assert resolve_bos(tiny_tokenizer(), "auto") is None


def test_always_and_never():
    having = tiny_tokenizer(bos_token="<s>")
    assert resolve_bos(having, "always") == having.bos_token_id
    assert resolve_bos(bos_adding_tokenizer(), "never") is None


def test_always_without_a_bos_token_is_refused():
    with pytest.raises(UsageError, match="has no BOS token"):
        resolve_bos(tiny_tokenizer(), "always")


def test_unknown_setting_names_the_nearest():
    with pytest.raises(UsageError, match="did you mean 'always'"):
        resolve_bos(tiny_tokenizer(), "alwasy")


def test_view_replaces_the_first_token_and_keeps_rows():
    ids = np.arange(100, 120, dtype=np.int32)
    without = view(ids, 5, 8, None)
    with_bos = view(ids, 5, 8, 7)
    assert without.tolist() == list(range(105, 113))
    assert with_bos.tolist() == [7, *range(106, 113)]
    assert with_bos.dtype == np.int64
    assert ids[5] == 105, "the document itself is not changed"


def test_view_beyond_the_text_is_refused():
    with pytest.raises(UsageError, match="tokens 5 to 25 of a text of 20"):
        view(np.arange(20), 5, 20, None)
