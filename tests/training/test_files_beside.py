"""A model made from another keeps the other's terms, and what prepares images for its tower."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from lengthwise.checkpoints.saving import BESIDE, save_extended, save_whole
from lengthwise.testing import save_tiny_model, tiny_llama, tiny_tokenizer
from lengthwise.training import train
from lengthwise.training.merging import merge_run
from lengthwise.training.recipe import Recipe

Make = Callable[..., Recipe]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    folder = save_tiny_model(tmp_path / "base")
    for name in (*BESIDE, "README.md"):
        (folder / name).write_text(f"---\nlicense: other\n---\n{name} of the base\n")
    return folder


def kept(folder: Path) -> list[str]:
    return [name for name in BESIDE if (folder / name).is_file()]


def test_an_extended_model_keeps_them_and_its_card(base: Path, tmp_path: Path):
    save_extended(str(base), "yarn", tmp_path / "out", factor=2.0)
    assert kept(tmp_path / "out") == [*BESIDE]
    card = (tmp_path / "out" / "README.md").read_text()
    assert card.startswith("---\nlicense: other\n---\nREADME.md of the base\n\n## Context extension")


def test_a_trained_and_a_merged_model_keep_them_and_an_adapter_does_not(
    base: Path, make: Make, tmp_path: Path
):
    for name, adapter in (("whole", None), ("lora", {"r": 2})):
        train(make(model=str(base), steps=1, adapter=adapter), tmp_path / name)
    merge_run(tmp_path / "lora", tmp_path / "merged")
    found = {name: kept(tmp_path / name) for name in ("whole/model", "lora/model", "merged")}
    assert found == {"whole/model": [*BESIDE], "lora/model": [], "merged": [*BESIDE]}
    # What it says of the base is not said of what was trained.
    assert not (tmp_path / "whole" / "model" / "README.md").exists()


@pytest.mark.parametrize("gone", ["the folder", "what may be read of it"])
def test_what_cannot_be_read_is_no_reason_to_lose_what_was_trained(base, tmp_path, monkeypatch, caplog, gone):
    if gone == "the folder":
        shutil.rmtree(base)
    else:
        read = Path.read_bytes

        def forbidden(path: Path) -> bytes:
            if path.parent == base:
                raise PermissionError(13, "Permission denied", str(path))
            return read(path)

        monkeypatch.setattr(Path, "read_bytes", forbidden)
    save_whole(tiny_llama(), tiny_tokenizer(), tmp_path / "out", base=str(base))
    assert (tmp_path / "out" / "config.json").is_file()
    assert not kept(tmp_path / "out")
    assert "as its licence" in caplog.text
