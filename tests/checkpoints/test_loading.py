"""What the files of a checkpoint or an adapter say is in the model, or it is refused."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import LlamaForCausalLM

from checks.zoo.architectures import animals, build
from lengthwise.checkpoints.doctor import examine
from lengthwise.checkpoints.resolve import quiet_transformers
from lengthwise.checkpoints.saving import plan_extended
from lengthwise.errors import MissingError, UsageError
from lengthwise.subjects import load
from lengthwise.testing import save_tiny_model, tiny_llama
from tests.architectures import logits, tiny_model, with_lora
from tests.tiny_folders import rewritten, saved

Tensors = dict[str, Tensor]
LAYER = "model.layers.0."
SURPLUS: dict[str, Tensors] = {
    "a layer": {"model.layers.2.mlp.up_proj.weight": torch.ones(64, 32)},
    "a bias": {f"{LAYER}self_attn.q_proj.bias": torch.ones(32)},
    "a norm": {f"{LAYER}self_attn.q_norm.weight": torch.ones(8)},
    "scales": {f"{LAYER}mlp.up_proj.weight_scale_inv": torch.ones(1, 1)},
    "an adapter": {f"{LAYER}self_attn.q_proj.lora_A.weight": torch.ones(2, 32)},
    "a table of positions": {"model.embed_positions.weight": torch.ones(64, 32)},
    "a bias of the head": {"lm_head.bias": torch.ones(320)},
}
HARMLESS: dict[str, Tensors] = {
    "frequencies": {f"{LAYER}self_attn.rotary_emb.inv_freq": 1e4 ** -(torch.arange(4) / 4)},
    "a mask": {
        f"{LAYER}self_attn.bias": torch.ones(1, 1, 8, 8),
        f"{LAYER}self_attn.masked_bias": torch.ones(()),
    },
    "a mask of truth values": {f"{LAYER}self_attn.bias": torch.ones(1, 1, 8, 8, dtype=torch.bool)},
    "whole numbers of a tower": {
        "vision_tower.bn.num_batches_tracked": torch.tensor(3),
        "vision_tower.patch.weight": torch.ones(2, dtype=torch.int8),
    },
    "frequencies of a talker": {"talker.model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)},
    "bytes of another library": {f"{LAYER}mlp._extra_state": torch.ones(1, dtype=torch.uint8)},
    "frequencies of a tower": {"model.visual.rotary_pos_emb.inv_freq": torch.ones(4)},
    "frequencies by another name": {f"{LAYER}self_attn.maybe_rotary.inv_freq": 1e4 ** -(torch.arange(4) / 4)},
    "positions": {"model.embed_tokens.position_ids": torch.arange(8)[None]},
    "sinusoids": {
        f"{LAYER}self_attn.weights": torch.ones(8, 4),
        f"{LAYER}self_attn._float_tensor": torch.ones(1),
    },
    "a state of another library": {f"{LAYER}mlp._extra_state": torch.ones(1)},
    "a scale of a cache": {f"{LAYER}self_attn.k_proj.k_scale": torch.ones(())},
    "a tower": {"vision_tower.layers.0.weight": torch.ones(2), "model.visual.patch.weight": torch.ones(2)},
    "a reward head": {"score.weight": torch.ones(1, 32), "v_head.summary.bias": torch.ones(1)},
}


def changed(folder: Path, change: Callable[[Tensors], Tensors]) -> str:
    """The folder with other tensors in its file."""
    file = folder / "model.safetensors"
    save_file(change(load_file(file)), file, {"format": "pt"})
    return str(folder)


@pytest.mark.parametrize("kind", SURPLUS)
def test_a_tensor_without_a_place_is_refused(folder: Path, kind: str) -> None:
    name = changed(folder, lambda tensors: tensors | SURPLUS[kind])
    with pytest.raises(UsageError) as caught:
        load(name)
    assert next(iter(SURPLUS[kind])) in caught.value.problem
    assert caught.value.expected
    assert caught.value.fix


@pytest.mark.parametrize("kind", HARMLESS)
def test_a_tensor_of_another_part_is_passed_over(folder: Path, kind: str) -> None:
    name = changed(folder, lambda tensors: tensors | HARMLESS[kind])
    torch.testing.assert_close(logits(load(name).model), logits(tiny_llama()))


def test_layers_that_predict_further_tokens_are_passed_over(folder: Path) -> None:
    rewritten(folder, num_nextn_predict_layers=1)
    own = {"model.layers.2.eh_proj.weight": torch.ones(32, 64)}
    name = changed(folder, lambda tensors: tensors | SURPLUS["a layer"] | own)
    torch.testing.assert_close(logits(load(name).model), logits(tiny_llama()))


@pytest.mark.parametrize("ignored", [None, [r"model\.layers\.2.*"]])
@pytest.mark.parametrize("further", [0, 1])
def test_a_layer_that_config_json_leaves_out_is_none_that_predicts_further(
    folder: Path, monkeypatch: pytest.MonkeyPatch, ignored: Any, further: int
) -> None:
    """Of DeepSeek V3 and GLM 4.5, transformers says nothing of a layer of the number that theirs has."""
    monkeypatch.setattr(LlamaForCausalLM, "_keys_to_ignore_on_load_unexpected", ignored)
    rewritten(folder, num_nextn_predict_layers=further)
    with pytest.raises(UsageError, match=r"no place for: 'model.layers.2.mlp.up_proj"):
        load(changed(folder, lambda tensors: tensors | SURPLUS["a layer"]))


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_buffer_of_the_files_that_is_no_number_is_refused(tmp_path: Path, number: float) -> None:
    """The bias by which DeepSeek V3 chooses experts: no logit is NaN with it."""
    zoo("deepseek_v3", tmp_path / "model")

    def without(tensors: Tensors) -> Tensors:
        [name] = [each for each in tensors if each.endswith("1.mlp.gate.e_score_correction_bias")]
        tensors[name][0] = number
        return tensors

    load(str(tmp_path / "model"))
    with pytest.raises(UsageError, match=r"NaN or infinite: .*e_score_correction_bias"):
        load(changed(tmp_path / "model", without))


def zoo(kind: str, folder: Path) -> Path:
    """A tiny model of an architecture, with the names of tensors that its published files have."""
    [animal] = (each for each in animals() if each.name == kind)
    with quiet_transformers():
        build(animal, folder)
    return folder


RENAMED = {
    "llama": r"layers\.1\.mlp\.up_proj\.weight",
    "mixtral": r"layers\.1\.block_sparse_moe\.experts\.1\.w1\.weight",
    "gpt_neox": r"^embed_out\.weight",
    "gemma3": r"^language_model\.model\.layers\.1\.mlp\.up_proj\.weight",
}
"""A weight of published files that transformers renames, but for the first."""


@pytest.mark.parametrize("architecture", RENAMED)
def test_a_weight_without_its_scales_is_refused_by_any_name(architecture: str, tmp_path: Path) -> None:
    """Mixtral's experts in whole numbers moved logits by 8."""
    folder = zoo(architecture, tmp_path / "model")
    tensors = load_file(folder / "model.safetensors")
    [name] = [each for each in tensors if re.search(RENAMED[architecture], each)]
    for kind in (torch.int8, torch.uint8, torch.int64, torch.float8_e4m3fn):
        changed(folder, lambda tensors, kind=kind: tensors | {name: tensors[name].mul(99).to(kind)})
        for quantization in (None, "nf4"):
            with pytest.raises(UsageError, match="and no quantization_config") as caught:
                load(str(folder), quantization=quantization)
            assert name in caught.value.problem
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})


