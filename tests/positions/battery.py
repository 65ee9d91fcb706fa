"""What the batteries of rope methods, samplers and attentions share."""

import copy
from collections.abc import Callable, Collection, Iterable
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from lengthwise.alignment import Objective, PairGeometry
from lengthwise.checkpoints import find_head
from lengthwise.training.model_loss import model_alignment_loss
from lengthwise.training.sections import Adapter
from lengthwise.training.starting_model import add_adapter
from lengthwise.versions import checkpointing
from tests.architectures import tiny_model

ARCHITECTURES = ("llama-gqa", "qwen3", "mistral")
every_architecture = pytest.mark.parametrize("architecture", ARCHITECTURES)


def in_architectures(names: Iterable[str], mechanisms: Collection[str]) -> list[tuple[str, str]]:
    """(name, architecture): every name in the first one, a name of each mechanism in all of them."""
    first, *others = ARCHITECTURES
    return [(name, first) for name in names] + [(name, other) for name in mechanisms for other in others]


@cache
def _made(architecture: str, window: int) -> Any:
    return tiny_model(architecture, **({"sliding_window": window} if architecture == "mistral" else {}))


def plain(architecture: str, *, window: int = 128) -> Any:
    """A model of its own for each call. The sliding window of one is longer than the rows and its trained length."""
    return copy.deepcopy(_made(architecture, window))


def tokens(length: int, rows: int = 2) -> Tensor:
    """Ids [B, T], the same at each call."""
    return torch.randint(1, 320, (rows, length), generator=torch.Generator().manual_seed(0))


def two_pairs(length: int, offset: int) -> tuple[Tensor, Tensor]:
    """(ids, labels) of a long and a short window, twice: [4, T]."""
    text = tokens(length + offset + 1, rows=1)[0]
    windows = torch.stack([text[begin : begin + length + 1] for begin in (0, 0, offset, offset)])
    return windows[:, :-1], windows[:, 1:]


def gradients(
    model: Any, ids: Tensor, labels: Tensor, geometry: PairGeometry, **positions: Tensor
) -> dict[str, Tensor]:
    """Of the objective, for every weight that gets one."""
    output = model_alignment_loss(
        model,
        find_head(model),
        ids,
        labels,
        geometry=geometry,
        objective=Objective(alpha=1.0, divergence="jeffreys"),
        **positions,
    )
    assert output.loss.isfinite()
    output.loss.backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def assert_same_with_checkpointing(make: Callable[[], Any], *batch: Any, **positions: Tensor) -> None:
    """Every weight of the model that `make` makes has a finite gradient, the same with checkpointing."""
    model, saving = make().train(), make().train()
    getattr(saving, f"{checkpointing()}_enable")({"use_reentrant": False})
    expected, found = (gradients(each, *batch, **positions) for each in (model, saving))
    assert found.keys() == expected.keys() == {name for name, _ in model.named_parameters()}
    for name, gradient in expected.items():
        assert gradient.isfinite().all(), name
        assert gradient.any(), name
        torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-6, msg=name)


def assert_adapter_goes_on_and_off(model: Any, logits: Callable[[Any], Tensor]) -> Any:
    """Fresh it changes nothing, trained it does, and without it the model is as before; the adapted model."""
    before = logits(model)
    adapted = add_adapter(model, Adapter(r=2))
    torch.testing.assert_close(logits(adapted), before, rtol=1e-5, atol=1e-5)
    torch.manual_seed(0)
    for parameter in adapted.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter, std=0.1)
    assert (logits(adapted) - before).abs().max() > 1e-2
    with adapted.disable_adapter():
        torch.testing.assert_close(logits(adapted), before, rtol=1e-5, atol=1e-5)
    return adapted


def share_lost(found: Tensor, exact: Tensor) -> Tensor:
    """The squared error as a share of the squared values."""
    return (found.float() - exact).square().mean() / exact.square().mean()
