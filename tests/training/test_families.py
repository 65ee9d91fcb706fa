"""Every family of models, every way of training it: the fused objective equals the one on full logits."""

from collections.abc import Callable

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from trainers import GEOMETRY, views

from lengthwise.alignment import AlignmentOutput, Objective
from lengthwise.checkpoints import FullLogits, Head, find_head
from lengthwise.training.model_loss import model_alignment_loss
from tests.architectures import TINY_ARCHITECTURES, tiny_model

# PEFT and transformers ask for things under their old names.
pytestmark = [
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning"),
    pytest.mark.filterwarnings("ignore:`gradient_checkpointing_enable`:FutureWarning"),
]

# fp32 at logits of a few units: each gradient as a whole, as a share of its own size. A gradient that is zero but
# for rounding (the bias of keys) is held against a hundredth of the largest one.
FP32 = 1e-5


IDS, LABELS = (each.flatten(0, 1) for each in views())
LABELS[0, 3:7] = -100


def step(model: nn.Module, head: Head | FullLogits) -> tuple[AlignmentOutput, dict[str, Tensor]]:
    model.zero_grad()
    torch.manual_seed(0)  # of dropout
    objective = Objective(alpha=0.3)
    output = model_alignment_loss(model, head, IDS, LABELS, geometry=GEOMETRY, objective=objective)
    output.loss.backward()
    return output, {
        name: parameter.grad.clone()
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }


def assert_fused_is_full(model: nn.Module) -> dict[str, Tensor]:
    """Loss, its parts and every gradient; returns the gradients."""
    head = find_head(model)
    assert isinstance(head, Head), head
    fused, found = step(model, head)
    full, expected = step(model, FullLogits("the truth"))
    for part in ("loss", "cross_entropy_long", "cross_entropy_short", "entropy", "jeffreys"):
        torch.testing.assert_close(getattr(fused, part), getattr(full, part), rtol=FP32, atol=1e-6, msg=part)
    assert found.keys() == expected.keys()
    largest = max(gradient.norm() for gradient in expected.values())
    for name, gradient in expected.items():
        error = (found[name] - gradient).norm()
        assert error <= FP32 * max(gradient.norm(), 1e-2 * largest), name
    return found


def plain(model: nn.Module) -> nn.Module:
    return model


def checkpointing(model: nn.Module) -> nn.Module:
    model.train()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model


def lora(model: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    config = LoraConfig(
        r=2,
        task_type="CAUSAL_LM",
        target_modules="all-linear",
        fan_in_fan_out=model.config.model_type == "gpt2",
    )
    wrapped = get_peft_model(model, config).eval()
    for name, parameter in wrapped.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(parameter, std=0.1)
    return wrapped


@pytest.mark.parametrize("name", TINY_ARCHITECTURES)
@pytest.mark.parametrize("way", [plain, checkpointing], ids=lambda way: way.__name__)
def test_every_gradient_is_that_of_full_logits(name: str, way: Callable[[nn.Module], nn.Module]):
    model = way(tiny_model(name))
    gradients = assert_fused_is_full(model)
    assert gradients.keys() == {name for name, _ in model.named_parameters()}


@pytest.mark.parametrize("name", TINY_ARCHITECTURES)
def test_lora_with_a_frozen_head_forms_no_head_gradient(name: str):
    model = lora(tiny_model(name))
    gradients = assert_fused_is_full(model)
    assert gradients
    assert all("lora_" in name for name in gradients)
    head = find_head(model)
    assert isinstance(head, Head)
    assert not head.weight.requires_grad
    assert head.weight.grad is None