@pytest.mark.parametrize("bits", ["nf4", "int8", None])
@pytest.mark.parametrize("architecture", RENAMED)
def test_whole_numbers_by_any_name_that_are_right(architecture: str, bits: Any, tmp_path: Path) -> None:
    """Quantized weights with their scales, and masks and counters of old files."""
    pytest.importorskip("bitsandbytes", reason="needs the extra qlora")
    made = load(str(zoo(architecture, tmp_path / "model")), quantization=bits)
    folder = saved(made.model, tmp_path / "again")
    attention = "gpt_neox.layers.0.attention" if architecture == "gpt_neox" else f"{LAYER}self_attn"
    own = {
        f"{attention}.bias": torch.ones(1, 1, 8, 8, dtype=torch.bool),
        "vision_tower.vision_model.embeddings.position_ids": torch.arange(8)[None],
    }
    name = changed(folder, lambda tensors: tensors | own)
    torch.testing.assert_close(logits(load(name).model), logits(made.model), rtol=0, atol=0)


KEPT: dict[str, tuple[torch.dtype, str, bool]] = {
    "float32 for float32": (torch.float32, "float32", False),
    "float32 for bfloat16": (torch.float32, "bfloat16", True),
    "float32 for float16": (torch.float32, "float16", True),
    "float16 for bfloat16": (torch.float16, "bfloat16", True),
    "float64 for float32": (torch.float64, "float32", True),
    "bfloat16 for bfloat16": (torch.bfloat16, "bfloat16", False),
    "bfloat16 for float32": (torch.bfloat16, "float32", False),
}


