"""How far a side differs from itself: by rounding, by the length of its input, or without repeating itself."""

from typing import Any

import numpy as np
import pytest
import torch

from lengthwise.measure.distributions import own_rounding
from lengthwise.measure.repeated_windows import Layout
from lengthwise.subjects import LoadedModel, Reading, Want
from lengthwise.subjects.rounding import LEAST, beginning
from lengthwise.testing import tiny_llama, tiny_tokenizer

LAYOUT = Layout(768)
BY_LENGTH = {"rope_parameters": {"rope_type": "dynamic", "factor": 8.0, "rope_theta": 1e4}}


class Wavers(LoadedModel):
    """It answers otherwise each time."""

    calls = 0

    def hidden_states(self, input_ids: Any, **how: Any) -> Any:
        self.calls += 1
        return super().hidden_states(input_ids, **how) * (1 + 0.2 * self.calls)


def found_of(cls: type[LoadedModel], **settings: Any) -> tuple[LoadedModel, Reading, dict[str, Any]]:
    """A side, what it reads, and how far it is from itself."""
    model = cls(tiny_llama(max_position_embeddings=64, **settings), tiny_tokenizer(), "tiny", "memory")
    ids = np.random.default_rng(0).integers(320, size=LAYOUT.length + 1)
    reading = Reading(tokens=ids[:-1], labels=ids[1:], want=Want.ROWS)
    found = own_rounding(model, reading, model.read([reading])[0], LAYOUT.edges)
    return model, reading, found


def mean_of(found: dict[str, Any]) -> float:
    return sum(found["sums"]) / sum(found["tokens"])


def test_what_more_text_changes_is_no_rounding() -> None:
    model, reading, found = found_of(LoadedModel, **BY_LENGTH)
    short = beginning(reading)
    losses = []
    for tokens in (reading.tokens, short.tokens):
        # A fresh model: this rope keeps the frequencies of the longest input so far.
        plain = tiny_llama(max_position_embeddings=64, **BY_LENGTH)
        with torch.no_grad():
            log_p = plain(torch.from_numpy(np.array(tokens))[None]).logits[0].double().log_softmax(-1)
        labels = torch.from_numpy(np.array(short.labels))[:, None]
        losses.append(-log_p[: len(labels)].gather(1, labels)[:, 0])
    expected = (losses[1] - losses[0]).abs().mean().item()
    assert expected > 0.01
    assert found["by_length"] == pytest.approx(expected, rel=1e-3)
    assert mean_of(found) < LEAST["float32"]
    assert model.rope_by_length == "dynamic"


def test_a_sound_side_depends_on_nothing() -> None:
    _, _, found = found_of(LoadedModel)
    assert "by_length" not in found
    assert mean_of(found) < LEAST["float32"]


def test_a_side_that_does_not_repeat_itself_says_nothing_about_lengths() -> None:
    _, _, found = found_of(Wavers)
    assert "by_length" not in found
    assert mean_of(found) > 0.01
