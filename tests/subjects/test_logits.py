import numpy as np
import pytest
import torch

from lengthwise.checkpoints import NonFiniteLogits, head
from lengthwise.errors import LengthwiseError
from lengthwise.subjects import LoadedModel, naming_bad_logits
from tests.readings import in_memory

VOCABULARY = 320


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return in_memory()


@pytest.fixture
def three_rows_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head, "CHUNK_BYTES", 3 * 4 * VOCABULARY)


@pytest.mark.usefixtures("three_rows_a_chunk")
@pytest.mark.parametrize("rows", [0, 1, 3, 10])
def test_target_losses_are_the_model_s_own(model: LoadedModel, rows: int):
    tokens = torch.randint(VOCABULARY, (1, rows + 1), generator=torch.Generator().manual_seed(0))
    hidden = model.hidden_states(tokens)[0, :-1]
    with torch.no_grad():
        logits = model.model(input_ids=tokens).logits[0, :-1]
    expected = torch.nn.functional.cross_entropy(logits, tokens[0, 1:], reduction="none")
    found = model.rows(hidden).losses(tokens[0, 1:].numpy().astype(np.int32))
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, expected.double(), rtol=1e-5, atol=1e-5)
    assert torch.equal(found, model.rows(hidden).losses(tokens[0, 1:]))


@pytest.mark.usefixtures("three_rows_a_chunk")
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_bad_logits_are_named(model: LoadedModel, value: float):
    hidden = torch.zeros(10, 32)
    hidden[7] = value
    with (
        pytest.raises(NonFiniteLogits) as caught,
        naming_bad_logits(model, "a text"),
        head.locating_bad_logits(100),
    ):
        model.rows(hidden).losses(np.arange(10))
    error = caught.value
    assert isinstance(error, LengthwiseError)
    assert (error.position, error.model, error.text) == (107, "tiny", "a text")
