"""Broken models and full memory: a clear error, its exit code, and nothing lost."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from lengthwise.testing import tiny_tokenizer
from tests.cli.small_runs import refused
from tests.tiny_folders import rewritten

SIZES = ("--lengths", 16, "--windows", 2)


def without(folder: Path, files: str) -> None:
    for file in folder.glob(files):
        file.unlink()


# What is done to a model, the exit code, and words of the message.
BROKEN: dict[str, tuple[Callable[[Path], Any], int, tuple[str, ...]]] = {
    "no weights": (lambda folder: without(folder, "*.safetensors"), 3, ("own", "model.safetensors")),
    "no tokenizer": (lambda folder: without(folder, "token*"), 3, ("own", "tokenizer")),
    "a larger tokenizer": (
        lambda folder: tiny_tokenizer(vocab_size=350).save_pretrained(folder),
        2,
        ("has ids up to 349, the model a vocabulary of 320",),
    ),
    "a configuration without heads": (lambda folder: rewritten(folder, num_attention_heads=0), 2, ("own",)),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_model(lengthwise: Callable[..., Any], model: str, text: list[str], name: str) -> None:
    damage, code, expected = BROKEN[name]
    damage(Path(shutil.copytree(model, "own")))
    refused(lengthwise("measure", "./own", *text, *SIZES, "--out", "run"), code, *expected)
    assert not Path("run/config.yaml").exists(), "a corrected command is not told of an unfinished run"
    if "configuration" in name:
        refused(lengthwise("measure", "./own", *text, *SIZES, "--dry-run"), code, *expected)


def test_verbose_shows_the_traceback(lengthwise: Callable[..., Any]) -> None:
    outcome = lengthwise("report", "gone", "-v")
    assert outcome.code == 2
    assert "Traceback" in outcome.err
    assert outcome.err.splitlines()[-2].startswith("lengthwise: there is no folder gone")


def score_raises(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("lengthwise.measure.misalignment.Misalignment.score", fail)


@pytest.mark.parametrize(
    "error",
    [
        torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"),
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp:1] DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_out_of_memory_names_the_knob(on_text, monkeypatch, error):
    score_raises(error, monkeypatch)
    refused(on_text("measure", *SIZES), 1, "out of memory", "--batch-size")


def test_a_bug_keeps_its_traceback(on_text: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    score_raises(ZeroDivisionError(), monkeypatch)
    with pytest.raises(ZeroDivisionError):
        on_text("measure", *SIZES)
