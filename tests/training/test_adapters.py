from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from trainers import run, trainer_for

from lengthwise.checkpoints import Head, extend
from lengthwise.checkpoints.clex_rotary import clex_modules
from lengthwise.checkpoints.resolve import quiet_transformers
from lengthwise.checkpoints.stored_weights import is_4bit
from lengthwise.checkpoints.variants import quantization_config
from lengthwise.errors import MissingError, UsageError
from lengthwise.subjects import LoadedModel, load
from lengthwise.testing import save_tiny_model
from lengthwise.training.merging import merge_run
from lengthwise.training.recipe import Recipe
from lengthwise.training.sections import Adapter
from lengthwise.training.starting_model import add_adapter, load_for_training
from lengthwise.training.training_plan import plan

Make = Callable[..., Recipe]

# What LongQLoRA is: PI, S2-Attn, 4 bits twice quantised, LoRA everywhere, embeddings and norms whole.
LONGQLORA: dict[str, Any] = {
    "extend": {"method": "pi", "factor": 2.0, "original_length": 16},
    "shifted_sparse": 0.25,
    "quantize": "nf4",
    "adapter": {"r": 4, "modules_to_save": ["embeddings", "norms"]},
    "objective": {"alpha": 0.1, "divergence": "sce"},
    "steps": 3,
    "optimizer": {"learning_rate": 0.02},
}
PEFT = {
    "dora": {"r": 2, "use_dora": True},
    "ia3": {
        "config": "IA3Config",
        "target_modules": ["k_proj", "down_proj"],
        "feedforward_modules": ["down_proj"],
    },
    "adaption-prompt": {"config": "AdaptionPromptConfig", "adapter_len": 4, "adapter_layers": 2},
}


@torch.no_grad()
def logits(model: Any) -> Tensor:
    return model.eval()(input_ids=torch.arange(40)[None]).logits


def trained(recipe: Recipe, folder: Path) -> Any:
    """The model as it stood at the end of the run, on the base that it was trained on, with float32 products."""
    from peft import PeftModel

    base = load_for_training(recipe).model
    for parameter in base.parameters():
        # So that what was trained in float32 is not rounded on loading; 4-bit weights are no floats.
        if parameter.is_floating_point():
            parameter.data = parameter.data.float()
    for layer in filter(is_4bit, base.modules()):
        layer.compute_dtype = torch.float32
    with quiet_transformers():
        return PeftModel.from_pretrained(base, str(folder / "model"))


