"""Models that were published with an extension: they are extended from what is there, or refused in words."""

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from checks.zoo.architectures import animals, build
from lengthwise.checkpoints import extend
from lengthwise.checkpoints.doctor import examine
from lengthwise.checkpoints.extending import find_rotary
from lengthwise.checkpoints.saving import plan_extended, save_extended, save_whole
from lengthwise.errors import UsageError
from lengthwise.subjects import load
from lengthwise.testing import save_tiny_model
from tests.architectures import random_ids, tiny_model, with_lora
from tests.tiny_folders import rewritten

CONTINUED = {
    "llama, linear": "pi",
    "internlm3, dynamic NTK": "dynamic_ntk",
    "llama, Llama 3": "llama3",
    "apertus, Llama 3": "llama3",
    "qwen3, YaRN": "yarn",
    "gpt_oss, YaRN": "yarn",
    "deepseek_v3, YaRN": "yarn",
    "ministral3, YaRN and scaled queries": "yarn",
    "gemma3_text, linear in full layers": "pi",
}


def built(name: str, folder: Path) -> Path:
    [animal] = (each for each in animals() if each.name == name)
    build(animal, folder)
    return folder


@torch.no_grad()
def predictions(model: Any) -> torch.Tensor:
    return model.eval()(input_ids=random_ids(1, 200)).logits


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CONTINUED)
def test_it_goes_on_as_if_the_greater_factor_were_written_by_hand(name: str, tmp_path: Path) -> None:
    base, method = built(name, tmp_path / "base"), CONTINUED[name]
    config = json.loads((base / "config.json").read_text())
    rope = config["rope_parameters"].get("full_attention", config["rope_parameters"])
    rope["factor"] *= 2.0
    if method != "dynamic_ntk":
        # transformers' dynamic type reads the original length from it.
        config["max_position_embeddings"] *= 2
    shutil.copytree(base, tmp_path / "hand")
    (tmp_path / "hand" / "config.json").write_text(json.dumps(config))
    expected = predictions(AutoModelForCausalLM.from_pretrained(tmp_path / "hand"))

    facts = save_extended(str(base), method, tmp_path / "extended", factor=2.0)
    assert facts["factor"] == rope["factor"]
    assert (
        facts["extended_length"]
        == 2 * json.loads((base / "config.json").read_text())["max_position_embeddings"]
    )
    saved = load(str(tmp_path / "extended"))
    torch.testing.assert_close(predictions(saved.model), expected, rtol=1e-4, atol=1e-4)
    memory = load(str(base))
    assert extend(memory.model, method, factor=2.0) == saved.extension
    torch.testing.assert_close(predictions(memory.model), expected, rtol=1e-4, atol=1e-4)
    assert saved.trained_length == load(str(base)).trained_length


def test_yarn_of_deepseek_scales_attention_by_the_greater_factor(tmp_path: Path) -> None:
    """With mscale_all_dim, whose part in the scale of attention the class computes when it is built."""
    base = built("deepseek_v3, YaRN", tmp_path / "base")
    config = json.loads((base / "config.json").read_text())
    rewritten(base, rope_parameters=config["rope_parameters"] | {"mscale": 1.0, "mscale_all_dim": 0.5})
    model = load(str(base)).model
    before = model.model.layers[0].self_attn.scaling
    extension = extend(model, "yarn", factor=2.0)
    assert extension.factor == 8
    at = {factor: 0.1 * 0.5 * torch.log(torch.tensor(factor)).item() + 1 for factor in (4.0, 8.0)}
    assert model.model.layers[0].self_attn.scaling / before == pytest.approx((at[8.0] / at[4.0]) ** 2)
    [(_, _, rotary)] = find_rotary(model)
    assert rotary.attention_scaling == pytest.approx(
        (0.1 * torch.log(torch.tensor(8.0)).item() + 1) / at[8.0]
    )


def test_a_fixed_alpha_is_plain_rope_of_another_base(tmp_path: Path) -> None:
    base = built("hunyuan_v1_dense, fixed alpha", tmp_path / "base")
    model = load(str(base)).model
    [(_, _, rotary)] = find_rotary(model)
    before = rotary.inv_freq
    extend(model, "pi", factor=2.0)
    [(_, _, rotary)] = find_rotary(model)
    torch.testing.assert_close(rotary.inv_freq, before / 2)


