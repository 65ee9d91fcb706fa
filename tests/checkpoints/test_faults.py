"""What is wrong with a model that loads: refused, or said beside the numbers, by every verb that measures."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from lengthwise import run
from lengthwise.checkpoints.faults import REFUSED
from lengthwise.errors import UsageError
from lengthwise.measure.perplexity import Perplexity
from lengthwise.settings import Subject
from lengthwise.subjects import load
from lengthwise.testing import save_tiny_model, tiny_llama, tiny_text, tiny_tokenizer
from tests.architectures import tiny_model, with_lora
from tests.tiny_folders import rewritten, saved

ROPE = {"rope_type": "default", "rope_theta": 1e4}
SPEC = Perplexity(lengths=(16,), windows=1)
TEXT = [tiny_text(60)]
Folder = Callable[[Path], dict[str, Any]]
"""Writes a model, and gives the fields of its `Subject`."""


def config(**changed: Any) -> Folder:
    return lambda path: {"model": rewritten(save_tiny_model(path / "m"), **changed)}


def sliding(**changed: Any) -> Folder:
    return lambda path: {"model": rewritten(saved(tiny_model("mistral"), path / "m"), **changed)}


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


def pickled(path: Path) -> dict[str, Any]:
    folder = save_tiny_model(path / "m")
    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"] = tensors["model.norm.weight"].to(torch.int8)
    torch.save(tensors, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
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
    "a base of 1": (config(rope_parameters=ROPE | {"rope_theta": 1}), "rope_theta = 1"),
    "a factor below 1": (
        config(rope_parameters=ROPE | {"rope_type": "linear", "factor": 0.5}), "shrinks the context"
    ),
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
    "an adapter that learned nothing": (adapted(fresh=True), "every lora_B is zero"),
    "an adapter without weight": (adapted(lora_alpha=0), "lora_alpha is 0"),
    "a misspelt key of an adapter": (adapted(lora_alpa=64), "Did you mean lora_alpha?"),
}  # fmt: skip


@pytest.mark.parametrize("case", SAID)
def test_what_is_written_and_not_obeyed_is_said_beside_the_numbers(case: str, tmp_path: Path) -> None:
    write, words = SAID[case]
    subject = Subject(**write(tmp_path))
    found = run(SPEC, subject, TEXT)
    assert [note for note in found.notes if words in note and note.startswith(f"{subject.model}: ")]
    assert found.rows[0].value is not None


def test_weights_in_8_bits_with_their_scales_are_read(tmp_path: Path) -> None:
    loaded = load(in_8_bits(tmp_path)["model"])
    name = "model.layers.0.mlp.up_proj.weight"
    stored_as = load_file(tmp_path / "m" / "model.safetensors")[name]
    weight = loaded.model.get_parameter(name)
    torch.testing.assert_close(weight, 2 * stored_as.to(weight.dtype))


def test_a_sound_model_has_no_remark(tmp_path: Path) -> None:
    assert load(str(save_tiny_model(tmp_path / "m"))).remarks == []
    # What old files have, and what no text model reads.
    old = {"torch_dtype": "float32", "_flash_attn_2_enabled": True, "use_mrope": False, "max_length": 20}
    assert load(rewritten(tmp_path / "m", **old, auto_map={}, embd_pdrop=0.0)).remarks == []


def test_a_model_in_memory_is_looked_at_too() -> None:
    model = tiny_model("mistral")
    model.config.sliding_window = 0
    with pytest.raises(UsageError, match="sliding_window"):
        run(SPEC, (model, tiny_tokenizer()), TEXT)
    found = run(SPEC, (tiny_llama(head_dim=64).bfloat16(), tiny_tokenizer()), TEXT)
    assert any("frequencies rounded" in note for note in found.notes)


def test_the_page_says_of_each_fault_what_measuring_does() -> None:
    page = (Path(__file__).parents[2] / "docs" / "use" / "doctor.md").read_text()
    rows = re.findall(r"^\| ([a-z][^|]+) \| [^|]+ \| (refused|a note|-) \|$", page, re.MULTILINE)
    refused = {name for names, how in rows if how == "refused" for name in names.split(", ")}
    assert refused == {*REFUSED}


def test_the_remarks_are_kept_in_the_record(tmp_path: Path) -> None:
    found = run(SPEC, Subject(model=rewritten(save_tiny_model(tmp_path / "m"), rope_thetta=5e5)), TEXT)
    about = json.loads(found.to_json())["provenance"]["model"]
    assert len(about["remarks"]) == 1