@pytest.fixture
def base(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    # Wide enough for the blocks of 64 weights to be more than one, and to make rounding show.
    tie = getattr(request, "param", "untied")
    return str(save_tiny_model(tmp_path / tie, hidden_size=64, tie_word_embeddings=tie == "tied"))


@pytest.mark.parametrize(
    ("base", "precision"), [("tied", "float32"), ("untied", "bfloat16")], indirect=["base"]
)
def test_longqlora_trains_saves_and_merges_without_loss(make, tmp_path, base, precision):
    pytest.importorskip("bitsandbytes", reason="needs the extra qlora")
    recipe = make(**LONGQLORA, model=base, precision=precision)
    lines = run(recipe, tmp_path / "run")
    assert len(lines) == 3
    assert all(line["misalignment"] > 0 for line in lines)
    saved = {path.name for path in (tmp_path / "run" / "model").iterdir()}
    assert {"adapter_model.safetensors", "tokenizer.json", "lengthwise_extension.json"} <= saved
    assert "model.safetensors" not in saved

    exact = logits(trained(recipe, tmp_path / "run"))
    facts = merge_run(tmp_path / "run", tmp_path / "merged")
    assert (facts["quantized"], facts["extension"], facts["dtype"]) == ("nf4", "pi", "float32")
    merged = load(str(tmp_path / "merged"), dtype="float32")
    assert merged.extension is not None
    assert not any(map(is_4bit, merged.model.modules()))
    scale = exact.abs().max()
    assert (logits(merged.model) - exact).abs().max() <= 1e-5 * scale
    from transformers import AutoModelForCausalLM

    alone = AutoModelForCausalLM.from_pretrained(tmp_path / "merged", dtype=torch.float32)
    torch.testing.assert_close(logits(alone), logits(merged.model))
    # Merging into the weights before quantisation would be another model.
    naive = logits(load(base, dtype="float32", adapter=str(tmp_path / "run" / "model")).model)
    assert (naive - exact).abs().max() > 1e-2 * scale


@pytest.mark.parametrize("base", ["tied", "untied"], indirect=True)
def test_what_longqlora_trains(make: Make, base: str):
    pytest.importorskip("bitsandbytes", reason="needs the extra qlora")
    recipe = make(**LONGQLORA, model=base, precision="bfloat16")
    loaded = load_for_training(recipe)
    assert isinstance(loaded.head, Head)
    layers = [layer for layer in loaded.model.modules() if is_4bit(layer)]
    assert len(layers) == 2 * 7
    assert all(layer.weight.quant_state.nested for layer in layers)
    assert all(layer.weight.quant_state.quant_type == "nf4" for layer in layers)
    model = add_adapter(loaded.model, recipe.adapter)
    trainable = {name: p for name, p in model.named_parameters() if p.requires_grad}
    assert all(p.dtype == torch.float32 for p in trainable.values())
    assert sum("lora_A" in name for name in trainable) == len(layers)
    whole = [name for name in trainable if "modules_to_save" in name]
    assert sum("norm" in name for name in whole) == 5
    assert any("embed_tokens" in name for name in whole)
    head = model.get_output_embeddings()
    assert (loaded.model.config.tie_word_embeddings) == any(p.requires_grad for p in head.parameters())
    if loaded.model.config.tie_word_embeddings:
        embedding = next(p for name, p in trainable.items() if "embed_tokens" in name)
        assert any(p is embedding for p in head.parameters())


def test_four_bit_weights_are_steady_in_evaluation_and_training(make: Make, base: str):
    """An evaluation in between (proving the head, for one) leaves what training computes as it was."""
    pytest.importorskip("bitsandbytes", reason="needs the extra qlora")
    recipe = make(**LONGQLORA | {"shifted_sparse": None}, model=base)
    fresh, used = (load_for_training(recipe).model for _ in range(2))
    evaluated = logits(used)
    gradients = []
    for model in (fresh, used):
        embedded = model.get_input_embeddings()(torch.arange(40)[None]).detach().requires_grad_()
        found = model.train()(inputs_embeds=embedded).logits
        torch.testing.assert_close(found.detach(), evaluated, rtol=1e-5, atol=1e-5)
        gradients += torch.autograd.grad(found.square().sum(), embedded)
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-5, atol=1e-5)
    assert gradients[0].abs().min() > 0


@pytest.mark.parametrize("name", PEFT)
def test_any_method_of_peft_trains_with_the_objective(make: Make, shared: Path, tmp_path: Path, name: str):
    recipe = make(adapter=PEFT[name], steps=3, optimizer={"learning_rate": 0.05})
    lines = run(recipe, tmp_path / "run")
    assert lines[-1]["grad_norm"] > 0
    base = load(str(shared / "model"))
    adapted: LoadedModel = load(str(shared / "model"), adapter=str(tmp_path / "run" / "model"))
    assert (logits(adapted.model) - logits(base.model)).abs().max() > 1e-3


def test_a_learned_extension_is_merged_too(make: Make, tmp_path: Path):
    recipe = make(
        extend={"method": "clex", "factor": 4.0, "original_length": 8},
        adapter={"r": 2},
        steps=2,
        optimizer={"learning_rate": 0.05},
    )
    run(recipe, tmp_path / "run")
    expected = logits(load(recipe.model, adapter=str(tmp_path / "run" / "model")).model)
    merge_run(tmp_path / "run", tmp_path / "merged")
    torch.testing.assert_close(logits(load(str(tmp_path / "merged")).model), expected, rtol=1e-4, atol=1e-4)
    # Frequencies multiply long positions: they keep their digits.
    merge_run(tmp_path / "run", tmp_path / "half", dtype="bfloat16")
    whole, half = (
        load(str(tmp_path / name), dtype="float32" if name == "merged" else "bfloat16").model
        for name in ("merged", "half")
    )
    assert {parameter.dtype for parameter in half.model.layers.parameters()} == {torch.bfloat16}
    learned = [dict(clex_modules(one)) for one in (whole, half)]
    assert learned[0].keys() == learned[1].keys()
    for name, module in learned[0].items():
        for key, value in module.state_dict().items():
            assert torch.equal(learned[1][name].state_dict()[key], value), key


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "left_out"), [("mamba", "out_proj"), ("phimoe", "router"), ("falcon", None)]
)
def test_the_layers_of_the_default_are_those_that_peft_takes(tmp_path: Path, name: str, left_out: str | None):
    from checks.zoo.architectures import animals, build

    build(next(each for each in animals() if each.name == name), tmp_path / name)
    adapted: Any = add_adapter(load(str(tmp_path / name)).model, Adapter.model_validate({"r": 2}))
    found = {each.partition(".lora_B")[0] for each, _ in adapted.named_parameters() if ".lora_B" in each}
    assert found
    assert not any(each.rpartition(".")[2] == left_out for each in found)
    assert logits(adapted).isfinite().all()


