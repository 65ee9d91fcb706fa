from __future__ import annotations

from typing import Any

import pytest

from lengthwise.checkpoints import extend
from lengthwise.checkpoints.position_limits import rope_by_input_length
from lengthwise.errors import UsageError
from lengthwise.positions import ROPE_METHODS
from lengthwise.subjects import LoadedModel
from lengthwise.testing import tiny_llama, tiny_tokenizer
from tests.architectures import tiny_model

OPTIONS: dict[str, dict[str, Any]] = {"longrope": {"long_factor": [2.0] * 4}, "eabf": {"skip_layers": 1}}


def test_a_model_in_training_mode_is_not_ready():
    model = LoadedModel(tiny_model("gpt2"), tiny_tokenizer(), "gpt2", "memory")
    model.check_ready(64)
    with pytest.raises(UsageError, match="65"):
        model.check_ready(65)
    model.model.train()
    with pytest.raises(UsageError):
        model.check_ready(1)


@pytest.mark.parametrize("method", ROPE_METHODS)
def test_rope_methods_say_whether_they_look_at_the_input_s_length(method: str):
    """As the frequencies that they give at two lengths."""
    model = tiny_llama()
    extension = extend(model, method, factor=4.0, **OPTIONS.get(method, {}))
    short, long = (extension.inverse_frequencies(length)[0] for length in (128, 512))
    assert (rope_by_input_length(model.config) is not None) == (not short.equal(long))


@pytest.mark.parametrize(
    ("kind", "by_length"), [("default", None), ("linear", None), ("yarn", None), ("dynamic", "dynamic")]
)
def test_rope_types_of_transformers(kind: str, by_length: str | None):
    rope = {"rope_type": kind, "rope_theta": 1e4} | ({} if kind == "default" else {"factor": 2.0})
    assert rope_by_input_length(tiny_llama(rope_parameters=rope).config) == by_length
    # One kind of layers among others.
    config = tiny_model("gemma3-text").config
    config.rope_parameters["sliding_attention"] |= rope
    assert rope_by_input_length(config) == by_length