@pytest.mark.parametrize("case", KEPT)
@pytest.mark.parametrize("names", ["norm", "weight"])
def test_weights_that_are_rounded_as_config_json_asks_are_said(folder: Path, case: str, names: str) -> None:
    kept, asked, said = KEPT[case]
    coarse = getattr(torch, asked)

    def stored(tensors: Tensors) -> Tensors:
        return {name: each.to(kept if names in name else coarse) for name, each in tensors.items()}

    name = rewritten(Path(changed(folder, stored)), dtype=asked)
    assert [asked in each for each in load(name).remarks] == [True] * said
    assert [asked in each for each in examine(name)["notes"] if "digits" in each] == [True] * said
    assert load(name, dtype="float64").remarks == []


def test_what_is_missing_is_named_with_what_is_there_instead(folder: Path) -> None:
    lost = f"{LAYER}mlp.up_proj.weight"
    name = changed(
        folder, lambda tensors: {key.replace("0.mlp.up", "0.mlp.mup"): each for key, each in tensors.items()}
    )
    with pytest.raises(MissingError) as caught:
        load(name)
    assert lost in caught.value.problem
    assert f"{LAYER}mlp.mup_proj.weight" in caught.value.problem


def test_other_shapes_are_named(folder: Path) -> None:
    with pytest.raises(MissingError) as caught:
        load(rewritten(folder, vocab_size=400))
    assert (
        "model.embed_tokens.weight is [320, 32] in its files and [400, 32] in the model"
        in caught.value.problem
    )


@pytest.mark.parametrize("equal", [True, False])
def test_a_head_beside_a_tied_embedding(folder: Path, equal: bool) -> None:
    def with_head(tensors: Tensors) -> Tensors:
        table = tensors["model.embed_tokens.weight"]
        return tensors | {"lm_head.weight": table.clone() if equal else table + 1}

    name = changed(folder, with_head)
    if equal:
        torch.testing.assert_close(logits(load(name).model), logits(tiny_llama()))
        return
    with pytest.raises(UsageError, match="ties the head"):
        load(name)


def test_weights_that_are_there_twice(folder: Path) -> None:
    shard = "model-00001-of-00001.safetensors"
    shutil.copy(folder / "model.safetensors", folder / shard)
    homes = dict.fromkeys(load_file(folder / shard), shard)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": homes}))
    with pytest.raises(UsageError, match="twice"):
        load(str(folder))
    (folder / "model.safetensors").unlink()
    torch.testing.assert_close(logits(load(str(folder)).model), logits(tiny_llama()))
    index.write_text("{}")
    with pytest.raises(MissingError, match="damaged"):
        load(str(folder))


def test_an_adapter_beside_a_model(folder: Path) -> None:
    """transformers would add it, and no record would say so."""
    with_lora(tiny_llama()).save_pretrained(folder)
    with pytest.raises(UsageError, match="holds a model and an adapter"):
        load(str(folder))


def test_an_adapter_alone_names_no_option_of_another_verb(tmp_path: Path) -> None:
    with_lora(tiny_llama()).save_pretrained(tmp_path / "adapter")
    with pytest.raises(MissingError) as caught:
        plan_extended(str(tmp_path / "adapter"), "yarn", factor=2.0)
    assert "name its base model" in str(caught.value.fix)


@pytest.mark.parametrize(
    ("edits", "words"),
    [
        ({"target_modules": ["q_proj"]}, "no place for"),
        ({"target_modules": ["q_proj", "v_proj", "o_proj"]}, "no weights for"),
        ({"use_dora": True}, "lora_magnitude_vector"),
        ({"layers_to_transform": [0]}, "layers.1"),
    ],
    ids=["fewer modules", "more modules", "DoRA", "fewer layers"],
)
@pytest.mark.filterwarnings("ignore:Found missing adapter keys")
def test_an_adapter_has_a_place_for_all_of_its_tensors(
    folder: Path, tmp_path: Path, edits: dict[str, Any], words: str
) -> None:
    with_lora(tiny_llama(), target_modules=["q_proj", "v_proj"]).save_pretrained(tmp_path / "adapter")
    assert load(str(folder), adapter=str(tmp_path / "adapter")).adapter is not None
    rewritten(tmp_path / "adapter", "adapter_config.json", **edits)
    with pytest.raises(UsageError) as caught:
        load(str(folder), adapter=str(tmp_path / "adapter"))
    assert words in caught.value.problem


WHOLE: dict[str, tuple[dict[str, Any], str]] = {
    "all biases": ({"bias": "all"}, "bias"),
    "biases of its layers": ({"bias": "lora_only"}, "bias"),
    "a module": ({"modules_to_save": ["norm"]}, "norm"),
    "tokens": ({"trainable_token_indices": [1, 2]}, "trainable_tokens"),
}