def test_what_cannot_be_merged_is_said(make: Make, tmp_path: Path):
    with pytest.raises(MissingError, match=str(tmp_path)):
        merge_run(tmp_path / "none", tmp_path / "out")
    run(make(steps=1), tmp_path / "whole")
    with pytest.raises(UsageError, match="whole"):
        merge_run(tmp_path / "whole", tmp_path / "out")
    with pytest.raises(UsageError, match=str(tmp_path)):
        merge_run(tmp_path / "whole", tmp_path / "whole")
    with pytest.raises(UsageError, match="float31"):
        merge_run(tmp_path / "whole", tmp_path / "out", dtype="float31")


@pytest.mark.parametrize("r", ["xx", -1, [1], 2.5])
def test_options_of_peft_of_a_wrong_type(make: Make, r: Any):
    with quiet_transformers(), pytest.raises(UsageError, match="LoraConfig"):
        plan(make(adapter={"r": r}))


LOHA = {"config": "LoHaConfig", "target_modules": ["q_proj"]}
IDLE: dict[str, tuple[dict[str, Any], str]] = {
    "no scale": ({"lora_alpha": 0}, "lora_alpha = 0"),
    "no scale of another method": (LOHA | {"alpha": 0}, r"adapter\.alpha = 0"),
    "all dropped": ({"lora_dropout": 1.0}, r"lora_dropout = 1\.0"),
    "all dropped by another method": (LOHA | {"module_dropout": 1}, "module_dropout = 1"),
    "less than nothing dropped": ({"lora_dropout": -0.1}, r"lora_dropout = -0\.1"),
    "tokens that switch it on": ({"alora_invocation_tokens": [1]}, "alora_invocation_tokens"),
    "frozen": ({"inference_mode": True}, "inference_mode"),
    "another method frozen": (PEFT["ia3"] | {"inference_mode": True}, "inference_mode"),
    "the type of another class": ({"peft_type": "IA3"}, r"(?s)peft_type = IA3.*adapter\.config"),
    "a revision": ({"revision": "zzz"}, "revision = zzz"),
    "ranks of no layer": ({"rank_pattern": {"nope": 4}}, "rank_pattern has 'nope'"),
    "ranks of other layers": (
        {"target_modules": ["q_proj"], "rank_pattern": {"q_proj": 4, "k_proj": 4}},
        "'k_proj'",
    ),
    "scales of no layer": ({"alpha_pattern": {"q_prj": 4}}, "(?s)alpha_pattern.*did you mean 'q_proj'"),
    "half a pattern": ({"rank_pattern": {"(": 4}}, "LoraConfig"),
    "a bias": ({"bias": "al"}, "LoraConfig.*al"),
    "a package that is missing": ({"megatron_config": {"a": 1}}, "LoraConfig.*megatron"),
    "a number of modules": ({"modules_to_save": 3}, "modules_to_save is 3"),
    "the letters of a module": ({"modules_to_save": "lm_head"}, "modules_to_save is 'lm_head'"),
}


@pytest.mark.parametrize("case", IDLE)
def test_options_with_which_an_adapter_trains_nothing_or_less_than_asked_for_are_refused(
    make: Make, case: str
):
    options, says = IDLE[case]
    with quiet_transformers(), pytest.raises(UsageError, match=says):
        plan(make(adapter=options))


