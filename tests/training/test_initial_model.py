"""The initial model gives the logits of the untouched model, to the bit, and leaves no trace."""

from __future__ import annotations

import contextlib
import copy
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import Trainer, TrainingArguments

from lengthwise.errors import UsageError
from lengthwise.models import FullLogits, Head, extend, find_head, hidden_states_for, load
from lengthwise.models.attention import use_attention
from lengthwise.models.extension.rotary import find_rotary
from lengthwise.models.quiet import quiet_transformers
from lengthwise.models.saving import save_whole
from lengthwise.positions import ROPE_METHODS
from lengthwise.testing import tiny_llama, tiny_model, tiny_tokenizer
from lengthwise.training.initial_model import InitialModel, copied_bytes, initial_cross_entropy
from lengthwise.training.recipe import Adapter, Recipe
from lengthwise.training.trained_model import add_adapter, load_for_training

IDS = torch.randint(320, (2, 40), generator=torch.Generator().manual_seed(1))
LABELS = torch.where(IDS % 3 == 0, -100, IDS.roll(-1, dims=1))

OPTIONS: dict[str, dict[str, Any]] = {
    "longrope": {"short_factor": [1.0, 1.1, 1.2, 1.3], "long_factor": [1.0, 2.0, 3.0, 4.0]},
    "eabf": {"skip_layers": 1},
}
ADAPTERS: dict[str, Adapter | None] = {
    "lora": Adapter(r=2, dropout=0.1),
    "longlora": Adapter(r=2, dropout=0.1, modules_to_save=("embeddings", "norms")),
    "whole": None,
}


def llama(**settings: Any) -> Any:
    return tiny_llama(attention_dropout=0.1, **settings)


def adapted(model: Any, config: peft.PeftConfig) -> Any:
    with quiet_transformers():
        return get_peft_model(model, config)


def logits(model: nn.Module, ids: Tensor = IDS) -> Tensor:
    with torch.no_grad():
        return model(input_ids=ids, use_cache=False).logits


def train(model: nn.Module, steps: int = 3) -> nn.Module:
    """A few optimizer steps on everything that is trained; the model stays in training mode."""
    model.train()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.05)
    for _ in range(steps):
        model(input_ids=IDS, labels=IDS, use_cache=False).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


def state(model: nn.Module) -> dict[str, Any]:
    """All that a pass of the initial model must leave alone."""
    config: Any = model.config
    return {
        "modules": [(name, id(module), module.training) for name, module in model.named_modules()],
        "trained": {name: p.requires_grad for name, p in model.named_parameters()},
        "tensors": {name: id(tensor) for name, tensor in model.state_dict(keep_vars=True).items()},
        "flags": [getattr(module, "_disable_adapters", None) for module in model.modules()],
        "config": config.to_dict(),
        "random": torch.get_rng_state().tolist(),
    }


