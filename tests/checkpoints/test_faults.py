"""What is wrong with a model that loads: refused, or said beside the numbers, by every verb that measures."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CAUSAL

from checks.zoo.architectures import animals, build
from lengthwise import run
from lengthwise.checkpoints.doctor import examine
from lengthwise.checkpoints.faults import REFUSED
from lengthwise.checkpoints.position_limits import LENGTH
from lengthwise.checkpoints.resolve import quiet_transformers
from lengthwise.checkpoints.written_settings import file_faults
from lengthwise.errors import UsageError
from lengthwise.measure.perplexity import Perplexity
from lengthwise.settings import Subject
from lengthwise.subjects import load
from lengthwise.testing import save_tiny_model, tiny_llama, tiny_text, tiny_tokenizer
from tests.architectures import tiny_model, with_lora
from tests.tiny_folders import rewritten, saved

ROPE = {"rope_type": "default", "rope_theta": 1e4}
LONGROPE = {"rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [0.0] * 4, LENGTH: 32}
SPEC = Perplexity(lengths=(16,), windows=1)
TEXT = [tiny_text(60)]
Folder = Callable[[Path], dict[str, Any]]
"""Writes a model, and gives the fields of its `Subject`."""


def config(name: str = "llama-gqa", *, layers: list[str] | None = None, **changed: Any) -> Folder:
    """A model of a family, with other values in its config.json."""
    made = {"layer_types": layers} if layers else {}
    return lambda path: {"model": rewritten(saved(tiny_model(name, **made), path / "m"), **changed)}


def sliding(**changed: Any) -> Folder:
    return config("mistral", **changed)


def yarn(**changed: Any) -> Folder:
    return config(rope_parameters=ROPE | {"rope_type": "yarn", "factor": 2.0, LENGTH: 32} | changed)


def gemma(**changed: Any) -> Folder:
    """A model with rope by type of layer."""
    return config("gemma3-text", layers=["sliding_attention", "full_attention"], **changed)


def by_type(**full: Any) -> dict[str, Any]:
    """Rope by type of layer, with these settings in full layers."""
    return {"sliding_attention": ROPE, "full_attention": ROPE | full}


def built(name: str) -> Folder:
    """A model of the zoo."""

    def write(path: Path) -> dict[str, Any]:
        build(next(each for each in animals() if each.name == name), path / "m")
        return {"model": str(path / "m")}

    return write


def stored_in(digits: torch.dtype, **changed: Any) -> Folder:
    """The model in a file of such numbers, of which config.json says something else."""

    def write(path: Path) -> dict[str, Any]:
        folder = rewritten(saved(tiny_model("llama-gqa"), path / "m"), **changed)
        file = Path(folder) / "model.safetensors"
        save_file(
            {name: each.to(digits) for name, each in load_file(file).items()}, file, metadata={"format": "pt"}
        )
        return {"model": folder}

    return write


def stored(change: Callable[[torch.Tensor], torch.Tensor], place: str = "layers.0.mlp.up_proj") -> Folder:
    """The model with other numbers in one weight of its file."""

    def write(path: Path) -> dict[str, Any]:
        folder = save_tiny_model(path / "m")
        file = folder / "model.safetensors"
        tensors = load_file(file)
        tensors[f"model.{place}.weight"] = change(tensors[f"model.{place}.weight"])
        save_file(tensors, file, {"format": "pt"})
        return {"model": str(folder)}

    return write


def in_pickle(folder: Path, tensors: dict[str, torch.Tensor]) -> None:
    torch.save(tensors, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def pickled(path: Path) -> dict[str, Any]:
    folder = save_tiny_model(path / "m")
    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"] = tensors["model.norm.weight"].to(torch.int8)
    in_pickle(folder, tensors)
    return {"model": str(folder)}


def in_a_pickle(path: Path) -> dict[str, Any]:
    folder = save_tiny_model(path / "m")
    in_pickle(folder, load_file(folder / "model.safetensors"))
    return {"model": rewritten(folder, quantization_config={"quant_method": "nvfp9"})}


LAYER = "model.layers.1.self_attn"


def with_frequencies(
    by: float, *, pickle: bool = False, dtype: torch.dtype = torch.float32, owner: str = LAYER
) -> Folder:
    """With the frequencies of rope in the files, as older versions saved them, divided by a number."""

    def write(path: Path) -> dict[str, Any]:
        folder = save_tiny_model(path / "m")
        file = folder / "model.safetensors"
        half = tiny_llama().config.head_dim // 2
        own = (1e4 ** -(torch.arange(half) / half) / by).to(dtype)
        tensors = load_file(file) | {f"{owner}.rotary_emb.inv_freq": own}
        if pickle:
            in_pickle(folder, tensors)
        else:
            save_file(tensors, file, {"format": "pt"})
        return {"model": str(folder)}

    return write


def twice(path: Path) -> dict[str, Any]:
    """One tensor in two shards, with other numbers."""
    folder = save_tiny_model(path / "m")
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    name, homes = "model.norm.weight", dict.fromkeys(tensors, "one.safetensors")
    save_file(tensors, folder / "one.safetensors", {"format": "pt"})
    save_file({name: tensors[name] * 2}, folder / "two.safetensors", {"format": "pt"})
    homes[name] = "two.safetensors"
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": homes}))
    return {"model": str(folder)}


def adapted(
    change: Callable[[Any], Any] = lambda value: value, *, fresh: bool = False, **keys: Any
) -> Folder:
    """The model with a LoRA: `change` its tensors, and `keys` of its configuration."""

    def write(path: Path) -> dict[str, Any]:
        folder = save_tiny_model(path / "m")
        with_lora(tiny_llama(), init_lora_weights=fresh).save_pretrained(path / "a")
        file = path / "a" / "adapter_model.safetensors"
        save_file({name: change(each) for name, each in load_file(file).items()}, file)
        rewritten(path / "a", "adapter_config.json", **keys)
        return {"model": str(folder), "adapter": str(path / "a")}

    return write


def with_tokens(path: Path) -> dict[str, Any]:
    fields, tokenizer = adapted()(path), tiny_tokenizer()
    tokenizer.add_tokens(["<x>", "<y>"])
    tokenizer.chat_template = "{{ messages[0]['content'] }}"
    tokenizer.save_pretrained(fields["adapter"])
    return fields


def of_another_base(path: Path) -> dict[str, Any]:
    other = save_tiny_model(path / "other", seed=1)
    return adapted(base_model_name_or_path=str(other))(path)


def in_8_bits(path: Path, *, scales: bool = True) -> dict[str, Any]:
    """As published models in fp8 are."""
    folder = save_tiny_model(path / "m")
    file = folder / "model.safetensors"
    tensors = load_file(file)
    for name in [each for each in tensors if "proj" in each]:
        tensors[name] = tensors[name].to(torch.float8_e4m3fn)
        tensors |= {f"{name}_scale_inv": torch.full((1, 1), 2.0)} if scales else {}
    save_file(tensors, file, {"format": "pt"})
    quantization = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    return {"model": rewritten(folder, quantization_config=quantization)}


def with_nan(value: torch.Tensor) -> torch.Tensor:
    value = value.clone()
    value.view(-1)[3] = float("nan")
    return value


def with_infinity(value: torch.Tensor) -> torch.Tensor:
    return with_nan(value).nan_to_num(nan=float("-inf"))


# The model, and words of the refusal.
NO_NUMBER: dict[str, tuple[Folder, str]] = {
    **{f"a window of {size}": (sliding(sliding_window=size), "sliding_window") for size in (0, -1)},
    "a base in quotes": (config(rope_parameters=ROPE | {"rope_theta": "1e4"}), "rope settings"),
    "a factor of the method in quotes": (yarn(factor="4"), "rope settings"),
    "an unknown type of rope": (
        config(rope_parameters=ROPE | {"rope_type": "ntk-parts", "factor": 2.0}), "rope settings"
    ),
    "a base of 1": (config(rope_parameters=ROPE | {"rope_theta": 1}), "rope_theta = 1"),
    "a factor below 1": (
        config(rope_parameters=ROPE | {"rope_type": "linear", "factor": 0.5}), "shrinks the context"
    ),
    "a base without end": (config(rope_parameters=ROPE | {"rope_theta": float("inf")}), "rope_theta = inf"),
    "attention scaled by 0": (yarn(attention_factor=0.0), "attention_factor = 0"),
    "attention scaled by less": (yarn(attention_factor=-1.0), "attention_factor = -1"),
    "a factor in quotes": (yarn(attention_factor="1"), "attention_factor = '1'"),
    "a list of factors with 0": (
        config("phi3", rope_parameters=ROPE | LONGROPE, original_max_position_embeddings=32), "long_factor = 0"
    ),
    "no dimension of a head": (
        config("phi-bias", rope_parameters=ROPE | {"partial_rotary_factor": 0.0}), "partial_rotary_factor = 0"
    ),
    "another method in quotes of a pickle": (in_a_pickle, "claims quantized weights"),
    "frequencies of another base in the files": (with_frequencies(2), "config.json does not give"),
    **{
        f"the same in {owner}": (with_frequencies(2, owner=owner), "config.json does not give")
        for owner in ("model", "layers.1.self_attn", f"language_model.{LAYER}", f"model.language_{LAYER}")
    },
    "the same in a pickle": (with_frequencies(2, pickle=True), "config.json does not give"),
    "a tensor that is there twice": (twice, "more than once"),
    "whole numbers": (stored(lambda value: (value * 127).to(torch.int8)), "in I8"),
    "an adapter in whole numbers": (adapted(lambda value: (value * 99).to(torch.int8)), "whole numbers"),
    "fp8": (stored(lambda value: value.to(torch.float8_e4m3fn)), "in F8_E4M3"),
    "fp8 without scales": (lambda path: in_8_bits(path, scales=False), "scales of it"),
    "whole numbers in a pickle": (pickled, "in int8"),
    "NaN": (stored(with_nan), "layers.0.mlp.up_proj.weight"),
    "infinity": (stored(with_infinity), "NaN or infinite"),
    # No text has the token, and nothing else would show it.
    "NaN in one row of the table": (stored(with_nan, "embed_tokens"), "embed_tokens"),
    "NaN in an adapter": (adapted(with_nan), "the adapter"),
    "infinity in an adapter": (adapted(with_infinity), "the adapter"),
}  # fmt: skip


@pytest.mark.parametrize("case", NO_NUMBER)
def test_what_has_no_number_is_refused_before_anything_is_read(case: str, tmp_path: Path) -> None:
    write, words = NO_NUMBER[case]
    with pytest.raises(UsageError) as caught:
        run(SPEC, Subject(**write(tmp_path)), TEXT)
    assert words in caught.value.problem
    assert caught.value.fix


# The model, and words of the note.
SAID: dict[str, tuple[Folder, str]] = {
    "a misspelt base": (config(rope_thetta=5e5), "rope_thetta = 500000.0, which LlamaForCausalLM does not read. "
                        "Did you mean rope_theta?"),
    "a misspelt window": (sliding(slidng_window=8), "Did you mean sliding_window?"),
    "a misspelt tie": (config(tie_word_embedings=False), "Did you mean tie_word_embeddings?"),
    "a window of a class without any": (config(sliding_window=8), "sliding_window = 8, which LlamaForCausalLM"),
    "a key of rope without effect": (config(rope_parameters=ROPE | {"attn_factor": 2.0}), "attn_factor = 2.0"),
    "two sections": (
        config(rope_scaling={"type": "linear", "factor": 4.0}, rope_parameters=ROPE | {"rope_theta": 5e5}),
        "the model was made with rope_theta = 10000.0 (wrong base)",
    ),
    "a misspelt quantization": (config(quantization_confg={"bits": 4}), "Did you mean quantization_config?"),
    "weights stored in a way that nobody reads": (config(compression_config={"bits": 4}), "compression_config"),
    "a class of another type": (config(architectures=["MistralForCausalLM"]), "names the class MistralForCausalLM"),
    "no length": (config(max_position_embeddings=0), "no trained length"),
    "a base at the top, of another name": (
        config("gpt-neox", rotary_emb_base=5e5), "rotary_emb_base = 500000.0, and the model was made with rope_theta"
    ),
    "a base at the top that the class does not read": (
        config("gpt-neox", rope_parameters=None, rope_theta=5e5), "rope_theta = 500000.0, and the model was made with"
    ),
    "a share of the head at the top": (config("gpt-neox", rotary_pct=0.5), "wrong partial_rotary_factor"),
    "a share of the head that the class does not read": (
        config(partial_rotary_factor=0.5), "without effect are: partial_rotary_factor = 0.5"
    ),
    "two types in one section": (
        config(rope_parameters=None, rope_scaling={"rope_type": "linear", "type": "dynamic", "factor": 2.0}),
        "rope_scaling.type = dynamic, and the model was made with rope_type = linear",
    ),
    "a base of some layers at the top": (
        gemma(rope_local_base_freq=77.0), "rope_theta = 10000.0 in sliding_attention layers (wrong base)"
    ),
    "a pattern of layers that is not theirs": (gemma(sliding_window_pattern=1), "wrong layer_types"),
    "a section of a misspelt type of layer": (
        gemma(rope_parameters={"full_attention": ROPE, "slidng_attention": ROPE}),
        "others are made up (sliding_attention: plain rope, base 10,000)",
    ),
    "sections in a section": (
        gemma(rope_parameters=None, rope_scaling=by_type(rope_type="linear", factor=8.0)), "sections of its own"
    ),
    "two sections, of which one is by type of layer": (
        gemma(
            rope_parameters=by_type(rope_type="linear", factor=8.0),
            rope_scaling={"rope_type": "linear", "factor": 2.0},
        ),
        "rope_parameters.full_attention.factor = 8.0, and the model was made with factor = 2.0",
    ),
    "a key of YaRN without effect in one type of layer": (
        gemma(rope_parameters=by_type(rope_type="yarn", factor=2.0, truncate=False)),
        "without effect are: truncate = False",
    ),
    "an original length beside the types of layers": (
        gemma(rope_parameters=by_type(rope_type="yarn", factor=2.0), original_max_position_embeddings=32),
        f"{LENGTH} = 32, and the model was made with {LENGTH} = 64 in full_attention layers",
    ),
    "a layer of zeros": (stored(torch.zeros_like), "1 hold one number alone: 'model.layers.0.mlp.up_proj.weight'"),
    "one number in a matrix": (stored(lambda value: torch.full_like(value, 0.02)), "hold one number alone"),
    "files that are rounded": (config(dtype="bfloat16"), "more digits than bfloat16, in which config.json"),
    "files of the other 16 bits": (stored_in(torch.float16, dtype="bfloat16"), "--dtype float32 rounds none"),
    "files of 64 bits": (stored_in(torch.float64, dtype="float32"), "--dtype float64 rounds none"),
    "an adapter that is taken away": (adapted(lora_alpha=-16), "scales the adapter by -8 (odd scale)"),
    "an adapter that drowns the model": (adapted(lora_alpha=10**9), "odd scale"),
    "a pattern that names no layer": (adapted(alpha_pattern={"k_prj": 4}), "alpha_pattern for k_prj"),
    "an adapter with a tokenizer of its own": (with_tokens, "2 other tokens and another chat template"),
    "an adapter with half of its matrices": (
        adapted(lambda value: value * (value.shape[0] != 2)), "every lora_B is zero (or lora_A)"
    ),
    "an adapter that learned nothing": (adapted(fresh=True), "every lora_B is zero"),
    "an adapter without weight": (adapted(lora_alpha=0), "lora_alpha is 0"),
    "an adapter of another model": (of_another_base, "/other as its base model, and this is"),
    "a misspelt key of an adapter": (adapted(lora_alpa=64), "Did you mean lora_alpha?"),
}  # fmt: skip


@pytest.mark.parametrize("case", SAID)
def test_what_is_written_and_not_obeyed_is_said_beside_the_numbers(case: str, tmp_path: Path) -> None:
    write, words = SAID[case]
    subject = Subject(**write(tmp_path))
    found = run(SPEC, subject, TEXT)
    assert [note for note in found.notes if words in note and note.startswith(f"{subject.model}: ")]
    assert found.rows[0].value is not None
    [*remarks] = json.loads(found.to_json())["provenance"]["model"]["remarks"]
    assert [remark for remark in remarks if words in remark], "they are kept in the record"


LINEAR = {"rope_type": "linear", "factor": 8.0}
# The model, and keys that its class does not read.
LACKED: dict[str, tuple[Folder, dict[str, Any]]] = {
    **{
        name: (config(name), {"rope_scaling": LINEAR, "rope_theta": 5e5})
        for name in ("gpt2", "gptj-bias", "bloom-alibi", "opt")
    },
    "llama-gqa": (
        config(),
        {
            "alibi": True, "use_rope": False, "attention_chunk_size": 8, "layer_types": ["sliding_attention"] * 2,
            "nope_layers": [0], "local_attention": 8, "attn_logit_softcapping": 5.0, "logits_scaling": 8.0,
            "embedding_multiplier": 12.0,
        },
    ),
    "beside the text_config of gemma3": (
        built("gemma3"), {"rope_scaling": LINEAR, "sliding_window": 4, "rope_thetta": 5e6}
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LACKED)
def test_keys_of_positions_that_the_class_lacks_are_named(name: str, tmp_path: Path) -> None:
    write, keys = LACKED[name]
    folder = Path(write(tmp_path)["model"])
    assert load(str(folder)).remarks == []
    remarks = load(rewritten(folder, **keys)).remarks
    assert [remark.split(" = ")[0] for remark in remarks] == [f"config.json has {key}" for key in keys]
    assert examine(str(folder))["positions"][0].startswith("ALiBi") == (name == "bloom-alibi")


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("alibi_bias_max", 16, "wrong alibi_bias_max"),
        ("alibi", False, "wrong alibi"),
        ("prefix_lm", True, None),
        ("attn_type", "multiquery_attention", None),
        # Beside attn_config.
        ("logit_scale", 0.25, None),
    ],
)
def test_settings_of_mpt_that_transformers_does_not_read(
    key: str, value: Any, named: str | None, tmp_path: Path
) -> None:
    folder = Path(built("mpt")(tmp_path)["model"])
    before = load(str(folder))
    assert before.remarks == []
    inner = json.loads((folder / "config.json").read_text())["attn_config"]
    after = load(
        rewritten(folder, **({"attn_config": inner | {key: value}} if key in inner else {key: value}))
    )
    ids = torch.arange(5, 45)[None]
    assert after.model(input_ids=ids).logits.equal(before.model(input_ids=ids).logits)
    [remark] = after.remarks
    assert f"{key} = {value!r}" in remark or named
    assert [each["fault"] for each in examine(str(folder))["faults"]] == [named] * (named is not None)


def test_the_base_of_dbrx_is_where_transformers_does_not_read_it(tmp_path: Path) -> None:
    folder = Path(built("dbrx")(tmp_path)["model"])
    raw = json.loads((folder / "config.json").read_text())
    raw["attn_config"]["rope_theta"] = 5e5
    found = {}
    for rope in (None, ROPE | {"rope_theta": 5e5}):
        report = examine(rewritten(folder, **raw | {"rope_parameters": rope}))
        found[report["positions"][0]] = [each["fault"] for each in report["faults"]]
    assert found == {"plain rope, base 10,000": ["wrong base"], "plain rope, base 500,000": []}


def test_weights_in_8_bits_with_their_scales_are_read(tmp_path: Path) -> None:
    loaded = load(in_8_bits(tmp_path)["model"])
    name = "model.layers.0.mlp.up_proj.weight"
    stored_as = load_file(tmp_path / "m" / "model.safetensors")[name]
    weight = loaded.model.get_parameter(name)
    torch.testing.assert_close(weight, 2 * stored_as.to(weight.dtype))


@pytest.mark.parametrize("pickle", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_frequencies_in_the_files_that_are_the_configuration_s(dtype, pickle, tmp_path):
    load(with_frequencies(1, pickle=pickle, dtype=dtype)(tmp_path)["model"])


def test_a_sound_model_has_no_remark(tmp_path: Path) -> None:
    assert load(str(save_tiny_model(tmp_path / "m"))).remarks == []
    # What old files have, and what no text model reads.
    old = {"torch_dtype": "float32", "_flash_attn_2_enabled": True, "use_mrope": False, "max_length": 20}
    old |= {"alibi": False, "use_sliding_window": False, "attn_logit_softcapping": None, "nope_layers": []}
    empty = {"auto_map": {}, "quantization_config": {}}
    assert load(rewritten(tmp_path / "m", **old, **empty, embd_pdrop=0.0)).remarks == []
    bloom = rewritten(saved(tiny_model("bloom-alibi"), tmp_path / "bloom"), offset_alibi=100)
    assert load(bloom).remarks == []


def test_the_settings_of_every_class_are_no_fault(tmp_path: Path) -> None:
    """As the class writes them, and as transformers 4 did: rope in keys at the top, its scaling in `rope_scaling`."""
    said, looked = {}, {False: 0, True: 0}
    for kind in CAUSAL:
        with quiet_transformers():
            try:
                config = CONFIG_MAPPING[kind]()
                config.get_text_config()
            # Whatever a class raises that cannot be made of nothing, or has two texts.
            except Exception:
                continue
            config.save_pretrained(tmp_path / kind)
        for older in looked:
            if older and not as_transformers_4(tmp_path / kind / "config.json"):
                continue
            looked[older] += 1
            with quiet_transformers():
                text = type(config).from_pretrained(tmp_path / kind).get_text_config()
            if faults := file_faults(str(tmp_path / kind), text, tiny_tokenizer()):
                said[kind, older] = faults
    assert said == {}
    assert min(looked.values()) > 80


def as_transformers_4(file: Path) -> bool:
    """Write the file so; False for a model without rope, or with rope by type of layer."""
    raw = json.loads(file.read_text())
    part = raw.get("text_config", raw)
    rope = part.pop("rope_parameters", None) or {}
    if not rope or any(isinstance(value, dict) for value in rope.values()):
        return False
    scaled = rope.get("rope_type", "default") != "default"
    at_the_top = ("rope_theta", "partial_rotary_factor")
    part |= {name: rope[name] for name in at_the_top if name in rope}
    part["rope_scaling"] = {k: v for k, v in rope.items() if k not in at_the_top} if scaled else None
    file.write_text(json.dumps(raw))
    return True


def test_a_model_in_memory_is_looked_at_too() -> None:
    model = tiny_model("mistral")
    model.config.sliding_window = 0
    with pytest.raises(UsageError, match="sliding_window"):
        run(SPEC, (model, tiny_tokenizer()), TEXT)
    found = run(SPEC, (tiny_llama(head_dim=64).bfloat16(), tiny_tokenizer()), TEXT)
    assert any("frequencies rounded" in note for note in found.notes)


def test_the_page_says_of_each_fault_what_measuring_does() -> None:
    page = (Path(__file__).parents[2] / "docs" / "definitions" / "doctor.md").read_text()
    rows = re.findall(r"^\| ([a-z][^|]+) \| [^|]+ \| (refused|a note|-) \|$", page, re.MULTILINE)
    refused = {name for names, how in rows if how == "refused" for name in names.split(", ")}
    assert refused == {*REFUSED}