def test_options_of_a_saved_adapter_are_taken(make: Make):
    """Those of an adapter_config.json, which says what PEFT would write anyway."""
    saved = {"peft_type": "LORA", "revision": None, "inference_mode": False, "alora_invocation_tokens": None}
    saved |= {"rank_pattern": {"q_proj": 4}, "alpha_pattern": {"layers.0.self_attn.k_proj": 4}, "r": 2}
    plain = plan(make(adapter={"r": 2}))["trainable_parameters"]
    # Of a width of 32, two layers of two matrices with two rows more.
    assert plan(make(adapter=saved))["trainable_parameters"] == plain + 2 * 2 * 2 * 32


def test_modules_and_methods_that_do_not_fit_the_model_are_refused(make: Make):
    recipe = make(adapter={"modules_to_save": ["embedings"]})
    with pytest.raises(UsageError, match=r"(?s)'embedings'.*did you mean 'embeddings'"):
        add_adapter(load_for_training(recipe).model, recipe.adapter)
    clex = make(
        extend={"method": "clex", "factor": 4.0, "original_length": 8}, adapter=PEFT["adaption-prompt"]
    )
    with pytest.raises(UsageError, match="AdaptionPrompt"):
        add_adapter(load_for_training(clex).model, clex.adapter)


def test_without_bitsandbytes_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingError, match=r"(?s)bitsandbytes.*lengthwise\[qlora\]"):
        quantization_config("nf4", torch.float32)


def test_a_plan_counts_four_bits_for_the_frozen_layers(make: Make, base: str):
    settings = LONGQLORA | {"model": base}
    small, plain = (plan(make(**settings | {"quantize": quantize})) for quantize in ("nf4", None))
    assert small["parameters"] == plain["parameters"]
    assert small["trainable_parameters"] == plain["trainable_parameters"]
    # Two layers of 4 projections (two of them with half the heads) and an MLP of width 64.
    weights = 2 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 64 * 64)
    bits = 4 + 8 / 64 + 32 / (64 * 256)
    assert plain["memory_bytes"] - small["memory_bytes"] == pytest.approx(weights * (4 - bits / 8), abs=2)


def test_what_the_trainer_saves_of_an_adapter_is_extended_as_its_base_was(folder: Path, tmp_path: Path):
    """PEFT writes no word of an extension in memory: loaded again, the base had plain positions."""
    base = load(str(folder)).model
    extend(base, "yarn", factor=2.0)
    adapted = add_adapter(base, Adapter(r=2, init_lora_weights=False))  # type: ignore[call-arg]
    trainer_for(adapted, tmp_path, None).save_model(str(tmp_path / "adapter"))
    again = load(str(folder), adapter=str(tmp_path / "adapter"))
    assert again.extension is not None
    torch.testing.assert_close(logits(again.model), logits(adapted), rtol=0, atol=1e-6)


ON_QUERIES: dict[str, dict[str, Any]] = {
    "lora": {"r": 2},
    "dora": {"r": 2, "use_dora": True},
    "ia3": {"config": "IA3Config", "feedforward_modules": []},
    "vera": {"config": "VeraConfig", "r": 2},
    "oft": {"config": "OFTConfig", "oft_block_size": 4},
    "hra": {"config": "HRAConfig"},
    "loha": {"config": "LoHaConfig"},
    "lokr": {"config": "LoKrConfig"},
    "shira": {"config": "ShiraConfig", "r": 2},
}
"""Methods whose fresh adapter changes nothing."""


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize("bits", ["int8", "nf4"])
@pytest.mark.parametrize("method", ON_QUERIES)
def test_an_adapter_reads_quantized_weights_with_their_scales_or_is_refused(method, bits, folder):
    base = load(str(folder), quantization=bits).model
    before = logits(base)
    adapter = Adapter(target_modules=["q_proj"], **ON_QUERIES[method])
    try:
        adapted = add_adapter(base, adapter)
    except UsageError:
        assert method not in ("lora", "ia3", "vera", "oft")
    else:
        torch.testing.assert_close(logits(adapted), before, rtol=0, atol=1e-4)
