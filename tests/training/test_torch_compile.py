"""A model under torch.compile gives the numbers of the model itself, without a graph break."""

import copy
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from trainers import GEOMETRY, trainer_for, views, windows

from lengthwise.alignment import Objective
from lengthwise.checkpoints import Head, find_head
from lengthwise.errors import UsageError
from lengthwise.testing import tiny_llama
from lengthwise.text import TokenDocument
from lengthwise.training.model_loss import model_alignment_loss


@pytest.fixture(autouse=True)
def _reset() -> Iterator[None]:
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch.compiler.reset()


IDS, LABELS = (each.flatten(0, 1) for each in views())


def loss(model: nn.Module, head: Any) -> Tensor:
    objective = Objective(alpha=0.3)
    return model_alignment_loss(model, head, IDS, LABELS, geometry=GEOMETRY, objective=objective).loss


def gradients(model: nn.Module) -> dict[str, Tensor]:
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return found


def small() -> nn.Module:
    return tiny_llama(num_hidden_layers=1).train()


def around(model: nn.Module) -> Any:
    return torch.compile(model, backend="aot_eager", fullgraph=True)


def in_place(model: nn.Module) -> Any:
    model.compile(backend="eager", fullgraph=True)
    return model


def of_the_decoder(model: Any) -> Any:
    model.model = torch.compile(model.model, backend="eager", fullgraph=True)
    return model


def of_each_block(model: Any) -> Any:
    for layer in model.model.layers:
        layer.compile(backend="eager", fullgraph=True)
    return model


# Dynamo itself looks at .grad of hidden states.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
@pytest.mark.parametrize("compiled", [around, in_place, of_the_decoder, of_each_block])
def test_a_compiled_model_has_no_graph_break_and_the_same_gradients(compiled):
    model = small()
    expected_loss = loss(model, find_head(model))
    expected_loss.backward()
    expected = gradients(model)
    run = compiled(model)
    head = find_head(run)
    assert isinstance(head, Head)
    # The second pass uses what the first one compiled, and so does one without gradients.
    for _ in range(2):
        found_loss = loss(run, head)
        found_loss.backward()
        assert found_loss.item() == pytest.approx(expected_loss.item(), rel=1e-6)
        for name, gradient in gradients(model).items():
            name = name.replace("_orig_mod.", "")
            assert (gradient - expected[name]).norm() <= 1e-5 * expected[name].norm(), name
    with torch.no_grad():
        assert loss(run, head).item() == pytest.approx(expected_loss.item(), rel=1e-6)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0
    assert not torch._dynamo.utils.counters["graph_break"]


def test_a_model_that_was_compiled_without_us_says_so():
    model = small()
    compiled = torch.compile(model, backend="eager")
    head = find_head(model)
    compiled(input_ids=IDS, use_cache=False, logits_to_keep=1)
    with pytest.raises(UsageError, match="compile"):
        loss(compiled, head)
    torch.compiler.reset()
    assert loss(compiled, head).item() == pytest.approx(loss(model, head).item(), rel=1e-6)


# torch's own compiler uses what torch has deprecated.
@pytest.mark.filterwarnings("ignore:.torch.jit.script_method")
def test_the_trainer_compiles_the_model(documents: Sequence[TokenDocument], tmp_path: Path):
    def run(model: nn.Module, **settings: Any) -> list[float]:
        trainer = trainer_for(model, tmp_path, windows(documents), arguments_=settings)
        trainer.train()
        return [entry["loss"] for entry in trainer.state.log_history if "grad_norm" in entry]

    model = small().double()
    plain = run(copy.deepcopy(model))
    compiled = run(model, torch_compile=True, torch_compile_backend="eager")
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0
    assert compiled == pytest.approx(plain, rel=1e-9)
