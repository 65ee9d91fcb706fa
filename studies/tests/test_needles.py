"""A needle in a text: where its tokens are, and which distances do not fit."""

from __future__ import annotations

import numpy as np
import pytest

from lengthwise.errors import UsageError
from lengthwise_studies.sparsity.needles import planted

SENTENCE = np.array([71, 72, 73])


def test_the_answer_is_at_its_distance_behind_the_sentence():
    background = np.arange(20)
    needle = planted(background, SENTENCE, 99, 11)
    assert needle.answer == 8
    assert needle.sentence == (5, 6, 7, 8)
    assert needle.ids.tolist() == [0, 1, 2, 3, 4, 71, 72, 73, 99, *range(9, 16), 71, 72, 73, 99]
    assert background.tolist() == list(range(20))


@pytest.mark.parametrize("distance", [3, 16])
def test_a_needle_that_does_not_fit_is_refused(distance: int):
    assert planted(np.arange(20), SENTENCE, 99, 4).sentence == (12, 13, 14, 15)
    assert planted(np.arange(20), SENTENCE, 99, 15).sentence == (1, 2, 3, 4)
    with pytest.raises(UsageError):
        planted(np.arange(20), SENTENCE, 99, distance)