def assert_equal(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.parametrize("method", [None, *ROPE_METHODS])
def test_it_is_the_untouched_model_and_leaves_no_trace(method: str | None, adapter: str):
    untouched = logits(llama())
    model = llama()
    if method is not None:
        extend(model, method, factor=4.0, original_length=16, **OPTIONS.get(method, {}))
    extended = logits(model)
    model = add_adapter(model, ADAPTERS[adapter])
    initial = InitialModel(model, find_head(model))
    assert (initial.reason is None) == (initial.bytes == 0) == (adapter != "whole")
    assert initial.own_head == (adapter != "lora")
    train(model)
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    before = state(model)
    for _ in range(2):
        with initial.active(model) as original:
            found = original(input_ids=IDS, use_cache=False).logits
            again = initial.head.logits(hidden_states_for(original, initial.head, IDS))
        assert not found.requires_grad
        assert_equal(found, untouched)
        assert_equal(again, untouched)
        assert state(model) == before
        with initial.active(model, extended=True) as start:
            assert_equal(logits(start), extended)
        assert state(model) == before
    with pytest.raises(KeyError), initial.active(model):
        raise KeyError
    assert state(model) == before
    for name, tensor in model.state_dict().items():
        assert_equal(tensor, weights[name])
    assert (logits(model.eval()) - untouched).abs().max() > 0.1


@pytest.mark.parametrize("name", ["qwen3", "phi3", "gpt-neox", "cohere-scale", "gemma2-soft-cap", "opt"])
def test_other_families(name: str):
    untouched = tiny_model(name)
    model: Any = tiny_model(name)
    with contextlib.suppress(UsageError):
        extend(model, "yarn", factor=2.0)
    model = adapted(model, LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM"))
    initial = InitialModel(model, find_head(model))
    train(model)
    with initial.active(model) as original:
        assert_equal(logits(original), logits(untouched))
        found = initial_cross_entropy(original, initial.head, IDS, LABELS)
    expected = F.cross_entropy(logits(untouched).flatten(0, 1), LABELS.flatten(), reduction="sum")
    assert found.dtype == torch.float64
    assert found.item() == pytest.approx(expected.item(), rel=1e-6)


@pytest.mark.parametrize("proven", [True, False])
@pytest.mark.parametrize("adapter", ["lora", "whole"])
def test_its_cross_entropy_needs_no_full_logits(adapter: str, proven: bool):
    untouched = llama()
    positions = torch.arange(40).expand(2, -1) * 2
    placed = {"position_ids": positions, "attention_mask": torch.ones_like(IDS)}
    with torch.no_grad():
        expected = untouched(input_ids=IDS, **placed).logits
    model = add_adapter(llama(), ADAPTERS[adapter])
    initial = InitialModel(model, find_head(model) if proven else FullLogits("a test"))
    assert isinstance(initial.head, Head) == proven
    train(model)
    with initial.active(model) as original:
        found = initial_cross_entropy(original, initial.head, IDS, LABELS, **placed)
        nothing = initial_cross_entropy(original, initial.head, IDS, torch.full_like(IDS, -100))
    plain = F.cross_entropy(expected.double().flatten(0, 1), LABELS.flatten(), reduction="sum")
    assert found.item() == pytest.approx(plain.item(), rel=1e-6)
    assert nothing.item() == 0


def test_whole_models_are_copied_with_tied_weights_once():
    model = tiny_llama()
    initial = InitialModel(model, find_head(model))
    own = sum(p.nbytes for p in model.parameters()) + sum(b.nbytes for b in model.buffers())
    assert initial.bytes == copied_bytes(model) == own
    with torch.device("meta"):
        skeleton = tiny_llama()
    with pytest.raises(UsageError, match="copied"):
        InitialModel(skeleton, FullLogits("a test"))
    with initial.active(model.double()) as original:
        assert not any(p.requires_grad for p in original.parameters())
        assert original.lm_head.weight is original.model.embed_tokens.weight


def biases(model: Any) -> Any:
    return adapted(model, LoraConfig(r=2, bias="all", target_modules="all-linear"))


def unfrozen(model: Any) -> Any:
    model = adapted(model, LoraConfig(r=2, target_modules="all-linear"))
    model.base_model.model.model.norm.weight.requires_grad_(True)
    return model


def trained_before(model: Any) -> Any:
    config = LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False)
    return adapted(model, config)


def principal(model: Any) -> Any:
    return adapted(model, LoraConfig(r=2, target_modules="all-linear", init_lora_weights="pissa"))


def adaption_prompt(model: Any) -> Any:
    return adapted(model, peft.AdaptionPromptConfig(adapter_len=4, adapter_layers=1, task_type="CAUSAL_LM"))


@pytest.mark.filterwarnings("ignore::UserWarning:peft")
@pytest.mark.parametrize("adapt", [biases, unfrozen, trained_before, principal, adaption_prompt])
def test_an_adapter_that_cannot_be_switched_off_is_copied(
    adapt: Callable[[Any], Any], caplog: pytest.LogCaptureFixture
):
    torch.manual_seed(0)
    model = adapt(tiny_llama(attention_bias=True))
    start = logits(model.eval())
    with caplog.at_level(logging.WARNING):
        initial = InitialModel(model, find_head(model))
    assert initial.reason is not None
    assert initial.reason in caplog.text
    assert initial.bytes > 0
    train(model)
    with initial.active(model) as original:
        assert_equal(logits(original), start)


# Kinds with their own layers, and what they need for a tiny model.
KINDS: dict[str, dict[str, Any]] = {
    "LoraConfig": {"r": 2, "use_dora": True, "target_modules": "all-linear"},
    "AdaLoraConfig": {"init_r": 4, "target_r": 2, "total_step": 100, "target_modules": "all-linear"},
    "VeraConfig": {"r": 2, "target_modules": ["gate_proj", "up_proj"]},
    "IA3Config": {"target_modules": ["k_proj", "down_proj"], "feedforward_modules": ["down_proj"]},
    "LoHaConfig": {"r": 2, "target_modules": "all-linear"},
    "LoKrConfig": {"r": 2, "target_modules": "all-linear"},
    "OFTConfig": {"oft_block_size": 4, "target_modules": ["q_proj", "v_proj"]},
    "BOFTConfig": {"boft_block_size": 4, "target_modules": ["q_proj", "v_proj"]},
    "HRAConfig": {"r": 2, "target_modules": ["q_proj", "v_proj"]},
    "LNTuningConfig": {},
    "FourierFTConfig": {"n_frequency": 20, "target_modules": ["q_proj", "v_proj"]},
    "VBLoRAConfig": {"r": 2, "num_vectors": 8, "vector_length": 16, "target_modules": ["q_proj", "v_proj"]},
    "RandLoraConfig": {"r": 2, "target_modules": ["q_proj"]},
    "TrainableTokensConfig": {"token_indices": [1, 2, 3], "target_modules": ["embed_tokens"]},
    "MissConfig": {"r": 4, "target_modules": ["q_proj", "v_proj"]},
    "ShiraConfig": {"r": 2, "target_modules": ["q_proj", "v_proj"]},
    "C3AConfig": {"block_size": 8, "target_modules": ["q_proj", "v_proj"]},
    "WaveFTConfig": {"n_frequency": 20, "target_modules": ["q_proj", "v_proj"]},
    "DeloraConfig": {"r": 2, "target_modules": ["q_proj", "v_proj"]},
    "RoadConfig": {"group_size": 8, "target_modules": ["q_proj", "v_proj"]},
}


@pytest.mark.filterwarnings("ignore::UserWarning:peft")
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_adapter(kind: str):
    torch.manual_seed(0)
    model = tiny_llama()
    untouched = logits(model)
    config = getattr(peft, kind)(task_type="CAUSAL_LM", **KINDS[kind])
    model = adapted(model, config)
    start = logits(model.eval())
    initial = InitialModel(model, find_head(model))
    train(model)
    assert (logits(model.eval()) - start).abs().max() > 1e-3
    model.train()
    before = state(model)
    with initial.active(model) as original:
        assert_equal(logits(original), start if initial.reason else untouched)
    assert state(model) == before
    # Those that begin with the model itself need no copy.
    assert (initial.reason is None) == torch.allclose(start, untouched, rtol=0, atol=1e-3), initial.reason


def test_a_model_that_was_loaded_extended_keeps_its_extension(tmp_path: Path):
    for method in ("yarn", "eabf"):
        model = tiny_llama()
        extend(model, method, factor=4.0, original_length=16, **OPTIONS.get(method, {}))
        with quiet_transformers():
            save_whole(model, tiny_tokenizer(), tmp_path / method)
        extended = logits(model)
        loaded = load(str(tmp_path / method)).model
        model = adapted(loaded, LoraConfig(r=2, target_modules="all-linear"))
        initial = InitialModel(model, find_head(model))
        train(model)
        with initial.active(model) as original:
            assert_equal(logits(original), extended)


def test_it_attends_fully_while_training_attends_sparsely():
    untouched = logits(tiny_llama())
    for adapter in ADAPTERS.values():
        model = tiny_llama()
        extend(model, "eabf", factor=4.0, original_length=16, skip_layers=1)
        use_attention(model, "shifted_sparse", group=8)
        model = add_adapter(model, adapter)
        initial = InitialModel(model, find_head(model))
        train(model)
        sparse = logits(model)
        with initial.active(model) as original:
            assert_equal(logits(original), untouched)
        if adapter is None or not adapter.dropout:
            assert_equal(logits(model), sparse)
        assert (logits(model.eval()) - sparse).abs().max() > 1e-3


def test_a_pass_between_forward_and_backward_changes_no_gradient():
    def gradients(with_initial: bool) -> dict[str, Tensor]:
        torch.manual_seed(0)
        model = llama()
        extend(model, "yarn", factor=4.0, original_length=16)
        model = add_adapter(model, ADAPTERS["longlora"])
        initial = InitialModel(model, find_head(model))
        model.train()
        model.get_base_model().activation_checkpointing_enable({"use_reentrant": False})
        loss = model(input_ids=IDS, labels=IDS, use_cache=False).loss
        if with_initial:
            with initial.active(model) as original:
                logits(original)
        loss.backward()
        return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}

    expected, found = gradients(False), gradients(True)
    assert found.keys() == expected.keys()
    for name, gradient in found.items():
        assert_equal(gradient, expected[name])


