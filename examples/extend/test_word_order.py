from __future__ import annotations

import numpy as np
import pytest
import torch

from lengthwise.measure import run
from lengthwise.measure.word_order import WordOrder
from lengthwise.testing import tiny_llama, tiny_text, tiny_tokenizer
from lengthwise.text import sample_windows, tokenize

ORDER = WordOrder(length=32, windows=1)


def test_the_numbers_are_those_of_the_logits():
    model, tokenizer = tiny_llama(), tiny_tokenizer()
    documents = tokenize([tiny_text(200)], tokenizer)
    cost, loss = run(ORDER, (model, tokenizer), documents).rows
    [window] = sample_windows(documents, 33, count=1)
    pair = ORDER.views(window, None)
    assert sorted(pair[0][:16]) == sorted(pair[1][:16])
    assert list(pair[0][16:]) == list(pair[1][16:])
    labels = torch.tensor(window.ids[-8:], dtype=torch.long)
    with torch.no_grad():
        logits = model(input_ids=torch.tensor(np.array(pair))).logits[:, -8:]
    plain, shuffled = (torch.nn.functional.cross_entropy(each, labels).item() for each in logits)
    assert loss.value == pytest.approx(plain, rel=1e-5)
    assert cost.value == pytest.approx(shuffled - plain, abs=1e-5)
