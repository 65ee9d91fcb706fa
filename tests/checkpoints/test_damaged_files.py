"""Damaged model folders, adapters and GGUF files: named, explained, never unpickled."""

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from lengthwise.errors import MissingError, UsageError
from lengthwise.subjects import load
from lengthwise.testing import save_tiny_model, tiny_llama
from tests.architectures import with_lora
from tests.tiny_folders import rewritten

DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut": lambda data: data[: len(data) // 2],
    "garbage": lambda data: bytes(range(256)) * 20,
    "nested": lambda data: b"[" * 100_000,
    "list": lambda data: b"[1, 2]",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder `model` and an adapter `adapter`."""
    folder = tmp_path_factory.mktemp("made")
    save_tiny_model(folder / "model")
    with_lora(tiny_llama()).save_pretrained(folder / "adapter")
    return folder


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "copy")
    return tmp_path / "copy"


def failing(copy: Path, adapter: bool = True) -> str:
    """The error of loading, which is explained and suggests nothing unsafe."""
    with pytest.raises((MissingError, UsageError)) as raised:
        load(str(copy / "model"), device="cpu", adapter=str(copy / "adapter") if adapter else None)
    text = str(raised.value)
    assert "weights_only" not in text
    assert len(text) < 1500
    return text


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(
    "name",
    [
        "model/config.json",
        "model/tokenizer.json",
        "model/tokenizer_config.json",
        "model/model.safetensors",
        "adapter/adapter_config.json",
        "adapter/adapter_model.safetensors",
    ],
)
def test_a_damaged_file_is_named(copy: Path, name: str, damage: str):
    (copy / name).write_bytes(DAMAGES[damage]((copy / name).read_bytes()))
    assert str(copy / name) in failing(copy)


class Malicious:
    """What runs a command when it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, tuple[str]]:
        import os

        return os.mkdir, (str(self.target),)


@pytest.mark.parametrize("kind", ["pickle", "torch", "cut", "empty"])
@pytest.mark.parametrize(
    ("folder", "safe", "name"),
    [
        ("adapter", "adapter_model.safetensors", "adapter_model.bin"),
        ("model", "model.safetensors", "pytorch_model.bin"),
    ],
)
def test_a_pickle_is_not_run_and_is_named(copy: Path, folder: str, safe: str, name: str, kind: str):
    (copy / folder / safe).unlink()
    file, ran = copy / folder / name, copy / "ran"
    if kind == "pickle":
        file.write_bytes(pickle.dumps(Malicious(ran)))
    elif kind == "torch":
        torch.save({"weight": Malicious(ran)}, file)
    else:
        torch.save({"weight": torch.zeros(100)}, file)
        file.write_bytes(file.read_bytes()[: 300 if kind == "cut" else 0])
    assert name in failing(copy)
    assert not ran.exists()


HELD: dict[str, Callable[[dict], object]] = {
    "a number": lambda tensors: tensors | {"global_step": 5},
    "a word": lambda tensors: tensors | {"note": "x"},
    "nothing": lambda tensors: tensors | {"bias": None},
    "one level more": lambda tensors: {"state_dict": tensors},
    "a trainer's state": lambda tensors: {"model": tensors, "optimizer": {}, "step": 3},
    "a list": lambda tensors: [*tensors.values()],
    "one tensor": lambda tensors: next(iter(tensors.values())),
    "a number alone": lambda tensors: 5,
}


@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize(
    ("folder", "safe", "name"),
    [
        ("adapter", "adapter_model.safetensors", "adapter_model.bin"),
        ("model", "model.safetensors", "pytorch_model.bin"),
    ],
)
def test_a_pickle_of_more_than_tensors_is_explained(copy: Path, folder: str, safe: str, name: str, held: str):
    tensors = load_file(copy / folder / safe)
    (copy / folder / safe).unlink()
    torch.save(tensors, copy / folder / name)
    load(str(copy / "model"), device="cpu", adapter=str(copy / "adapter"))
    torch.save(HELD[held](tensors), copy / folder / name)
    assert str(copy / folder) in failing(copy)


OWN = {"AutoConfig": "own.Own", "AutoModelForCausalLM": "own.Own"}


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("config.json", {"model_type": "own", "auto_map": OWN}),
        (
            "tokenizer_config.json",
            {"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": ["own.Own", None]}},
        ),
        # Beside a type that transformers has.
        ("config.json", {"auto_map": OWN}),
    ],
)
def test_code_of_a_model_is_not_run(copy: Path, file: str, change: dict, monkeypatch: pytest.MonkeyPatch):
    """Nor does transformers ask on standard input, where a script may answer anything."""
    monkeypatch.setattr("builtins.input", lambda _: "y")
    folder, ran = Path(rewritten(copy / "model", file, **change)), copy / "ran"
    (folder / "own.py").write_text(f"import os\nos.mkdir({str(ran)!r})\nclass Own: ...\n")
    if change == {"auto_map": OWN}:
        assert load(str(folder), device="cpu").config.model_type == "llama"
    else:
        assert "brings code of its own" in failing(copy, adapter=False)
    assert not ran.exists()


WRONG = {
    "adapter": [{"r": "xx"}, {"peft_type": "NONE"}, {"peft_type": None}, {"target_modules": 5}],
    "model": [
        {"num_attention_heads": 0},
        {"hidden_size": "xx"},
        {"rope_parameters": 5},
        {"architectures": 7},
    ],
}


@pytest.mark.parametrize(
    ("folder", "change"), [(folder, change) for folder in WRONG for change in WRONG[folder]], ids=str
)
def test_wrong_values_in_a_configuration(copy: Path, folder: str, change: dict):
    rewritten(copy / folder, "config.json" if folder == "model" else "adapter_config.json", **change)
    assert str(copy / folder) in failing(copy)
