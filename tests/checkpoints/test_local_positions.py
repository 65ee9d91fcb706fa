"""Sampled positions in sliding-window layers: they keep the distances that they see in use."""

import copy
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoConfig, AutoModelForCausalLM

from checks.zoo.architectures import animals, made
from lengthwise.alignment import Objective, PairGeometry, next_token_labels
from lengthwise.checkpoints import FullLogits, extend, find_head, hidden_states_for
from lengthwise.checkpoints.attention_layers import local_positions
from lengthwise.checkpoints.position_limits import positions_matter
from lengthwise.errors import UsageError
from lengthwise.training.model_loss import model_alignment_loss
from lengthwise.training.recipe import Recipe
from lengthwise.training.starting_model import check_positions
from tests.architectures import tiny_model

LENGTH, WINDOW = 12, 6
SLIDING, FULL = "sliding_attention", "full_attention"
MIXED = (SLIDING, FULL, SLIDING)
IDS = torch.randint(1, 320, (2, LENGTH), generator=torch.Generator().manual_seed(0))
CONSECUTIVE = torch.arange(LENGTH).expand(2, -1)
SKIPPED = (CONSECUTIVE + 40 * (CONSECUTIVE > 4)).contiguous()

# Gemma 3 rotates by the type of the layer, Gemma 2 has one rotary embedding for all of its layers.
both_kinds = pytest.mark.parametrize("architecture", ["gemma3-text", "gemma2-soft-cap"])


def model(architecture: str, types: Sequence[str] = MIXED) -> Any:
    return tiny_model(
        architecture, num_hidden_layers=len(types), layer_types=list(types), sliding_window=WINDOW
    )


def full_logits(of: Any, ids: Tensor, *, position_ids: Tensor | None = None) -> Tensor:
    return hidden_states_for(of, FullLogits("for the test"), ids, position_ids=position_ids)


@torch.no_grad()
def placed(of: Any, position_ids: Tensor) -> Tensor:
    with local_positions(of, position_ids):
        return full_logits(of, IDS, position_ids=position_ids)


def truth(of: Any) -> Any:
    """A copy whose sliding layers always rotate by 0 .. L - 1."""
    of = copy.deepcopy(of)
    rotary, types = of.model.rotary_emb, of.config.layer_types
    by_type = of.config.model_type == "gemma3_text"

    def forward(own: Any, hidden: Tensor, **arguments: Any) -> Any:
        arguments["position_embeddings"] = rotary(
            hidden, torch.arange(hidden.shape[1])[None], *((SLIDING,) if by_type else ())
        )
        return own(hidden, **arguments)

    for layer, kind in zip(of.model.layers, types, strict=True):
        if kind == SLIDING:
            layer.forward = partial(forward, layer.forward)
    return of


def assert_equal(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected)


@both_kinds
def test_sliding_layers_alone_see_consecutive_positions(architecture: str):
    of = model(architecture, [SLIDING] * 2)
    assert_equal(placed(of, SKIPPED), full_logits(of, IDS).detach())


@both_kinds
def test_each_layer_of_a_mixture_has_its_own(architecture: str):
    of = model(architecture)
    with torch.no_grad():
        expected = full_logits(truth(of), IDS, position_ids=SKIPPED)
        all_skip = full_logits(of, IDS, position_ids=SKIPPED)
    assert_equal(placed(of, SKIPPED), expected)
    assert (expected - all_skip)[:, 6:].abs().max() > 1e-2
    assert (expected - full_logits(of, IDS))[:, 6:].abs().max() > 1e-2
    # Outside nothing is left of it.
    assert_equal(full_logits(of, IDS, position_ids=SKIPPED).detach(), all_skip)


@both_kinds
def test_rows_within_the_window_keep_their_positions(architecture: str):
    of = model(architecture)
    ids, near = IDS[:, :4], torch.tensor([[0, 1, 3, 5], [0, 1, 3, 6]])
    with torch.no_grad():
        with local_positions(of, near):
            found = full_logits(of, ids, position_ids=near)
        plain = full_logits(of, ids, position_ids=near)
        expected = full_logits(truth(of), ids, position_ids=near)
    # The first row spans the window, the second one position more.
    assert_equal(found[0], plain[0])
    assert_equal(found[1], expected[1])
    assert (found - plain)[1].abs().max() > 1e-3


@pytest.mark.parametrize("architecture", ["llama-gqa", "qwen3", "gpt2"])
def test_a_model_without_sliding_layers_is_left_alone(architecture: str):
    of = tiny_model(architecture)
    with local_positions(of, SKIPPED):
        assert not any(module._forward_pre_hooks for module in of.modules())


