"""What llama.cpp passes over of a GGUF file is named, with the file and without."""

from pathlib import Path
from typing import Any

import pytest

from lengthwise.checkpoints.doctor import examine
from lengthwise.checkpoints.llama_cpp_keys import OBEYED, passed_over
from lengthwise.testing import tiny_tokenizer
from tests.checkpoints.test_gguf_settings import made, scaling_keys
from tests.gguf_files import write_gguf

YARN = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "context_length": 256}


@pytest.mark.parametrize("text", [False, True], ids=["values", "text"])
@pytest.mark.parametrize("key", OBEYED)
def test_every_key(key: str, text: bool) -> None:
    """llama.cpp gives values as text, a file gives them as they are."""
    obeying, neutral = OBEYED[key]

    def found(
        value: float, architecture: str = "llama", scaling: str | None = None, **more: Any
    ) -> list[str]:
        says = {**YARN, key: value, **more}
        return passed_over(
            architecture, {name: str(of) if text else of for name, of in says.items()}.get, scaling
        )

    [said] = found(7.5)
    assert f"{key} = 7.5" in said
    assert not any(found(value) for value in neutral)
    assert not any(found(7.5, architecture) for architecture in obeying)
    # YaRN's own change nothing without it.
    assert bool(found(7.5, scaling="linear")) is ("yarn" not in key)
    if "yarn" in key:
        assert not found(7.5, **{"rope.scaling.type": "linear"})
        assert found(7.5, scaling="yarn", **{"rope.scaling.type": "linear"})


def test_values_that_say_what_llama_cpp_does() -> None:
    assert passed_over("llama", (YARN | {"attention.sliding_window": 255}).get)
    assert not passed_over("llama", (YARN | {"attention.sliding_window": 256}).get)
    assert not passed_over("llama", (YARN | {"rope.scaling.yarn_attn_factor": 1.1386294}).get)
    assert passed_over("llama", (YARN | {"attention.sliding_window": [16, 0]}).get)


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("phi3", "default", ["attention.sliding_window = 32"]),
        ("starcoder2", "default", ["attention.sliding_window = 16"]),
        ("gemma2", "default", []),
        ("llama", "yarn", []),
        ("llama", "yarn-ends", ["yarn_beta_fast = 16.0", "yarn_beta_slow = 2.0"]),
    ],
)
def test_doctor_names_them(name: str, kind: str, said: list[str], tmp_path: Path) -> None:
    model = made(name, kind)
    path = write_gguf(tmp_path / "made.gguf", model, tiny_tokenizer(), more=scaling_keys(model))
    notes = [note for note in examine(str(path), config_only=True)["notes"] if "llama.cpp" in note]
    assert len(notes) == len(said)
    assert all(words in note for words, note in zip(said, notes, strict=True))