def test_a_pass_under_autocast_comes_first_and_gradients_stay():
    model = add_adapter(llama(), ADAPTERS["longlora"])
    untouched = llama()
    initial = InitialModel(model, find_head(model))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with initial.active(model) as original:
            found = logits(original)
        assert_equal(found, logits(untouched))
        model(input_ids=IDS, labels=IDS, use_cache=False).loss.backward()
    # At the start B is zero, so A has a gradient of zero but has one.
    assert all(p.grad is not None for p in model.parameters() if p.requires_grad)


def around(model: nn.Module) -> Any:
    return torch.compile(model, backend="aot_eager")


def in_place(model: nn.Module) -> Any:
    model.compile(backend="aot_eager")
    return model


def of_the_decoder(model: Any) -> Any:
    base = model.get_base_model() if isinstance(model, peft.PeftModel) else model
    base.model = torch.compile(base.model, backend="aot_eager")
    return model


def of_each_block(model: Any) -> Any:
    base = model.get_base_model() if isinstance(model, peft.PeftModel) else model
    for layer in base.model.layers:
        layer.compile(backend="aot_eager")
    return model


@pytest.fixture
def _fresh_compiler() -> Iterator[None]:
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch.compiler.reset()


@pytest.mark.usefixtures("_fresh_compiler")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
@pytest.mark.parametrize("adapter", ["lora", "whole"])
@pytest.mark.parametrize("compiled", [around, in_place, of_the_decoder, of_each_block])
def test_a_compiled_model(compiled: Callable[[nn.Module], Any], adapter: str):
    small: dict[str, Any] = {"num_hidden_layers": 1}
    untouched = logits(tiny_llama(**small))
    model = tiny_llama(**small)
    extend(model, "yarn", factor=4.0, original_length=16)
    bare = add_adapter(model, Adapter(r=2) if adapter == "lora" else None)
    model = compiled(bare)
    head = find_head(model)
    initial = InitialModel(model, head)

    def step() -> float:
        hidden = hidden_states_for(model, head, IDS)
        hidden.square().sum().backward()
        return hidden.sum().item()

    model.train()
    first = step()
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    assert graphs > 0
    with initial.active(model) as original:
        found = initial.head.logits(hidden_states_for(original, initial.head, IDS))
    assert_equal(found, untouched)
    assert step() == first
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == graphs, "nothing was compiled again"


