"""The fused objective on a model: which views it reads, with which gradients, on every family and way of training.

Against the plain formula on the logits of both views, in fp64.
"""

import copy
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from lengthwise.alignment import Objective, PairGeometry, alignment_loss_from_logits
from lengthwise.checkpoints import Head, find_head
from lengthwise.testing import tiny_llama
from lengthwise.training.model_loss import model_alignment_loss
from lengthwise.training.sections import Adapter
from lengthwise.training.starting_model import add_adapter
from lengthwise.training.trainer import logged_parts
from tests.architectures import TINY_ARCHITECTURES, tiny_model, with_lora

# PEFT and transformers ask for things under their old names.
pytestmark = [
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning"),
    pytest.mark.filterwarnings("ignore:`gradient_checkpointing_enable`:FutureWarning"),
]
LENGTH = 16


def batch(seed: int = 0) -> dict[str, Any]:
    """Gap views: the same tokens, the second view behind a gap of 20 from row 5 on; some have no label."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, 320, (2, LENGTH), generator=generator).repeat(2, 1)
    labels = torch.full_like(ids, -100)
    labels[:, :-1] = ids[:, 1:]
    labels[0, 3:7] = -100
    positions = torch.arange(LENGTH).repeat(4, 1)
    positions[2:, 5:] += 20
    return {
        "input_ids": ids,
        "labels": labels,
        "position_ids": positions,
        "attention_mask": torch.ones_like(ids),
        "geometry": PairGeometry(LENGTH, 0, 5),
    }


class Reads:
    """The rows of every forward pass of a model, and whether it was recorded for gradients."""

    def __init__(self, model: nn.Module) -> None:
        self.passes: list[tuple[torch.Tensor, bool]] = []
        embedding: Any = model.get_input_embeddings()  # type: ignore[operator]
        embedding.register_forward_hook(self._note)

    def _note(self, module: nn.Module, inputs: Any, output: Any) -> None:
        self.passes.append((inputs[0], torch.is_grad_enabled()))


def assert_fused_is_plain(
    model: nn.Module, inputs: dict[str, Any], objective: Objective, *, tolerance: float = 1e-10
) -> Reads:
    """Loss, its parts and every gradient, of those that are zero but for rounding the size; the passes it takes."""
    plain = copy.deepcopy(model)
    torch.manual_seed(0)  # of dropout
    placed = {name: value for name, value in inputs.items() if name not in ("labels", "geometry")}
    expected = alignment_loss_from_logits(
        *plain(**placed).logits.chunk(2),
        *inputs["labels"].chunk(2),
        geometry=inputs["geometry"],
        objective=objective,
    )
    expected.loss.backward()
    head = find_head(model)
    assert isinstance(head, Head), head
    reads = Reads(model)
    torch.manual_seed(0)
    found = model_alignment_loss(model, head, **inputs, objective=objective)
    found.loss.backward()
    for part in ("loss", "cross_entropy", *logged_parts(objective)):
        value, truth = getattr(found, part).item(), getattr(expected, part).item()
        assert value == pytest.approx(truth, rel=tolerance), part
    gradients = {name: p.grad for name, p in plain.named_parameters() if p.grad is not None}
    least = 1e-2 * max(truth.norm() for truth in gradients.values())
    for name, p in model.named_parameters():
        assert (p.grad is None) == (name not in gradients), name
        if p.grad is not None:
            truth = gradients[name]
            assert (p.grad - truth).norm() <= tolerance * max(truth.norm(), least), name
    return reads


OBJECTIVES = [
    {"alpha": alpha, "divergence": divergence, "detach": detach, "ce_on": ce_on}
    for alpha, (divergence, detach), ce_on in itertools.product(
        (0.0, 0.7),
        (("kl", "long"), ("reverse_kl", "long"), ("kl", "short"), ("jeffreys", "none")),
        ("both", "long", "short"),
    )
]


@pytest.mark.parametrize("terms", OBJECTIVES, ids=lambda terms: "-".join(map(str, terms.values())))
def test_loss_and_gradients_are_those_of_both_views_logits(terms: dict[str, Any]):
    objective, model = Objective(**terms), tiny_llama().double()
    reads = assert_fused_is_plain(model, batch(), objective)
    rows = sum(len(ids) for ids, _ in reads.passes)
    recorded = sum(len(ids) for ids, gradients in reads.passes if gradients)
    assert rows == 2 * sum(objective.reads)
    assert recorded == 2 * sum(objective.trains)


def checkpointing(model: nn.Module) -> nn.Module:
    model.train()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})  # type: ignore[operator]
    return model


def lora(model: Any) -> nn.Module:
    conv = model.config.model_type == "gpt2"
    return with_lora(model, target_modules="all-linear", fan_in_fan_out=conv)


@pytest.mark.parametrize("name", TINY_ARCHITECTURES)
@pytest.mark.parametrize(
    "way", [lambda model: model, checkpointing, lora], ids=["plain", "checkpointing", "lora"]
)
def test_every_family_of_models(name: str, way: Callable[[nn.Module], nn.Module]):
    model = way(tiny_model(name)).double()
    inputs = {
        name: value for name, value in batch().items() if name not in ("position_ids", "attention_mask")
    }
    # Its attention is in float32.
    tolerance = 1e-5 if name == "gptj-bias" else 1e-10
    assert_fused_is_plain(model, inputs, Objective(alpha=0.3), tolerance=tolerance)
    trained = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
    if way is lora:
        assert trained
        assert all("lora_" in name for name in trained), "a frozen head has no gradient"
    else:
        assert trained == {name for name, _ in model.named_parameters()}


def test_a_view_that_is_not_read_gives_no_parts():
    assert Objective(alpha=0, ce_on="short").reads == (False, True)
    assert Objective(alpha=0, ce_on="long").reads == (True, False)
    assert "cross_entropy_long" not in logged_parts(Objective(alpha=0, ce_on="short"))
    assert "jeffreys" not in logged_parts(Objective(alpha=0, ce_on="long"))
    assert "jeffreys" in logged_parts(Objective(alpha=0))


def test_a_frozen_long_pass_under_autocast_leaves_the_adapter_its_gradients():
    model = add_adapter(tiny_llama(), Adapter(target_modules=["q_proj", "v_proj"]))
    for name, p in model.named_parameters():
        if "lora_B" in name:
            p.data.normal_(std=0.1)
    objective = Objective(alpha=1.0, divergence="kl", detach="long", ce_on="short")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model_alignment_loss(model, find_head(model), **batch(), objective=objective).loss
    loss.backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters() if p.requires_grad)