@pytest.mark.parametrize("case", WHOLE)
def test_what_an_adapter_trains_whole_is_in_its_file(folder: Path, tmp_path: Path, case: str) -> None:
    """Without its biases an adapter moved logits by 9."""
    settings, words = WHOLE[case]
    base = str(save_tiny_model(tmp_path / "base", attention_bias=True))
    adapted = with_lora(load(base).model, **settings)
    for name, weight in adapted.named_parameters():
        weight.data += weight.requires_grad and words in name
    adapted.save_pretrained(tmp_path / "adapter")
    loaded = load(base, adapter=str(tmp_path / "adapter"))
    torch.testing.assert_close(logits(loaded.model), logits(adapted))
    file = tmp_path / "adapter" / "adapter_model.safetensors"
    kept = {name: each for name, each in load_file(file).items() if words not in name}
    assert kept.keys() < load_file(file).keys()
    save_file(kept, file, {"format": "pt"})
    # Of some PEFT raises an error that names them.
    with pytest.raises((UsageError, MissingError)) as caught:
        load(base, adapter=str(tmp_path / "adapter"))
    assert words in caught.value.problem


def test_an_adapter_without_weights(folder: Path, tmp_path: Path) -> None:
    with_lora(tiny_llama()).save_pretrained(tmp_path / "adapter")
    (tmp_path / "adapter" / "adapter_model.safetensors").unlink()
    with pytest.raises(MissingError, match="adapter_model"):
        load(str(folder), adapter=str(tmp_path / "adapter"))


def test_no_layers_to_extend(folder: Path) -> None:
    with pytest.raises(UsageError, match="0 layers"):
        plan_extended(rewritten(folder, num_hidden_layers=0), "ntk", factor=2.0)


def test_the_original_length_at_the_top_of_the_file(folder: Path) -> None:
    rope = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0}
    name = rewritten(folder, rope_parameters=rope, original_max_position_embeddings=32)
    assert plan_extended(name, "yarn", factor=2.0)["original_length"] == 32


def test_a_model_that_cannot_run_is_refused_in_words(tmp_path: Path) -> None:
    """More experts for a token than there are."""
    from transformers import AutoConfig, AutoModelForCausalLM

    settings: dict[str, Any] = {
        "vocab_size": 320, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1,
        "num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 2, "num_experts_per_tok": 3,
        "bos_token_id": None, "eos_token_id": 0,
    }  # fmt: skip
    with quiet_transformers():
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model("mixtral", **settings))
    loaded = load(str(saved(model, tmp_path / "model")))
    with pytest.raises(UsageError, match="cannot read"):
        _ = loaded.head


@pytest.mark.parametrize(
    "name", ["llama-gqa", "gpt2", "gpt-neox", "gemma3-text", "phi3", "bloom-alibi", "gptj-bias"]
)
def test_sound_models_are_not_refused(tmp_path: Path, name: str) -> None:
    model = tiny_model(name)
    torch.testing.assert_close(
        logits(load(str(saved(model, tmp_path / "model"))).model, 20), logits(model, 20)
    )


CLAIMS: dict[str, dict[str, Any]] = {
    "nf4": {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
    "int8": {"quant_method": "bitsandbytes", "load_in_8bit": True},
    "older": {"load_in_8bit": True},
    "fp8": {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"},
    "mxfp4": {"quant_method": "mxfp4"},
    "gptq": {"quant_method": "gptq", "bits": 4},
    "awq": {"quant_method": "awq", "bits": 4},
    "unknown": {"quant_method": "nvfp9"},
}


@pytest.mark.parametrize("claim", CLAIMS)
@pytest.mark.parametrize("use", [load, examine])
def test_whole_weights_that_claim_to_be_quantized(
    folder: Path, claim: str, use: Callable[[str], Any]
) -> None:
    with pytest.raises(UsageError, match="claims quantized weights") as caught:
        use(rewritten(folder, quantization_config=CLAIMS[claim]))
    assert caught.value.expected
    assert "remove quantization_config" in str(caught.value.fix)


def test_weights_that_need_another_package_name_it(folder: Path) -> None:
    """As the format with fewer bits in a tensor, and one that only simulates them."""
    quantized = {"quant_method": "quark"}
    dense = {"quant_method": "quark", "format": "dense"}
    for name in (
        rewritten(folder, quantization_config=dense),
        changed(
            Path(rewritten(folder, quantization_config=quantized)),
            lambda tensors: tensors | {f"{LAYER}mlp.up_proj.weight": torch.ones(64, 32, dtype=torch.int8)},
        ),
    ):
        with pytest.raises(MissingError, match="Quark") as caught:
            load(name)
        assert "package" in str(caught.value.expected)
        assert caught.value.fix
