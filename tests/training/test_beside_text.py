"""Models of images and sounds too: what reads no text is not trained, and what is trained gets a gradient."""

import json
from pathlib import Path
from typing import Any

import pytest

from checks.zoo.architectures import animals, build, made
from lengthwise.training import train
from lengthwise.training.beside_text import beside_text
from lengthwise.training.recipe import Recipe
from lengthwise.training.sections import Adapter
from lengthwise.training.starting_model import add_adapter
from tests.architectures import random_ids, tiny_model

BESIDE = {
    "fuyu": ["model.vision_embed_tokens"],
    "gemma3": ["model.vision_tower", "model.multi_modal_projector"],
    "got_ocr2": ["model.vision_tower", "model.multi_modal_projector"],
    "moss_transcribe_diarize": ["model.audio_tower", "model.multi_modal_projector"],
    "phi4_multimodal": ["model.embed_tokens_extend"],
}
ADAPTERS: dict[str, dict[str, Any] | None] = {
    "none": None,
    "usual": {},
    "others left out": {"target_modules": "all-linear", "exclude_modules": ["down_proj"]},
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", BESIDE)
@pytest.mark.parametrize("adapter", ADAPTERS)
def test_what_is_trained_gets_a_gradient(name: str, adapter: str) -> None:
    model = made(next(each for each in animals() if each.name == name))
    assert sorted(beside_text(model)) == sorted(BESIDE[name])
    settings = ADAPTERS[adapter]
    trained = add_adapter(model, None if settings is None else Adapter(**settings)).train()
    trained(input_ids=random_ids(1, 32)).logits.log_softmax(-1)[..., 0].sum().backward()
    without = [key for key, value in trained.named_parameters() if value.requires_grad and value.grad is None]
    assert without == []
    assert not any(
        value.requires_grad
        for key, value in trained.named_parameters()
        if any(each in key for each in BESIDE[name])
    )
    if settings and "exclude_modules" in settings:
        assert not any("down_proj.lora" in key for key, _ in trained.named_parameters())


def test_a_model_of_texts_alone_has_no_such_part() -> None:
    for name in ("llama-gqa", "gpt2", "opt"):
        assert beside_text(tiny_model(name)) == []
    model = add_adapter(tiny_model("llama-gqa"), None)
    assert all(each.requires_grad for each in model.parameters())


@pytest.mark.filterwarnings("ignore")
def test_a_model_of_images_is_trained_and_saved_as_it_was(tmp_path: Path) -> None:
    """The Trainer writes into a configuration that has no such key."""
    build(next(each for each in animals() if each.name == "gemma3"), tmp_path / "base")
    (tmp_path / "text.txt").write_text("It was a dark and stormy night. " * 400)
    settings = {"model": str(tmp_path / "base"), "length": 16, "steps": 1, "batch": {"size": 1}}
    settings |= {
        "data": {"corpus": str(tmp_path / "text.txt"), "split": "all"},
        "precision": "float32",
        "optimizer": {"learning_rate": 1e-3},
    }
    train(Recipe(**settings), out=tmp_path / "run")
    before, after = (
        json.loads((tmp_path / each / "config.json").read_text()) for each in ("base", "run/model")
    )
    assert before.keys() == after.keys()
    assert after["text_config"]["use_cache"] is before["text_config"]["use_cache"] is True
