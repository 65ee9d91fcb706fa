"""Every family of models, every way of training it: the fused objective equals the one on full logits."""

import contextlib
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


def assert_fused_is_full(model: nn.Module, tolerance: float = FP32) -> dict[str, Tensor]:
    """Loss, its parts and every gradient; returns the gradients."""
    head = find_head(model)
    assert isinstance(head, Head), head
    fused, found = step(model, head)
    full, expected = step(model, FullLogits("the truth"))
    for part in ("loss", "cross_entropy_long", "cross_entropy_short", "entropy", "jeffreys"):
        torch.testing.assert_close(
            getattr(fused, part), getattr(full, part), rtol=tolerance, atol=1e-6, msg=part
        )
    assert found.keys() == expected.keys()
    largest = max(gradient.norm() for gradient in expected.values())
    for name, gradient in expected.items():
        error = (found[name] - gradient).norm()
        assert error <= tolerance * max(gradient.norm(), 1e-2 * largest), name
    return found


def plain(model: nn.Module) -> nn.Module:
    return model


def checkpointing(model: nn.Module) -> nn.Module:
    model.train()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model


def lora(model: nn.Module) -> nn.Module:
    return adapted(model, target_modules="all-linear")


def adapted(model: nn.Module, **settings) -> nn.Module:
    torch.manual_seed(0)
    if model.config.model_type == "gpt2" and settings["target_modules"] == "all-linear":
        settings["fan_in_fan_out"] = True
    wrapped = get_peft_model(model, LoraConfig(r=2, task_type="CAUSAL_LM", **settings)).eval()
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


@pytest.mark.parametrize("name", TINY_ARCHITECTURES)
def test_bf16_autocast_is_no_worse_than_full_logits(name: str):
    model = tiny_model(name)
    head = find_head(model)
    truth_output, truth = step(model, FullLogits("the truth"))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        fused, found = step(model, head)
        full, naive = step(model, FullLogits("the naive form"))

    def error(gradients: dict[str, Tensor]) -> Tensor:
        parts = [(gradients[name] - gradient).flatten() for name, gradient in truth.items()]
        return torch.cat(parts).norm() / torch.cat([gradient.flatten() for gradient in truth.values()]).norm()

    assert found.keys() == truth.keys()
    # Nearly all of the error is the body's, which both have.
    assert error(found) <= 1.05 * error(naive) + 1e-3
    assert abs(fused.loss - truth_output.loss) <= 1.05 * abs(full.loss - truth_output.loss) + 2e-3


FEW = ["llama-tied", "gemma2-soft-cap", "gptj-bias", "cohere-scale", "gpt2"]


@pytest.mark.parametrize("name", FEW)
def test_a_trained_copy_of_the_head(name: str):
    settings = {"target_modules": "all-linear", "modules_to_save": ["lm_head"]}
    with contextlib.ExitStack() as stack:
        if tiny_model(name).config.tie_word_embeddings:
            # PEFT says that the tie is cut.
            stack.enter_context(pytest.warns(UserWarning, match="tie_word_embeddings"))
        model = adapted(tiny_model(name), **settings)
    gradients = assert_fused_is_full(model)
    trained = [name for name in gradients if "lora_" not in name]
    assert trained
    assert all("lm_head" in name and "modules_to_save" in name for name in trained)


@pytest.mark.parametrize("name", FEW)
def test_a_padded_vocabulary(name: str):
    model = tiny_model(name)
    torch.manual_seed(0)
    model.resize_token_embeddings(pad_to_multiple_of=128)
    assert model.get_output_embeddings().weight.shape[0] == 384
    assert_fused_is_full(model)