def test_its_adapter_extends_the_base_again(tmp_path: Path) -> None:
    base = built("llama, Llama 3", tmp_path / "base")
    loaded = load(str(base))
    extend(loaded.model, "llama3", factor=2.0)
    adapted = with_lora(loaded.model)
    save_whole(adapted, loaded.tokenizer, tmp_path / "adapter")
    again = load(str(base), adapter=str(tmp_path / "adapter"))
    torch.testing.assert_close(predictions(again.model), predictions(adapted))


_YARN = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4, "original_max_position_embeddings": 16}
_LONGROPE = {
    "rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 4, "long_factor": [2.0] * 4,
    "original_max_position_embeddings": 32,
}  # fmt: skip
REFUSED: dict[str, tuple[dict[str, Any], str, dict[str, Any], str]] = {
    "another method": (_YARN, "pi", {}, "expected: method yarn, which its published extension has"),
    "other options": (_YARN, "yarn", {"beta_fast": 16.0}, r"its own options, not {'beta_fast': 16.0}"),
    "an original length": (_YARN, "yarn", {"original_length": 64}, "original_length = 64"),
    "a temperature of no formula": (_YARN | {"attention_factor": 0.7}, "yarn", {}, "attention_factor = 0.7"),
    "factors that were searched": (_LONGROPE, "longrope", {"long_factor": [4.0] * 4}, "longrope"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_go_on(case: str) -> None:
    rope, method, given, says = REFUSED[case]
    model = tiny_model("llama-gqa", rope_parameters=rope)
    with pytest.raises(UsageError, match=says):
        extend(model, method, factor=2.0, **given)


NOT_REACHED = {
    "falcon, ALiBi": ("yarn", "uses no rotary positions"),
    "phi3": ("yarn", "does not take yarn"),
    "granite_swa": ("yarn", "of their own"),
    "ministral": ("yarn", "no layer of"),
    "mistral": ("yarn", "no layer of"),
    # The layers that see all have no rope.
    "afmoe": ("yarn", "only in layers that see a window"),
    "cohere2": ("yarn", "only in layers that see a window"),
    "exaone4, Llama 3": ("llama3", "only in layers that see a window"),
    "llama4_text": ("yarn", "only in layers that see a window"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NOT_REACHED)
def test_what_an_extension_would_not_reach(name: str, tmp_path: Path) -> None:
    method, says = NOT_REACHED[name]
    with pytest.raises(UsageError, match=says):
        save_extended(str(built(name, tmp_path / "base")), method, tmp_path / "out", factor=2.0)
    assert not (tmp_path / "out").exists()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["gemma2", "smollm3", "moshi", "zaya, half of its layers slide"])
def test_what_it_reaches_in_some_layers(name: str, tmp_path: Path) -> None:
    """Beside layers with a window, or without rope."""
    base = built(name, tmp_path / "base")
    before, model = predictions(load(str(base)).model), load(str(base)).model
    extend(model, "yarn", factor=2.0)
    assert (predictions(model) - before).abs().max() > 1e-3


def test_a_width_of_heads_that_follows_from_others(tmp_path: Path) -> None:
    """Mixtral and Mistral have head_dim = null, which transformers' formulas do not expect."""
    model = tiny_model("mistral", head_dim=None, sliding_window=None)
    model.config.head_dim = None
    extend(model, "yarn", factor=2.0)
    assert type(model.config).from_dict(model.config.to_dict()).head_dim == 8


def test_quantized_weights_are_refused_before_they_are_loaded(tmp_path: Path) -> None:
    base = rewritten(save_tiny_model(tmp_path / "m"), quantization_config={"quant_method": "awq", "bits": 4})
    for write in (plan_extended, partial(save_extended, out=tmp_path / "out")):
        with pytest.raises(UsageError, match=r"quantized \(awq\)"):
            write(base, "yarn", factor=2.0)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "method"), [("gemma3_text", "dynamic_ntk"), ("doge", "eabf"), ("ministral3", "yarn")]
)
def test_what_was_extended_is_read_and_examined(name: str, method: str, tmp_path: Path) -> None:
    """Gemma's ropes lack a length before their first pass; Doge names the mask; Ministral says its length twice."""
    save_extended(str(built(name, tmp_path / "base")), method, tmp_path / "out", factor=2.0)
    loaded = load(str(tmp_path / "out"))
    assert examine(str(tmp_path / "out"))["faults"] == []
    assert predictions(loaded.model).isfinite().all()