def gradients(of: nn.Module, **settings: Any) -> dict[str, Tensor]:
    rows = IDS[:1].expand(4, -1)
    positions = torch.cat([CONSECUTIVE, SKIPPED])
    objective = Objective(**({"alpha": 1.0, "divergence": "jeffreys"} | settings))
    output = model_alignment_loss(
        of,
        find_head(of),
        rows,
        next_token_labels(rows),
        geometry=PairGeometry(LENGTH, 0, 5),
        position_ids=positions,
        objective=objective,
    )
    output.loss.backward()
    found = {name.removeprefix("module."): p.grad for name, p in of.named_parameters() if p.grad is not None}
    return found | {"loss": output.loss.detach()}


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-6, msg=name)


READING = [
    {},
    {"divergence": "reverse_kl", "detach": "long", "ce_on": "short"},
    {"alpha": 0.0, "ce_on": "short"},
]


@both_kinds
@pytest.mark.parametrize("settings", READING, ids=["both", "teacher", "short"])
def test_the_objective_and_its_gradients(architecture: str, settings: dict[str, Any]):
    of = model(architecture)
    assert_same(gradients(copy.deepcopy(of), **settings), gradients(truth(of), **settings))


@both_kinds
@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.filterwarnings("ignore:`gradient_checkpointing_enable`:FutureWarning")
def test_gradients_are_the_same_with_checkpointing(architecture: str, reentrant: bool):
    expected = gradients(model(architecture).train())
    saving = model(architecture).train()
    saving.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    saving.enable_input_require_grads()
    assert_same(gradients(saving), expected)


@pytest.mark.usefixtures("process_group")
def test_gradients_are_the_same_in_a_wrapper_for_several_devices():
    expected = gradients(model("gemma3-text"))
    assert_same(gradients(DistributedDataParallel(model("gemma3-text"))), expected)


@pytest.mark.parametrize("method", ["yarn", "clex"])
def test_an_extension_of_the_full_layers_stays(method: str):
    of = model("gemma3-text")
    extend(of, method, factor=4.0, original_length=16)
    with torch.no_grad():
        expected = full_logits(truth(of), IDS, position_ids=SKIPPED)
    assert_equal(placed(of, SKIPPED), expected)


def test_what_torch_compile_runs_is_refused():
    compiled: Any = torch.compile(model("gemma3-text"), backend="eager")
    with pytest.raises(UsageError, match="compile"), local_positions(compiled, SKIPPED):
        pass
    with local_positions(compiled, None):
        pass


def test_a_model_of_sliding_layers_alone_takes_positions_up_to_its_window():
    settings: dict[str, Any] = {
        "model": "m",
        "data": {"corpus": "books"},
        "length": 8,
        "steps": 1,
        "optimizer": {"learning_rate": 1e-3},
        "views": "gap",
        "positions": {"sampler": "skip", "target_length": 16},
    }
    of = tiny_model("mistral", sliding_window=16)
    check_positions(Recipe(**settings), of)
    settings["positions"]["target_length"] = 17
    with pytest.raises(UsageError, match="17"):
        check_positions(Recipe(**settings), of)
    check_positions(Recipe(**settings), model("gemma3-text"))
    # Cyclic views have positions of their own, up to their length.
    cyclic = {**settings, "views": "cyclic"}
    del cyclic["positions"]
    check_positions(Recipe(**{**cyclic, "length": 16}), of)
    with pytest.raises(UsageError, match="length = 17"):
        check_positions(Recipe(**{**cyclic, "length": 17}), of)
    with pytest.raises(UsageError, match="takes no position ids"):
        check_positions(Recipe(**cyclic), tiny_model("bloom-alibi"))


def test_positions_that_change_nothing_are_refused():
    """A Falcon with ALiBi takes position ids, and predicts the same with a gap in them."""
    config = AutoConfig.for_model(
        "falcon", alibi=True, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, vocab_size=320
    )
    of = AutoModelForCausalLM.from_config(config).train()
    settings = {"model": "m", "data": {"corpus": "books"}, "length": 8, "steps": 1, "views": "gap"}
    recipe = Recipe(
        **settings, optimizer={"learning_rate": 1e-3}, positions={"sampler": "skip", "target_length": 16}
    )
    with pytest.raises(UsageError, match="predicts the same wherever"):
        check_positions(recipe, of)
    assert of.training
    check_positions(recipe, tiny_model("llama-gqa"))


@pytest.mark.filterwarnings("ignore")
def test_layers_that_take_no_position_ids_are_refused():
    [animal] = (each for each in animals() if each.name == "zaya, half of its layers slide")
    with pytest.raises(UsageError, match="in an unknown way"):
        placed(made(animal), SKIPPED)


@pytest.mark.filterwarnings("ignore")
def test_positions_are_asked_for_without_a_cache_of_the_models_own() -> None:
    """HRM reads its layers several times, and its cache has a place for each layer alone."""
    [animal] = (each for each in animals() if each.name == "hrm_text")
    assert positions_matter(made(animal))
