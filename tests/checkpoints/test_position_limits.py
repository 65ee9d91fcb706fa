from types import SimpleNamespace
from typing import Any

import pytest

from lengthwise.checkpoints import extend
from lengthwise.checkpoints.position_limits import as_length, rope_by_input_length, trained_length
from lengthwise.positions import ROPE_METHODS
from lengthwise.testing import tiny_llama

OPTIONS: dict[str, dict[str, Any]] = {"longrope": {"long_factor": [2.0] * 4}, "eabf": {"skip_layers": 1}}


@pytest.mark.parametrize("method", ROPE_METHODS)
def test_rope_methods_say_whether_they_look_at_the_input_s_length(method: str):
    """As the frequencies that they give at two lengths."""
    model = tiny_llama()
    extension = extend(model, method, factor=4.0, **OPTIONS.get(method, {}))
    short, long = (extension.inverse_frequencies(length)[0] for length in (128, 512))
    assert (rope_by_input_length(model.config) is not None) == (not short.equal(long))


NONE = None, 0, -1, int(1e30), 1e30, float("nan"), "4k"


@pytest.mark.parametrize(
    ("value", "length"), [*((value, None) for value in NONE), (2048, 2048), (4096.0, 4096)]
)
def test_a_length_that_is_none_is_not_taken_for_one(value: Any, length: int | None):
    assert trained_length(SimpleNamespace(max_position_embeddings=value)) == as_length(value) == length
