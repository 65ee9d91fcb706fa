"""What the studies' own measurements give the model to read: as `tests/measure/test_recorded_inputs.py` has it."""

from typing import Any

import pytest

from lengthwise_studies.recall import Recall
from lengthwise_studies.sparsity.influence_measure import Influence
from tests.measure.test_recorded_inputs import LOW, STARTS, Case, Expected, check_what_is_read

_INFLUENCE = {
    "length": 32, "short": 4, "kept": (1, 2), "windows": 2, "examined": 3, "targets": 1, "candidates": 2, "gain": -1,
}  # fmt: skip
_INFLUENCE_EXPECTED: Expected = {"loss_long": lambda row, _: LOW, "loss_short": lambda row, _: LOW}
CASES: list[tuple[Any, Case]] = [
    (Influence, Case(_INFLUENCE, _INFLUENCE_EXPECTED, holes=True)),
    (
        Recall,
        Case(
            {"distances": (16, 32), "passage": 8, "scored": 6, "windows": 2, "batch_size": 2},
            {"loss_same": lambda row, _: LOW, "loss_different": lambda row, _: LOW},
        ),
    ),
]


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize(("kind", "case"), CASES)
def test_the_model_reads_bos_and_the_texts_own_tokens_at_their_places(kind, case, start, monkeypatch):
    check_what_is_read(kind, case, start, monkeypatch)