def test_a_resumed_run_has_the_same_initial_model(tmp_path: Path):
    """The Trainer loads checkpoints in `train`, after the initial model was made."""
    untouched = logits(tiny_llama())
    data = [{"input_ids": row, "labels": row} for row in IDS for _ in range(4)]

    def trainer(steps: int, adapter: Adapter | None) -> tuple[Trainer, InitialModel]:
        model = tiny_llama()
        extend(model, "yarn", factor=4.0, original_length=16)
        model = add_adapter(model, adapter)
        initial = InitialModel(model, find_head(model))
        arguments = TrainingArguments(
            str(tmp_path / str(adapter is None)),
            max_steps=steps,
            save_steps=2,
            learning_rate=0.05,
            use_cpu=True,
            report_to="none",
            disable_tqdm=True,
            dataloader_pin_memory=False,
        )
        return Trainer(model, arguments, train_dataset=data), initial  # type: ignore[arg-type]

    for adapter in (None, Adapter(r=2)):
        first, _ = trainer(2, adapter)
        first.train()
        resumed, initial = trainer(3, adapter)
        resumed.train(resume_from_checkpoint=True)
        assert resumed.state.global_step == 3
        with initial.active(resumed.model) as original:
            assert_equal(logits(original), untouched)
        assert (logits(resumed.model.eval()) - untouched).abs().max() > 0.1


def test_copies_of_an_extended_model_have_their_own_positions():
    model = tiny_llama()
    untouched = logits(model)
    extend(model, "clex", factor=4.0, original_length=16)
    twin = copy.deepcopy(model)
    initial = InitialModel(twin, find_head(twin))
    [(_, _, frequencies)] = find_rotary(twin) or [(None, None, twin.model.rotary_emb)]
    with initial.active(twin) as original:
        assert_equal(logits(original), untouched)
        assert twin.model.rotary_emb is frequencies
        assert original.model.rotary_emb is not frequencies
    assert not find_rotary(model)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_recipe_with_four_bit_weights(make: Callable[..., Recipe], precision: str):
    settings: dict[str, Any] = {"quantize": {"method": "nf4"}, "precision": precision}
    adapter = {"r": 2, "modules_to_save": ["embeddings", "norms"]}
    recipe = make(
        **settings,
        adapter=adapter,
        extend={"method": "yarn", "factor": 2.0, "original_length": 16},
        attention={"method": "shifted_sparse", "group": 0.25},
    )
    untouched = load_for_training(make(**settings, adapter=adapter)).model.eval()
    loaded = load_for_training(recipe)
    model = add_adapter(loaded.model, recipe.adapter)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bfloat16"):
        initial = InitialModel(model, find_head(model))
        assert initial.reason is None
        train(model)
        with initial.active(model) as original:
            assert_equal(logits(original), logits(untouched))


@pytest.mark.slow
def test_wrapped_models_in_two_processes(tmp_path: Path, start_ranks: Callable[..., None]):
    start_ranks(Path(__file__).with_name("initial_worker.py"), tmp_path)
    for rank in range(2):
        found = json.loads((tmp_path / f"{rank}.json").read_text())
        assert found["refused"]
        assert set(found["errors"]) == {"lora-ddp", "lora-sharded", "whole-ddp", "whole-sharded"}
        for way, errors in found["errors"].items():
            assert errors["logits"] == 0, way
            assert errors["gradients"] == 0, way
            assert errors["cross_entropy"] <= 1e-4, way
